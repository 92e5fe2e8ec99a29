/** Puts a session file in its place in one step: a new one, or one that replaces the session's with repaired lines. */

import { dirname, join } from "node:path";
import { crc32 } from "node:zlib";
import { Failure } from "../../core/failure.ts";
import type { Damage } from "../../core/format/damage.ts";
import { replaceMember, type SessionHeader, toFileNamePart } from "../../core/format/entry.ts";
import { concat, toBytes } from "../../core/json/json.ts";
import type { Repairs } from "../../core/ports/store.ts";
import { MISSING } from "../../core/tree/nodes.ts";
import { keepAs } from "../fs/chunked-io.ts";
import { CONTAINER } from "../fs/container-paths.ts";
import { type Disk, type FileInfo, publishNew, removeQuietly, writeAll } from "../fs/disk.ts";
import { listNames, makeFolderIn } from "../fs/folders.ts";
import { readHeader } from "../fs/header.ts";
import { sweepTemporaryFiles } from "../fs/staging.ts";
import { isSameStamp, isUnchanged } from "../fs/stamps.ts";
import { locateLockInFolder } from "../locks/lock-paths.ts";
import { isLock, type Lock, type Locks } from "../locks/locks.ts";
import type { EntryReader } from "../log/entry-reader.ts";
import { makeOtherProgramFailure } from "../log/failures.ts";
import type { KnownEntries } from "../log/known-entries.ts";
import { LF } from "../log/lines.ts";
import type { FileLogOptions, WriteState } from "../log/write-state.ts";
import type { SessionFile } from "./session-file.ts";

/** A file that was put in its place: its descriptor, and its lock, which is held. */
export interface Published {
  readonly fd: number;
  readonly lock: Lock;
}

/** Buffer that collects small writes; no write begins within another. */
const scratch = Buffer.allocUnsafeSlow(1 << 16);

/** Returns lines as they lie in a file; `sealed`: after a line feed. Valid until the next call. */
export function encodeFile(lines: readonly Uint8Array[], sealed: boolean): Uint8Array {
  let length = sealed ? 1 : 0;
  for (const line of lines) length += line.length + 1;
  const bytes = length <= scratch.length ? scratch.subarray(0, length) : Buffer.allocUnsafe(length);
  let at = 0;
  if (sealed) bytes[at++] = 0x0a;
  for (const line of lines) {
    bytes.set(line, at);
    at += line.length;
    bytes[at++] = 0x0a;
  }
  return bytes;
}

/**
 * Creates the file of a new session. Throws EEXIST when the name is taken, and already_exists when another session has the
 * `given` id.
 */
export function createFile(
  { disk, locks, env }: FileLogOptions,
  state: WriteState,
  path: string,
  bytes: Uint8Array,
  given?: SessionHeader,
): Published {
  state.unsynced.addFound(makeFolderIn(disk, dirname(path)));
  sweepTemporaryFiles(disk, dirname(path), env.now());
  const publish = (): Published => publishLocked(disk, state, path, (fd) => writeAll(disk, fd, bytes));
  return given ? runWithNewId({ disk, locks }, path, given, publish) : publish();
}

/** Gives a new session its name at `path`. Throws already_exists if another session has its id, which was given. */
export function runWithNewId<T>(
  { disk, locks }: Pick<FileLogOptions, "disk" | "locks">,
  path: string,
  header: SessionHeader,
  run: () => T,
): T {
  const idLock = lockId(disk, locks, dirname(path), header.id);
  try {
    requireNewId(disk, path, header);
    return run();
  } finally {
    idLock.release();
  }
}

/** No file has such an inode: the locks of ids are next to those of files. */
const NO_INODE = 2 ** 48;

/**
 * Locks an id in a folder while its session is created there: two processes that looked for it at the same moment would both
 * find it free. Throws already_exists if another process creates it.
 */
function lockId(disk: Disk, locks: Locks, folder: string, id: string): Lock {
  const { device, inode } = disk.info(folder);
  const key = NO_INODE + crc32(`${inode}/${id}`);
  const acquired = locks.acquire({ device, inode: key }, locateLockInFolder(folder, key));
  if (!isLock(acquired)) throw makeBegunFailure(id);
  return acquired;
}

/**
 * Throws already_exists if a session of the same directory has the id by now: the names of session files begin with the
 * time, so that those of two programs differ which begin a session with one id.
 */
