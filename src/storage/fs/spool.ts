/**
 * A file without a name for replies that are too large for memory. A reply is written completely before its first byte
 * leaves, so that it needs nothing of the session afterwards, and a disk that fails during the write is an ordinary
 * error of one request. Later only reading this file can fail; then the stream ends, because half of a reply is out.
 */

import { dirname } from "node:path";
import { isErrno, toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Spool, Spooled } from "../../core/ports/spool.ts";
import { joinBlocks } from "./chunked-io.ts";
import { closeQuietly, type Disk, makeTemporaryName, removeQuietly, writeAll } from "./disk.ts";
import { readAt } from "./files.ts";
import { sweepTemporaryFiles } from "./staging.ts";

/** Bytes read from the file at a time, and bytes gathered before a write. */
const BLOCK = 1 << 18;

/** A file with replies. It is closed, which removes it, when no reply in it is waiting. */
interface SpoolFile {
  readonly fd: number;
  size: number;
  /** Number of waiting replies in it. */
  waiting: number;
  /** True if a write failed and its remains could not be cut off. */
  isBroken: boolean;
}

export class FileSpool implements Spool {
  private readonly disk: Disk;
  private readonly folders: readonly string[];
  private readonly now: () => number;
  private file: SpoolFile | undefined;

  /** Uses the first of the `folders` that permits creating a file. */
  constructor(disk: Disk, folders: readonly string[], now: () => number) {
    this.disk = disk;
    this.folders = folders;
    this.now = now;
  }

  store(pieces: Iterable<string | Uint8Array>): Spooled {
    const file = this.open();
    file.waiting++;
    const start = file.size;
    try {
      this.fill(file, pieces);
      return this.replyIn(file, start);
    } catch (error) {
      this.cut(file, start);
      this.letGo(file);
      throw error;
    }
  }

  private fill(file: SpoolFile, pieces: Iterable<string | Uint8Array>): void {
    const write = (bytes: Uint8Array): void => {
      try {
        writeAll(this.disk, file.fd, bytes);
      } catch (error) {
        throw refusal(error);
      }
      file.size += bytes.length;
    };
    for (const block of joinBlocks(pieces, BLOCK)) write(block);
  }

  /** Returns the reply that takes the bytes of a file from `start` on. */
  private replyIn(file: SpoolFile, start: number): Spooled {
    const { disk } = this;
    const bytes = file.size - start;
    let isReleased = false;
    const release = (): void => {
      if (!isReleased) this.letGo(file);
      isReleased = true;
    };
    return {
      bytes,
      release,
      *blocks() {
        try {
          for (let at = 0; at < bytes; at += BLOCK)
            yield readAt(disk, file.fd, start + at, Math.min(BLOCK, bytes - at));
        } finally {
          release();
        }
      },
    };
  }

  private letGo(file: SpoolFile): void {
    if (--file.waiting > 0) return;
    closeQuietly(this.disk, file.fd);
    if (this.file === file) this.file = undefined;
  }

  /** Cuts off the remains of a failed reply. If that fails, the next reply goes to another file. */
  private cut(file: SpoolFile, start: number): void {
    try {
      this.disk.truncate(file.fd, start);
      file.size = start;
    } catch {
      file.isBroken = true;
    }
  }

  private open(): SpoolFile {
    if (this.file && !this.file.isBroken) return this.file;
    let refused: unknown;
    for (const folder of this.folders)
      try {
        return this.make(`${folder}/reply`);
      } catch (error) {
        refused = error;
      }
    throw refusal(refused);
  }

  private make(path: string): SpoolFile {
    const { disk } = this;
    disk.makeFolder(dirname(path));
    // A process that is killed between the two steps below leaves an empty file.
    sweepTemporaryFiles(disk, dirname(path), this.now());
    const temporary = makeTemporaryName(path);
    const fd = disk.create(temporary);
    removeQuietly(disk, temporary);
    this.file = { fd, size: 0, waiting: 0, isBroken: false };
    return this.file;
  }
}

/** Returns the failure of a reply that could not be stored. Throws errors that are not the disk's. */
function refusal(error: unknown): Failure {
  const { code } = error as { code?: unknown };
  if (isErrno(error) && (code === "ENOSPC" || code === "EDQUOT"))
    return new Failure(
      "storage_full",
      "The reply is too large for memory, and there is no room on the disk to keep it in while you read it. Request " +
        "less at a time with limit and cursor, or make room.",
      { errno: code },
      { cause: error },
    );
  return toStorageFailure(error, "keeping a reply that is too large for memory");
}
