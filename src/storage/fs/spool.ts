/**
 * A file without a name in which replies wait that are too large for memory. A reply is written completely before its
 * first byte leaves, so that it needs nothing of the session afterwards, and a disk that fails meanwhile is an ordinary
 * error of one request. Later only reading this file can fail; then the stream ends, because half of a reply is out.
 */

import { dirname } from "node:path";
import { isErrno, storageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Spool, Spooled } from "../../core/ports/spool.ts";
import { closeQuietly, type Disk, readAll, removeQuietly, temporaryName, writeAll } from "./disk.ts";
import { sweepStrays } from "./temporary-files.ts";

/** Bytes read from the file at a time, and bytes gathered before a write. */
const BLOCK = 1 << 18;

/** Bytes of one reply in the file. */
class SpooledInFile implements Spooled {
  readonly bytes: number;
  private readonly file: SpoolFile;
  private readonly start: number;
  private isReleased = false;

  constructor(file: SpoolFile, start: number, bytes: number) {
    this.file = file;
    this.start = start;
    this.bytes = bytes;
  }

  *blocks(): Generator<Uint8Array> {
    try {
      for (let at = 0; at < this.bytes; at += BLOCK) {
        const block = Buffer.allocUnsafe(Math.min(BLOCK, this.bytes - at));
        readAll(this.file.disk, this.file.fd, block, this.start + at);
        yield block;
      }
    } finally {
      this.release();
    }
  }

  release(): void {
    if (this.isReleased) return;
    this.isReleased = true;
    this.file.letGo();
  }
}

/** A spool file. It is closed, which removes it, when no reply in it is waiting. */
class SpoolFile {
  readonly disk: Disk;
  readonly fd: number;
  size = 0;
  /** Whether a write failed and its remains could not be cut off. */
  isBroken = false;
  private waiting = 0;
  private readonly closed: () => void;

  constructor(disk: Disk, fd: number, closed: () => void) {
    this.disk = disk;
    this.fd = fd;
    this.closed = closed;
  }

  hold(): void {
    this.waiting++;
  }

  letGo(): void {
    if (--this.waiting > 0) return;
    closeQuietly(this.disk, this.fd);
    this.closed();
  }
}

export class FileSpool implements Spool {
  private readonly disk: Disk;
  private readonly folders: readonly string[];
  private readonly now: () => number;
  private file: SpoolFile | undefined;

  /** Uses the first of the `folders` in which a file can be created. */
  constructor(disk: Disk, folders: readonly string[], now: () => number) {
    this.disk = disk;
    this.folders = folders;
    this.now = now;
  }

  take(pieces: Iterable<string | Uint8Array>): Spooled {
    const file = this.open();
    file.hold();
    const start = file.size;
    const { disk, fd } = file;
    const write = (bytes: Uint8Array): void => {
      try {
        writeAll(disk, fd, bytes);
      } catch (error) {
        throw refusal(error);
      }
      file.size += bytes.length;
    };
    try {
      let gathered: Buffer | undefined;
      let filled = 0;
      for (const piece of pieces) {
        const bytes = typeof piece === "string" ? Buffer.from(piece) : piece;
        if (filled + bytes.length > BLOCK && gathered) {
          write(gathered.subarray(0, filled));
          filled = 0;
        }
        if (bytes.length >= BLOCK) write(bytes);
        else {
          gathered ??= Buffer.allocUnsafe(BLOCK);
          gathered.set(bytes, filled);
          filled += bytes.length;
        }
      }
      if (gathered && filled > 0) write(gathered.subarray(0, filled));
      return new SpooledInFile(file, start, file.size - start);
    } catch (error) {
      this.cut(file, start);
      file.letGo();
      throw error;
    }
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
    sweepStrays(disk, dirname(path), this.now());
    const temporary = temporaryName(path);
    const fd = disk.create(temporary);
    removeQuietly(disk, temporary);
    const file: SpoolFile = new SpoolFile(disk, fd, () => {
      if (this.file === file) this.file = undefined;
    });
    this.file = file;
    return file;
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
  return storageFailure(error, "keeping a reply that is too large for memory");
}
