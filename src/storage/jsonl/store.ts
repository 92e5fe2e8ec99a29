/** Sessions as JSONL files. */

import { dirname } from "node:path";
import { storageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { concat } from "../../core/json/json.ts";
import type { Beginning, Content, Log, Store } from "../../core/ports/store.ts";
import { nameExclusive } from "../fs/chunked-io.ts";
import { type Disk, type FileInfo, isAbsent, removeIfSame, writeAll } from "../fs/disk.ts";
import { isNameTaken, writeTemporary } from "../fs/files.ts";
import { sweepTemporaryFiles } from "../fs/staging.ts";
import { attachmentFolder, dropAttachments, shareAttachments } from "../log/attachments.ts";
import { type Durability, FileLog } from "../log/file-log.ts";
import { LF } from "../log/lines.ts";
import { WrittenLines } from "./file-index.ts";
import { JsonlBackend, type JsonlOptions, openLog } from "./log.ts";

/** Bytes after which a sync begins beside the writing: 245 MB are durable after 260 ms, and after 310 with one sync. */
const SYNCED_EARLY = 1 << 25;

export function jsonlStore(options: JsonlOptions): Store {
  const fileOf = (beginning: Beginning): string => beginning.file ?? options.fileFor(beginning.header);
  return {
    name: "jsonl",
    create(beginning) {
      const backend = new JsonlBackend(options, fileOf(beginning));
      backend.begin(beginning);
      return new FileLog(backend);
    },
    publish: (beginning, content) => publish(options, fileOf(beginning), beginning, content),
    open: (file, readOnly) => openLog(readOnly ? { ...options, readOnly } : options, file),
  };
}

/** Publishes a new session file in one step, and opens it with what is known from writing it. */
async function publish(
  options: JsonlOptions,
  file: string,
  { headerLine, attachmentsOf }: Beginning,
  content: Content,
): Promise<Log> {
  const { disk, env, durability } = options;
  let named: FileInfo | undefined;
  const target = attachmentFolder(file);
  /** Whether the folder of the attachments is one that we made: nothing else may be removed. */
  let isFolderOurs = false;
  try {
    disk.makeFolder(dirname(file));
    sweepTemporaryFiles(disk, dirname(file), env.now());
    if (attachmentsOf !== undefined && !isAbsent(disk, attachmentFolder(attachmentsOf))) {
      isFolderOurs = disk.makeFolder(target).includes(target);
      shareAttachments(disk, attachmentsOf, target);
      if (durability === "sync") await disk.syncFolder(target);
    }
    const written = new WrittenLines(headerLine);
    const fill = async (fd: number): Promise<void> => {
      writeAll(disk, fd, concat([headerLine, LF]));
      await write(disk, fd, written.record(content), durability);
      written.end(disk.infoOf(fd));
    };
    // It is on the medium already.
    named = await writeTemporary(disk, file, fill, { sync: false }, (made) => nameExclusive(disk, made, file));
    if (durability === "sync") await disk.syncFolder(dirname(file));
    return openLog(options, file, false, written);
  } catch (error) {
    if (named) removeIfSame(disk, file, named);
    if (isFolderOurs) dropAttachments(disk, file);
    if (!named && isNameTaken(error))
      throw new Failure("already_exists", `There is a file at ${file} already. Choose another path.`, {
        sessionPath: file,
      });
    throw storageFailure(error, "writing the new session");
  }
}

/** Writes pieces to a file and, with `sync`, makes them durable. No sync runs on when it settles, even by an error. */
async function write(disk: Disk, fd: number, pieces: Iterable<Uint8Array>, durability: Durability): Promise<void> {
  const syncs: Promise<void>[] = [];
  let unsynced = 0;
  try {
    for (const piece of pieces) {
      writeAll(disk, fd, piece);
      unsynced += piece.length;
      if (unsynced < SYNCED_EARLY || durability !== "sync") continue;
      syncs.push(disk.sync(fd));
      unsynced = 0;
    }
    if (durability === "sync") syncs.push(disk.sync(fd));
    // The system reports a failure to one of these syncs and not to those after it.
    await Promise.all(syncs);
  } finally {
    await Promise.allSettled(syncs);
  }
}
