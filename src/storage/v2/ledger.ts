/**
 * The migration ledger of a container (session-store-v2 reference, section 3.6): an append-only file with one event on
 * a line. A torn write at its end was never acknowledged, and the next event replaces it. Any other line that is not an
 * event makes reading fail.
 */

import { dirname } from "node:path";
import { isMissing, isNoFile } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { bytesOf } from "../../core/json/json.ts";
import { type Disk, isAbsent, readWhole, writeAll } from "../fs/disk.ts";
import { withFile } from "../fs/files.ts";
import { encodeEvent, type MigrationEvent, parseEvent } from "./documents.ts";
import { Malformed } from "./frame.ts";

interface Ledger {
  readonly events: readonly MigrationEvent[];
  /** Bytes that whole events take. */
  readonly size: number;
  /** Bytes after them that a torn write left. */
  readonly torn: number;
}

/** Reads all events, oldest first; none when there is no file. Throws corrupt, naming the line. */
export function readLedger(disk: Disk, file: string): Ledger {
  let bytes: Uint8Array;
  try {
    bytes = readWhole(disk, file);
  } catch (error) {
    if (isMissing(error) || isNoFile(error)) return { events: [], size: 0, torn: 0 };
    throw error;
  }
  const events: MigrationEvent[] = [];
  let start = 0;
  try {
    for (let end = bytes.indexOf(0x0a); end >= 0; end = bytes.indexOf(0x0a, start)) {
      if (end > start) events.push(parseEvent(bytes.subarray(start, end)));
      start = end + 1;
    }
  } catch (error) {
    if (!(error instanceof Malformed)) throw error;
    const line = events.length + 1;
    throw new Failure(
      "corrupt",
      `The migration ledger is damaged in line ${line}: ${error.message}. Move ${file} away to go on without it.`,
      { line },
      { cause: error },
    );
  }
  return { events, size: start, torn: bytes.length - start };
}

/** Appends an event durably, unless the ledger is damaged, which is left as it is. Throws corrupt, and errno errors. */
export async function appendEvent(disk: Disk, file: string, event: MigrationEvent): Promise<void> {
  if (appendEventNow(disk, file, event)) await disk.syncFolder(dirname(file));
}

/** Does the same synchronously. Returns whether the file is new; then the caller must fsync its folder. */
export function appendEventNow(disk: Disk, file: string, event: MigrationEvent): boolean {
  const { size, torn } = readLedger(disk, file);
  const line = bytesOf(encodeEvent(event));
  const isNew = isAbsent(disk, file);
  if (isNew) disk.makeFolder(dirname(file));
  withFile(disk, isNew ? disk.create(file) : disk.openAppend(file), (fd) => {
    if (torn > 0) disk.truncate(fd, size);
    writeAll(disk, fd, line);
    disk.syncNow(fd);
  });
  return isNew;
}
