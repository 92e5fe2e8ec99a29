/** Files for the administration of a fleet: sessions in a folder of any shape, and whole files that are written once. */

import { dirname, join } from "node:path";
import { hasSameContent } from "../../../storage/fs/chunked-io.ts";
import { isContainerName } from "../../../storage/fs/container-paths.ts";
import { type Disk, exists, removeQuietly, renameExclusive, writeAll } from "../../../storage/fs/disk.ts";
import { getInfo, guardErrno, isNameTaken, readIfThere, useFile, writeTemporary } from "../../../storage/fs/files.ts";

/**
 * Yields the session files and containers in a folder and its subfolders, without following links. Reports unreadable
 * folders.
 */
export function* listSessionFiles(
  disk: Disk,
  folder: string,
  unreadable: (folder: string, error: unknown) => void,
): Generator<string> {
  let names: string[];
  try {
    names = disk.names(folder);
  } catch (error) {
    unreadable(folder, error);
    return;
  }
  for (const name of names) {
    const path = join(folder, name);
    if (name.endsWith(".jsonl") || isContainerName(name)) yield path;
    else if (getInfo(disk, path, true)?.kind === "folder") yield* listSessionFiles(disk, path, unreadable);
  }
}

/** The outcome of writing a file once: it was not there, it was there with the same bytes, or something else is there. */
export type WrittenOnce = "new" | "known" | "taken";

/** Bytes as they come, each piece valid until the next. */
type FileBytes = Iterable<Uint8Array> | AsyncIterable<Uint8Array>;

/**
 * Writes a file, and its folder if missing. It gets its name when all pieces are written; an existing file is compared with
 * them.
 */
export async function writeOnce(disk: Disk, file: string, pieces: FileBytes, isDurable: boolean): Promise<WrittenOnce> {
  return guardErrno("writing a file of the fleet", async () => {
    if (exists(disk, file)) return (await hasBytes(disk, file, pieces)) ? "known" : "taken";
    disk.makeFolder(dirname(file));
    const fill = async (fd: number): Promise<void> => {
      for await (const piece of pieces) writeAll(disk, fd, piece);
    };
    const outcome = await writeTemporary(disk, file, fill, { sync: isDurable }, (temporary) =>
      named(disk, temporary, file),
    );
    if (isDurable) await disk.syncFolder(dirname(file));
    return outcome;
  });
}

async function named(disk: Disk, temporary: string, file: string): Promise<WrittenOnce> {
  try {
    renameExclusive(disk, temporary, file);
    return "new";
  } catch (error) {
    if (!isNameTaken(error)) throw error;
    // Another process was first.
    const isSame = await hasSameContent(disk, temporary, file);
    removeQuietly(disk, temporary);
    return isSame ? "known" : "taken";
  }
}

/** Returns whether a file has these bytes, and no more. */
function hasBytes(disk: Disk, file: string, pieces: FileBytes): Promise<boolean> {
  return useFile(disk, disk.openRead(file), async (fd) => {
    let at = 0;
    for await (const piece of pieces) {
      if (!readIfThere(disk, fd, at, piece.length)?.equals(piece)) return false;
      at += piece.length;
    }
    return at === disk.infoOf(fd).size;
  });
}