export function requireNewId(disk: Disk, path: string, { id, cwd }: SessionHeader): void {
  const folder = dirname(path);
  const isOfId = (name: string): boolean =>
    name === `${id}${CONTAINER}` || name.endsWith(`_${toFileNamePart(id)}.jsonl`);
  for (const name of listNames(disk, folder).filter(isOfId)) {
    const sessionPath = join(folder, name);
    const other = readHeader(disk, sessionPath);
    if (other?.id !== id || other.cwd !== cwd || sessionPath === path) continue;
    throw makeBegunFailure(id, sessionPath);
  }
}

/** Returns whether another process is about to name a session with the same id. */
export function isBeingBegun(error: unknown): boolean {
  return error instanceof Failure && error.name === "already_exists" && error.details.sessionPath === undefined;
}

function makeBegunFailure(sessionId: string, sessionPath?: string): Failure {
  const text = {
    what: `Another program began a session with the id ${sessionId} meanwhile.`,
    state: "Nothing was written.",
    advice: "switch_session opens that one.",
  };
  return new Failure("already_exists", text, { sessionId, ...(sessionPath === undefined ? {} : { sessionPath }) });
}

function publishLocked(
  disk: Disk,
  state: WriteState,
  path: string,
  fill: (fd: number) => void,
  name?: (temporary: string) => void,
): Published {
  const folder = dirname(path);
  let lock: Lock | undefined;
  const fillAndLock = (fd: number): void => {
    fill(fd);
    // Before it gets its name, which must never lead to bytes that a loss of power can take away.
    if (state.syncsNewFiles) disk.syncNow(fd);
    const info = disk.infoOf(fd);
    lock = state.lock.claim(info, locateLockInFolder(folder, info.inode));
  };
  try {
    const fd = publishNew(disk, path, fillAndLock, name);
    state.unsynced.add(folder);
    return { fd, lock: lock as Lock };
  } catch (error) {
    lock?.release();
    throw error;
  }
}

/**
 * Writes a new file next to a session file and swaps the names. The original keeps its bytes and mode under the name
 * `backup`. Throws storage_failed, having changed nothing, if another program wrote to it meanwhile.
 */
export function swapFile(
  disk: Disk,
  state: WriteState,
  { path, seen }: SessionFile,
  headerLine: Uint8Array,
  lines: Iterable<Uint8Array>,
  backup: string,
): Published {
  // A program that knows no lock may have written in the meantime: its entries would not be in the new file.
  const requireUnchanged = (isSame: (now: FileInfo, seen: FileInfo) => boolean): void => {
    if (seen && isSame(disk.info(path), seen)) return;
    throw makeOtherProgramFailure("wrote to the session while it was rewritten", "Nothing was changed.");
  };
  const fill = (fd: number): void => {
    disk.copyMode(path, fd);
    writeAll(disk, fd, concat([headerLine, LF]));
    for (const piece of lines) writeAll(disk, fd, piece);
  };
  return publishLocked(disk, state, path, fill, (temporary) => {
    requireUnchanged(isSameStamp);
    keepAs(disk, path, backup);
    try {
      // A second name changes the change time.
      requireUnchanged(isUnchanged);
      disk.rename(temporary, path);
    } catch (error) {
      removeQuietly(disk, backup);
      throw error;
    }
  });
}

/**
 * Sets the lines of entries that a repair changes: placeholders for damaged ones, the parents that opening worked out
 * for entries whose own is missing or was cut off, and those in `repairs`. Returns a function that takes back the last:
 * until they are written, the file has the old lines.
 */
export function setRepairedLines(entries: KnownEntries, reader: EntryReader, repairs: Repairs): () => void {
  const { nodes, damage, overrides, placeholders } = entries;
  const of = (wanted: Damage["kind"]) =>
    new Set(damage.filter(({ kind }) => kind === wanted).map(({ entryId }) => entryId));
  const bridged = of("missing_parent");
  const results = of("parent_is_call");
  for (let position = 0; position < nodes.count; position++) {
    const parent = nodes.parent(position);
    if (results.has(nodes.id(position))) continue;
    if (parent !== MISSING && !bridged.has(nodes.id(position))) continue;
    const parentId = parent < 0 ? null : nodes.id(parent);
    overrides.set(position, replaceMember(reader.read(position), "parentId", toBytes(JSON.stringify(parentId))));
  }
  for (let position = 0; position < nodes.count; position++) reader.read(position);
  for (const [position, line] of placeholders) overrides.set(position, line);
  const before = Array.from(repairs.keys(), (position) => [position, overrides.get(position)] as const);
  for (const [position, complete] of repairs) overrides.set(position, complete(reader.read(position)));
  return () => {
    for (const [position, line] of before)
      if (line) overrides.set(position, line);
      else overrides.delete(position);
  };
}
