/** The lines of a session file as records: where they lie, and whether the file still has them there. */

import { isUtf8 } from "node:buffer";
import { HEAD_BYTES, HeadReader } from "../../core/format/node-reader.ts";
import type { Env } from "../../core/ports/env.ts";
import { Column } from "../../core/tree/nodes.ts";
import { readIfThere } from "../fs/files.ts";
import { isSameStamp, isYoung, readDiskClock } from "../fs/stamps.ts";
import { getAttachmentFolder } from "../log/attachments.ts";
import { EntryReader, type EntrySource, type Run } from "../log/entry-reader.ts";
import { makeChangingFailure } from "../log/failures.ts";
import type { KnownEntries } from "../log/known-entries.ts";
import { CHUNK, LF } from "../log/lines.ts";
import type { FileEnd, SessionFile } from "./session-file.ts";

/** Bytes of a file that are read together to look at the heads in them. */
const NEAR = 1 << 18;
/** Bytes at the end of a file that may contain the last append of a dead writer. */
const LAST_APPEND = 1 << 20;

export class LineRecords implements EntrySource {
  readonly starts: Column<Float64Array> = new Column(new Float64Array(16));
  readonly lengths: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly separator = 1;
  /** Reading 32 KiB more takes less time than another call: texts of 10,000 entries took 31 ms with 8 KiB, and take 22. */
  readonly near = 1 << 15;
  readonly trustsKnown = true;
  readonly attachments: string;
  readonly reader: EntryReader;
  private readonly file: SessionFile;
  private readonly entries: KnownEntries;
  private readonly fileEnd: FileEnd;
  /** Reads heads a second time, to compare them with their nodes. */
  private readonly witness: HeadReader;

  constructor(env: Env, file: SessionFile, entries: KnownEntries, fileEnd: FileEnd) {
    this.file = file;
    this.entries = entries;
    this.fileEnd = fileEnd;
    this.attachments = getAttachmentFolder(file.path);
    this.witness = new HeadReader(entries.nodes);
    this.reader = new EntryReader(file.disk, env, entries, this);
  }

  descriptor(): number {
    return this.file.fd;
  }

  since(_file: number, since: number): "same" | "renewed" | "unsure" {
    return this.file.since(since);
  }

  end(): number {
    return this.fileEnd.size;
  }

  lineLength(position: number): number {
    return this.lengths.values[position];
  }

  lineStart(): number {
    return 0;
  }

  /** Records where an entry's line lies, and whether its bytes were checked. */
  addNode(position: number, start: number, length: number, checked: number): void {
    const { starts, lengths } = this;
    const column = this.entries.checked;
    // All have the same length.
    if (position >= column.values.length) for (const one of [starts, lengths, column]) one.reserve(position);
    starts.values[position] = start;
    lengths.values[position] = length;
    column.values[position] = checked;
  }

  isOf(position: number, line: Uint8Array): boolean {
    return this.hasHeadOf(position, line, true);
  }

  noteLost(position: number): void {
    this.reader.report("bad_body", position, "the entry's bytes are not those of an entry of that id", false);
  }

  *copyRun(positions: ArrayLike<number>, run: Run, again?: { bytes?: Buffer }): Iterable<Uint8Array> {
    const { start, length } = run;
    for (let at = 0; at < length; at += CHUNK) {
      const { bytes, isKnown } = this.reader.knownBytes(0, start + at, Math.min(CHUNK, length - at), again?.bytes);
      if (again && bytes.length > (again.bytes?.length ?? 0)) again.bytes = bytes;
      if (!isKnown) this.requireLines(positions, run, start + at, bytes);
      yield bytes;
    }
    yield LF;
  }

  /** Throws storage_failed unless lines, damaged or not, are where they should be, as far as a piece shows it. */
  private requireLines(positions: ArrayLike<number>, { first, past }: Run, start: number, piece: Uint8Array): void {
    for (let i = first; i < past; i++) {
      const at = this.starts.values[positions[i]] - start;
      const length = this.lengths.values[positions[i]];
      if (at + length <= 0 || at >= piece.length) continue;
      const line = piece.subarray(Math.max(0, at), Math.min(piece.length, at + length));
      const isBegun = at >= 0 && at + Math.min(length, HEAD_BYTES) <= piece.length;
      if (line.includes(0x0a) || (isBegun && !this.hasHeadOf(positions[i], line, line.length === length)))
        throw makeChangingFailure("file");
    }
  }

  /**
   * Returns whether one consistent state was read: no program changed the file meanwhile, or no entry that was read is a
   * mixture. Other programs may only have cut the last append of a dead writer.
   */
  isConsistent(): boolean {
    const { seen, disk } = this.file;
    const now = this.file.info();
    if (!seen || (isSameStamp(now, seen) && !isYoung(now, readDiskClock(disk)))) return true;
    const ends = (position: number): number => this.starts.values[position] + this.lengths.values[position];
    let first = this.entries.nodes.count;
    while (first > 0 && ends(first - 1) > seen.size - LAST_APPEND) first--;
    return this.holdsNodes(first, seen.size - LAST_APPEND);
  }

  /**
   * Returns whether the file has the heads of entries where they were read, from position `first` on, and no damaged line
   * from byte `from` on. A read during another program's write may be a mixture: that program cut off a dead writer's bytes,
   * and wrote as many of its own.
   */
  holdsNodes(first: number, from: number): boolean {
    const { damage, nodes, overrides } = this.entries;
    const { disk, fd } = this.file;
    // Halves of two lines are a damaged line, unless they make a whole one by chance.
    if (damage.some(({ kind, byteOffset }) => kind === "bad_line" && byteOffset >= from)) return false;
    const ends = (position: number): number => this.starts.values[position] + this.lengths.values[position];
    let end = 0;
    for (let position = first; position < nodes.count; position++)
      if (!overrides.has(position)) end = Math.max(end, ends(position));
    // Read together: a read for each takes 5 ms for the 1,500 that a new copy ends with.
    let near: Buffer | null = Buffer.alloc(0);
    let nearStart = 0;
    for (let position = first; position < nodes.count; position++) {
      if (overrides.has(position)) continue;
      const start = this.starts.values[position];
      const length = Math.min(this.lengths.values[position], HEAD_BYTES);
      if (start < nearStart || start + length > nearStart + near.length) {
        nearStart = start;
        near = readIfThere(disk, fd, start, Math.min(end - start, NEAR));
        if (!near) return false;
      }
      const head = near.subarray(start - nearStart, start - nearStart + length);
      if (!this.hasHeadOf(position, head, length === this.lengths.values[position])) return false;
    }
    return true;
  }

  /** Returns whether a line has the head of an entry, or is not whole and its beginning does not show the head. */
  private hasHeadOf(position: number, line: Uint8Array, isWhole: boolean): boolean {
    const { witness } = this;
    const { nodes, placeholders } = this.entries;
    const isRead =
      witness.readFast(line, 0, line.length, isWhole) || (isWhole && witness.readEnds(line, 0, line.length, true));
    if (isRead && nodes.isHeadOf(position, witness)) return true;
    if (!isWhole)
      return (
        !isRead ||
        this.hasHeadOf(position, this.file.read(this.starts.values[position], this.lengths.values[position]), true)
      );
    // A member of the head may stand twice. If only the fast paths could read the head, the line cannot be parsed.
    return isUtf8(line) && witness.readAny(line, 0, line.length, () => "") === null
      ? nodes.isHeadOf(position, witness)
      : placeholders.has(position);
  }
}
