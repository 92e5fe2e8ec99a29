/** Writes files for people, such as exports. */

import { basename, dirname } from "node:path";
import { isMissing } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Log } from "../../core/ports/store.ts";
import { joinBlocks, pause, readPieces } from "../fs/chunked-io.ts";
import { readClock } from "../fs/clock.ts";
import { CONTAINER, headerFile } from "../fs/container-paths.ts";
import { closeQuietly, type Disk, exists, removeQuietly, renameExclusive, writeAll } from "../fs/disk.ts";
import { guardErrno, isNameTaken, writeTemporary } from "../fs/files.ts";
import { isSessionName } from "../fs/paths.ts";
import { LF } from "../log/lines.ts";
import { copyAttachments } from "./import.ts";

/** Milliseconds of writing without a pause. */
const SLICE = 20;
/** Bytes of one write: making 64 KB of a page takes about 10 ms, so that a block is no longer than a slice. */
const BLOCK = 1 << 16;

/** See Stores.writeOutput. */
export async function writeOutput(
  disk: Disk,
  path: string,
  pieces: Iterable<string | Uint8Array>,
  onExisting: "refuse" | "rename" | "replace",
  attachmentsOf: string | undefined,
  isDurable: boolean,
): Promise<string> {
  let written: string | undefined;
  const fill = async (fd: number): Promise<void> => {
    let since = readClock();
    for (const block of joinBlocks(pieces, BLOCK)) {
      writeAll(disk, fd, block);
      if (readClock() - since < SLICE) continue;
      await pause();
      since = readClock();
    }
  };
  return guardErrno("writing the output", async () => {
    try {
      written = await writeTemporary(disk, path, fill, { sync: isDurable }, (file) =>
        nameOutput(disk, file, path, onExisting),
      );
      if (attachmentsOf !== undefined) await copyAttachments(disk, attachmentsOf, written);
      if (isDurable) await disk.syncFolder(dirname(written));
      return written;
    } catch (error) {
      if (written !== undefined && onExisting !== "replace") removeQuietly(disk, written);
      if (isMissing(error) && !exists(disk, dirname(path))) throw toNoFolderFailure(dirname(path));
      throw error;
    }
  });
}

function toNoFolderFailure(folder: string): Failure {
  const sentence = `There is no folder ${folder}. Nothing was written. Make the folder first, or name a file elsewhere.`;
  return new Failure("storage_failed", sentence, { path: folder }, { retryable: false });
}

/** Gives the output its name, and returns the name. */
function nameOutput(disk: Disk, temporary: string, path: string, onExisting: "refuse" | "rename" | "replace"): string {
  if (onExisting === "replace") {
    requireNoContainer(disk, path);
    disk.rename(temporary, path);
    return path;
  }
  for (let n = 1; ; n++) {
    const name = n === 1 ? path : path.replace(/(\.[^./\\]*)?$/, `-${n}$1`);
    if (onExisting === "rename" && isOfContainer(disk, name)) continue;
    requireNoContainer(disk, name);
    try {
      renameExclusive(disk, temporary, name);
      return name;
    } catch (error) {
      if (!isNameTaken(error)) throw error;
      if (onExisting === "refuse")
        throw new Failure("already_exists", `Something exists at ${path} already. Set overwrite, or name another.`, {
          path,
        });
    }
  }
}

/** Returns whether pi_agent_rust would take a session's container for one derived from a file with this name. */
function isOfContainer(disk: Disk, path: string): boolean {
  return isSessionName(basename(path)) && exists(disk, headerFile(path.replace(/\.jsonl$/, CONTAINER)));
}

function requireNoContainer(disk: Disk, path: string): void {
  if (!isOfContainer(disk, path)) return;
  const sentence = `The session ${basename(path, ".jsonl")} is in the container next to ${path}, which pi_agent_rust would replace by this file. Give another name.`;
  throw new Failure("already_exists", sentence, { path });
}

/** See Stores.bytesOf. */
export function* readStoredBytes(disk: Disk, log: Log): Generator<Uint8Array> {
  if (log.store === "jsonl" && log.persisted && log.file !== null) {
    const fd = disk.openRead(log.file);
    try {
      yield* readPieces(disk, fd, 0, disk.infoOf(fd).size);
    } finally {
      closeQuietly(disk, fd);
    }
    return;
  }
  yield log.headerLine;
  yield LF;
  yield* log.copy(Int32Array.from({ length: log.nodes.count }, (_, position) => position));
}
