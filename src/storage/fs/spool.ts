/**
 * Where replies wait that are too large for memory: a file without a name. They are made once, whole, before their first
 * byte leaves, so that nothing of a session is needed for them any more, and a disk that fails meanwhile is an ordinary
 * error of one request. Only the file itself can fail them later; then the stream ends, for half of a reply is out.
 */

import { dirname } from "node:path";
import { isErrno, storageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Spool, Spooled } from "../../core/ports/spool.ts";
import { closeQuietly, type Disk, readAll, removeQuietly, temporaryName, writeAll } from "./disk.ts";
import { sweepStrays } from "./temporary-files.ts";

/** Bytes that are read of it at a time, and put together before they are written. */
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

/** One such file, which is closed, and so gone, when nothing in it is waited for. */
class SpoolFile {
  readonly disk: Disk;
  readonly fd: number;
  size = 0;
  /** A write failed, and what it left could not be cut off. */
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

  /** The first of the `folders` in which a file can be made is taken. */
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

  /** Cuts off what a reply that failed left; where that cannot be done, the next one goes to another file. */
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

/** The failure that a reply ends in for which there is no room. Throws what is no doing of the disk. */
function refusal(error: unknown): Failure {
  const { code } = error as { code?: unknown };
  if (isErrno(error) && (code === "ENOSPC" || code === "EDQUOT"))
    return new Failure(
      "storage_full",
      "The reply is too large for memory, and there is no room on the disk to keep it in while you read it. Ask for " +
        "less at a time with limit and cursor, or make room.",
      { errno: code },
      { cause: error },
    );
  return storageFailure(error, "keeping a reply that is too large for memory");
}
