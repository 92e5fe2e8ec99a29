/** Lines that were derived from another agent's file: in memory while they are few, then in a file without a name. */

import { dirname } from "node:path";
import { toStorageFailure } from "../../../core/errno.ts";
import { Column } from "../../../core/tree/nodes.ts";
import { closeQuietly, type Disk, makeTemporaryName, removeQuietly, writeAll } from "../../../storage/fs/disk.ts";
import { readAt } from "../../../storage/fs/files.ts";
import { sweepTemporaryFiles } from "../../../storage/fs/staging.ts";
import type { CachedLines } from "./derivation-cache.ts";

/** Bytes up to which lines stay in memory, and bytes that are collected before a write to the file. */
const LINE_FEED = 0x0a;
const IN_MEMORY = 8 << 20;
const GATHERED = 1 << 20;
/** Bytes of lines that are read together. */
const READ_TOGETHER = 1 << 20;

export class DerivedLines {
  private readonly disk: Disk;
  private readonly folder: string;
  private readonly now: () => number;
  private readonly starts = new Column(new Float64Array(64));
  count = 0;
  size = 0;
  /** True for a cache file (`derivation-cache.ts`), which never grows. */
  private isKept = false;
  /** Lines that are not in the file, without their line feeds; they begin at `held` there. */
  private pieces: Uint8Array[] = [];
  private held = 0;
  private fd: number | undefined;

  /** `folder`: the folder of the file, which is made on demand. */
  constructor(disk: Disk, folder: string, now: () => number) {
    this.disk = disk;
    this.folder = folder;
    this.now = now;
  }

  /** Begins with so many lines that are in an open file. */
  adopt({ fd, starts }: CachedLines, count: number): void {
    this.fd = fd;
    this.isKept = true;
    this.count = count;
    this.starts.values = starts as Float64Array<ArrayBuffer>;
    this.size = starts[this.count];
    this.held = this.size;
  }

  /** Returns the start of each line, and the end of the last one. */
  get places(): Float64Array {
    return this.starts.values.slice(0, this.count + 1);
  }

  add(line: Uint8Array): void {
    this.starts.set(this.count, this.size);
    this.count++;
    this.pieces.push(line);
    this.size += line.length + 1;
    this.starts.set(this.count, this.size);
    if (this.size > IN_MEMORY && this.size - this.held >= GATHERED) this.write();
  }

  length(position: number): number {
    const { values } = this.starts;
    return values[position + 1] - values[position] - 1;
  }

  /** Returns a line without its line feed. */
  read(position: number): Uint8Array {
    const start = this.starts.values[position];
    if (this.fd === undefined) return this.pieces[position];
    if (start >= this.held) this.write();
    const { fd } = this;
    return this.guarded(() => readAt(this.disk, fd as number, start, this.length(position)));
  }

  /** Yields lines with their line feeds, adjacent ones together. */
  *copy(positions: ArrayLike<number>): Generator<Uint8Array> {
    for (let i = 0; i < positions.length; ) {
      const from = i;
      let bytes = 0;
      do bytes += this.length(positions[i++]) + 1;
      while (i < positions.length && positions[i] === positions[i - 1] + 1 && bytes < READ_TOGETHER);
      yield* this.stretch(positions[from], i - from, bytes);
    }
  }

  private *stretch(first: number, count: number, bytes: number): Generator<Uint8Array> {
    if (this.fd === undefined) {
      yield withLineFeeds(this.pieces.slice(first, first + count), bytes);
      return;
    }
    const start = this.starts.values[first];
    if (start + bytes > this.held) this.write();
    yield this.guarded(() => readAt(this.disk, this.fd as number, start, bytes));
  }

  close(): void {
    if (this.fd !== undefined) closeQuietly(this.disk, this.fd);
    this.fd = undefined;
    this.pieces = [];
  }

  private write(): void {
    this.guarded(() => {
      if (this.isKept) this.leaveKept();
      this.fd ??= this.make();
      for (const bytes of together(this.pieces)) writeAll(this.disk, this.fd, bytes);
    });
    this.pieces = [];
    this.held = this.size;
  }

  /** Continues in a file of its own. */
  private leaveKept(): void {
    const { disk, held } = this;
    const kept = this.fd as number;
    const fd = this.make();
    for (let at = 0; at < held; at += GATHERED)
      writeAll(disk, fd, readAt(disk, kept, at, Math.min(GATHERED, held - at)));
    closeQuietly(disk, kept);
    this.fd = fd;
    this.isKept = false;
  }

  private make(): number {
    const { disk, folder } = this;
    disk.makeFolder(folder);
    const temporary = makeTemporaryName(`${folder}/derived`);
    // A process that is killed between the two steps below leaves an empty file.
    sweepTemporaryFiles(disk, dirname(temporary), this.now());
    const fd = disk.create(temporary);
    removeQuietly(disk, temporary);
    return fd;
  }

  private guarded<T>(run: () => T): T {
    try {
      return run();
    } catch (error) {
      throw toStorageFailure(error, "keeping the lines derived from another agent's file");
    }
  }
}

/** Yields lines, each with its line feed. Nearly all have them in the same piece of memory (`EntryLines`). */
function* together(lines: readonly Uint8Array[]): Generator<Uint8Array> {
  for (let i = 0; i < lines.length; ) {
    const { buffer, byteOffset } = lines[i];
    const bytes = new Uint8Array(buffer);
    let end = byteOffset;
    while (i < lines.length && lines[i].buffer === buffer && lines[i].byteOffset === end) {
      const past = end + lines[i].length;
      if (bytes[past] !== LINE_FEED) break;
      end = past + 1;
      i++;
    }
    if (end > byteOffset) yield bytes.subarray(byteOffset, end);
    else {
      yield lines[i++];
      yield Uint8Array.of(LINE_FEED);
    }
  }
}

/** Returns lines one after the other, each with its line feed, in so many bytes. */
function withLineFeeds(lines: readonly Uint8Array[], bytes: number): Uint8Array {
  const all = Buffer.allocUnsafe(bytes);
  let at = 0;
  for (const line of lines) {
    all.set(line, at);
    at += line.length;
    all[at++] = LINE_FEED;
  }
  return all;
}
