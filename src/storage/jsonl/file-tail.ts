/**
 * Cuts off bytes that must not stay at the end of a session file: torn writes of dead writers, failed writes of our own.
 * Writes that are not durable yet are cut off only if checksums prove that they are ours.
 */

import { crc32 } from "node:zlib";
import { areSameBytes } from "../../core/json/json.ts";
import { writeAll } from "../fs/disk.ts";
import { quarantine } from "../fs/quarantine.ts";
import { isSameStamp } from "../fs/stamps.ts";
import { LF } from "../log/lines.ts";
import type { FileLogOptions } from "../log/write-state.ts";
import type { OtherWriters } from "./other-writers.ts";
import type { ScannedParts } from "./scan.ts";

/** A write that is not durable yet, and the number of lines that it holds. */
interface PendingWrite {
  readonly start: number;
  readonly length: number;
  readonly lines: number;
  readonly crc: number;
}

export class FileTail {
  private readonly parts: ScannedParts;
  private readonly others: OtherWriters;
  private readonly options: Pick<FileLogOptions, "quarantine" | "durability">;
  private pending: PendingWrite[] = [];

  constructor(parts: ScannedParts, others: OtherWriters, options: FileTail["options"]) {
    this.parts = parts;
    this.others = others;
    this.options = options;
  }

  notePending(start: number, bytes: Uint8Array, lines: number): void {
    this.pending.push({ start, length: bytes.length, lines, crc: crc32(bytes) });
  }

  /** Forgets the pending writes that begin before an offset, by default all. They are in the order of the file. */
  forgetPending(before = Number.POSITIVE_INFINITY): void {
    const { pending } = this;
    let count = 0;
    while (count < pending.length && pending[count].start < before) count++;
    pending.splice(0, count);
  }

  /** True if the pending writes are there as we wrote them, and another program wrote after them. */
  get isFollowed(): boolean {
    const { file, end } = this.parts;
    try {
      return file.info().size > end.size && this.isThere(this.pending);
    } catch {
      return false;
    }
  }

  private isThere(pending: readonly PendingWrite[]): boolean {
    return pending.every(({ start, length, crc }) => crc32(this.parts.file.read(start, length)) === crc);
  }

  /** Forgets the pending writes and their lines. Returns whether the file has them as we wrote them, up to its end. */
  abandonPending(): boolean {
    const { file, end } = this.parts;
    const { pending } = this;
    this.pending = [];
    for (const { lines } of pending) end.lines -= lines;
    try {
      if (file.info().size !== end.size) return false;
      return this.isThere(pending);
    } catch {
      return false;
    }
  }

  /**
   * Moves a torn write to quarantine, under a name with the session's id, if its writer is dead: a server of ours that died
   * with the lock, or a program that wrote nothing for two seconds. Otherwise it is a line of the file from here on.
   * Returns whether the next write must begin with a line feed. The lock is held.
   */
  seal(sessionId: string): boolean {
    const { file, entries, records, end } = this.parts;
    const { torn: start } = end;
    if (start < 0) return end.isUnterminated;
    if (!this.others.isWriterGone) return this.close();
    const bytes = file.read(start, end.size - start);
    const { options } = this;
    const name = `${sessionId}-${start}`;
    const keptAt = quarantine(file.disk, options.quarantine, name, bytes, options.durability === "sync");
    // While the stamp is the same, these are the bytes that were judged. Otherwise their writer is still at work.
    if (!file.seen || !isSameStamp(file.info(), file.seen)) return this.close();
    file.disk.truncate(file.fd, start);
    records.reader.closeWindow();
    end.size = start;
    file.noteOwn(start);
    end.durable = { size: Math.min(end.durable.size, start), isUnterminated: end.isUnterminated };
    end.torn = -1;
    const { damage } = entries;
    const index = damage.findIndex(
      ({ kind, byteOffset }) => byteOffset === start && (kind === "torn_tail" || kind === "incomplete_batch"),
    );
    if (index >= 0) damage[index] = { ...damage[index], keptAt };
    return end.isUnterminated;
  }

  /** Ends the torn write with a line feed, and reads the line that it is then. Returns whether its line feed is missing. */
  private close(): boolean {
    const { file, entries, records, end } = this.parts;
    const { count } = entries.nodes;
    // The place after entries that are held in memory is theirs.
    if (count > 0 && records.starts.values[count - 1] < 0) {
      end.torn = -1;
      return true;
    }
    writeAll(file.disk, file.fd, LF);
    file.seen = undefined;
    records.reader.doubt();
    this.others.readTail();
    if (end.torn < 0) return end.isUnterminated;
    end.torn = -1;
    return true;
  }

  /** Cuts back to `size` after a failed write of `attempted`, if the rest is ours; else leaves it to be judged. */
  cutBack(size: number, attempted: Uint8Array): void {
    const { file } = this.parts;
    try {
      const length = file.info().size - size;
      const isPart = length >= 0 && length <= attempted.length;
      if (!isPart || !areSameBytes(file.read(size, length), attempted.subarray(0, length)))
        throw new Error("another program wrote there too");
      if (length > 0) file.disk.truncate(file.fd, size);
      file.seen = file.info();
    } catch {
      this.abandonFrom(size);
    }
  }

  /** Leaves everything from this offset on to the next check to judge. */
  abandonFrom(offset: number): void {
    const { file, end } = this.parts;
    end.setTorn(offset);
    file.seen = undefined;
    file.readEdges(end.known);
  }
}
