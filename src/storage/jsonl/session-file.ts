/** The open file of a session: its descriptor, its stamp, its end, and bytes that identify its known part. */

import { isMissing, isNoFile, toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { areSameBytes } from "../../core/json/json.ts";
import { closeQuietly, type Disk, type FileInfo } from "../fs/disk.ts";
import { hasNoName, readAt, readIfThere } from "../fs/files.ts";
import { isSameFile, isUnchanged, Watched } from "../fs/stamps.ts";
import { makeChangedFailure, makeNotASessionFailure } from "../log/failures.ts";

/** Bytes at each end of the known part that are compared to recognise it. */
const EDGE = 4096;
/** A byte that no session file begins with, in the place of bytes that are not known. */
const UNKNOWN: Uint8Array = new Uint8Array(1);

export class SessionFile {
  readonly path: string;
  readonly disk: Disk;
  fd = -1;
  isWritable = false;
  private readonly watched: Watched;
  /** The first and the last bytes of the known part, as they were read or written: of `last`, the first `lastLength`. */
  private first = UNKNOWN;
  private last = UNKNOWN;
  private lastLength = 0;
  private lastStart = 0;

  constructor(disk: Disk, path: string) {
    this.disk = disk;
    this.path = path;
    this.watched = new Watched(disk);
  }

  get isOpen(): boolean {
    return this.fd >= 0;
  }

  /** True if the open file has no name any more. */
  get isDeleted(): boolean {
    return hasNoName(this.disk, this.fd);
  }

  /** The stamp of the file when it was read. Any other stamp means that another program changed the file. */
  get seen(): FileInfo | undefined {
    return this.watched.seen;
  }

  set seen(info: FileInfo | undefined) {
    this.watched.note(info);
  }

  since(since: number): "same" | "renewed" | "unsure" {
    return this.watched.since(this.fd, since);
  }

  /** Throws session_not_found, not_a_session, storage_failed. */
  open(): void {
    try {
      this.fd = this.disk.openRead(this.path);
    } catch (error) {
      if (isMissing(error))
        throw new Failure("session_not_found", `There is no file at ${this.path}. list_sessions shows the sessions.`, {
          sessionPath: this.path,
        });
      if (isNoFile(error)) throw makeNotASessionFailure(this.path, "it is not a regular file");
      throw toStorageFailure(error, "opening the session");
    }
  }

  /** Opens the file for writing too. Throws storage_failed if its name belongs to another file now. */
  openToWrite(): void {
    if (this.isWritable) return;
    const fd = this.disk.openAppend(this.path);
    let isSame = false;
    try {
      isSame = isSameFile(this.disk.infoOf(fd), this.info());
    } finally {
      closeQuietly(this.disk, isSame ? this.fd : fd);
    }
    if (!isSame) throw makeChangedFailure("file");
    this.fd = fd;
    this.isWritable = true;
  }

  /** Makes a file that was created by us the open one. */
  adopt(fd: number): void {
    this.close();
    this.fd = fd;
    this.isWritable = true;
  }

  close(): void {
    if (this.isOpen) closeQuietly(this.disk, this.fd);
    this.fd = -1;
    this.isWritable = false;
  }

  info(): FileInfo {
    return this.disk.infoOf(this.fd);
  }

  /** Returns `length` bytes from an offset on. Throws an errno error if the file is shorter. */
  read(start: number, length: number): Buffer {
    return readAt(this.disk, this.fd, start, length);
  }

  /** Records the stamp that our own write gave to the file, unless another program wrote too: its size shows that. */
  noteOwn(size: number): void {
    this.seen = undefined;
    try {
      const now = this.info();
      if (now.size === size) this.seen = now;
    } catch {
      // The next check compares.
    }
  }

  /** Records the stamp after only the names, and so the change time, changed. Returns whether that was all. */
  noteNames(): boolean {
    try {
      const now = this.info();
      if (!this.seen || !isUnchanged(now, this.seen)) return false;
      this.seen = now;
      return true;
    } catch {
      // The next check compares.
      return false;
    }
  }

  /** Records the bytes that identify the part up to `end`. If they cannot be read, it never matches. */
  readEdges(end: number): void {
    const lastStart = end > EDGE ? end - EDGE : end;
    try {
      this.first = this.read(0, Math.min(EDGE, end));
      this.last = this.read(lastStart, end - lastStart);
      this.lastLength = this.last.length;
      this.lastStart = lastStart;
    } catch {
      // The next write of ours is known, and says nothing about the bytes before it.
      this.first = UNKNOWN;
    }
  }

  /** Records a write of ours: the file now has this stamp, and its known part ends at `end` with these bytes. */
  wrote(info: FileInfo, end: number, bytes: Uint8Array): void {
    this.watched.wrote(info);
    // Copied, because the bytes are written over, into the same memory again: new memory takes 2 of the 8 us of an append.
    if (this.last.length < EDGE) this.last = new Uint8Array(EDGE);
    const length = Math.min(EDGE, bytes.length);
    this.last.set(bytes.length === length ? bytes : bytes.subarray(bytes.length - length));
    this.lastLength = length;
    this.lastStart = end - length;
  }

  /** Returns whether the file still has the known part, as far as the bytes at its ends show. */
  isThere(): boolean {
    return this.holdsAt(0, this.first) && this.holdsAt(this.lastStart, this.last.subarray(0, this.lastLength));
  }

  private holdsAt(start: number, bytes: Uint8Array): boolean {
    const found = readIfThere(this.disk, this.fd, start, bytes.length);
    return found !== null && areSameBytes(found, bytes);
  }
}

/**
 * The end of a session file as one value. `[0, known)` holds whole lines; with `isUnterminated`, the last of them has
 * no line feed. What a torn write left, if anything, lies in `[torn, size)`. `[0, durable.size)` is on the medium.
 */
export class FileEnd {
  /** Bytes of the file that were read or written. */
  size = 0;
  lines = 0;
  isUnterminated = false;
  /** Offset of a torn write, or -1. */
  torn = -1;
  /** True if only a server of ours can have left it. */
  isTornOurs = false;
  durable = { size: 0, isUnterminated: false };
  /** True if another program appended after entries of ours that are not durable yet. */
  isMixed = false;

  /** End of the part that need not be judged again. */
  get known(): number {
    return this.torn >= 0 ? this.torn : this.size;
  }

  /** Records where the whole lines end. */
  setWhole(size: number, lines: number): void {
    this.size = size;
    this.lines = lines;
    this.isUnterminated = false;
  }

  /** Records that the bytes from this offset on were torn off, or have to be read again. */
  setTorn(offset: number, isOurs = false): void {
    this.torn = offset;
    this.isTornOurs = isOurs;
  }

  /** Records that everything is durable. */
  noteDurable(): void {
    const { size, isUnterminated } = this;
    this.durable = { size, isUnterminated };
  }
}
