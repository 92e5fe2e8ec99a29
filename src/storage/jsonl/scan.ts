/**
 * Scans the lines of a session file into nodes, in one pass over line ends and heads. Other lines are damage, which is
 * reported and skipped; whole entries within damaged lines are found.
 */

import { isUtf8 } from "node:buffer";
import { CURRENT_VERSION, hasDamagedType, patchMembers, replaceMember } from "../../core/format/entry.ts";
import { HEAD_BYTES } from "../../core/format/node-reader.ts";
import { deriveLegacyId, deriveLineId, migrateV1, migrateV2 } from "../../core/format/older-versions.ts";
import { splitDamagedLine } from "../../core/format/salvage.ts";
import {
  areSameBytes,
  concat,
  findMember,
  findValueEnd,
  getMembers,
  isJson,
  parse,
  toBytes,
  tryParse,
} from "../../core/json/json.ts";
import type { Env } from "../../core/ports/env.ts";
import { KNOWN_TYPES, unpackId } from "../../core/tree/nodes.ts";
import { findHeader, getMarkLength, hasEntriesNearby, SEARCHED_BYTES } from "../fs/header.ts";
import { makeNotASessionFailure } from "../log/failures.ts";
import type { KnownEntries } from "../log/known-entries.ts";
import { scanLines } from "../log/lines.ts";
import { type FileHeader, makeHeader, parseHeader } from "./header.ts";
import type { LineRecords } from "./records.ts";
import type { FileEnd, SessionFile } from "./session-file.ts";

/** Number of entries from which the total is estimated. */
const SAMPLED = 512;

/** The parts of a log that a scan fills. */
export interface ScannedParts {
  readonly file: SessionFile;
  readonly entries: KnownEntries;
  readonly records: LineRecords;
  readonly end: FileEnd;
}

export class LineScanner {
  stored: FileHeader | null = null;
  /** True if every line is parsed whole while the file is opened. */
  readonly thorough: boolean;
  /** Offset of the header, where something stands before it. */
  private headerStart = -1;
  /** True if new lines are being read: another program may have glued one to bytes of a dead writer. */
  isGrowing = false;
  /** Parents, packed, of damaged lines that are no entries any more but have a legible head; by the id in that head. */
  readonly lostParents = new Map<string, number>();
  private readonly env: Env;
  private readonly file: SessionFile;
  private readonly entries: KnownEntries;
  private readonly records: LineRecords;
  private readonly end: FileEnd;
  /** Ids by the index of their line among the whole lines; the header is 0. Version 1 names entries by these. */
  private readonly oldLines: (string | undefined)[] = [undefined];

  constructor(scanned: ScannedParts, env: Env, thorough: boolean) {
    this.file = scanned.file;
    this.entries = scanned.entries;
    this.records = scanned.records;
    this.end = scanned.end;
    this.env = env;
    this.thorough = thorough;
  }

  private get version(): number {
    return this.stored?.version ?? CURRENT_VERSION;
  }

  /** True if it is enough to read heads, as it is for lines of the current format. */
  private get quick(): boolean {
    return !this.thorough && !this.isGrowing && this.version >= CURRENT_VERSION;
  }

  /** Adds the lines from an offset on. */
  scan(from: number): void {
    const { file, end } = this;
    const before = end.lines;
    const { size, tail, lines } = scanLines(file.disk, file.fd, from, HEAD_BYTES, {
      line: (number, start, b, at, past) => this.addLine(before + number, start, b, at, past),
      long: (number, start, length, head, last) => this.addLong(before + number, start, length, head, last),
      chunk: (b, filled) => this.entries.heads.readAhead(b, filled),
    });
    this.entries.heads.readAhead();
    end.size = size;
    end.lines += lines;
    if (tail < size) this.addLast(end.lines + 1, tail, size - tail);
  }

  private addLong(number: number, start: number, length: number, head: Uint8Array, last: number): void {
    if (!this.stored && length > SEARCHED_BYTES)
      throw makeNotASessionFailure(this.file.path, "its first line is too long for a header");
    const { heads } = this.entries;
    const isLegible = (): boolean => {
      const ends = concat([head, this.file.read(start + length - HEAD_BYTES, HEAD_BYTES)]);
      return heads.readFast(ends, 0, ends.length) || heads.readEnds(ends, 0, ends.length, true);
    };
    if (!this.stored || start < this.headerStart || !this.quick || last !== 0x7d || !isLegible())
      return this.addLine(number, start, this.file.read(start, length), 0, length);
    // A carriage return before the line feed is not part of the line.
    const [end] = this.file.read(start + length - 1, 1);
    this.add(start, end === 0x0d ? length - 1 : length, 0);
  }

  /** Adds the line `b[at, end)`, which lies at `start` in the file. */
  addLine(number: number, start: number, b: Uint8Array, at: number, end: number): void {
    const { heads } = this.entries;
    let past = end;
    if (past > at && b[past - 1] === 0x0d) past--;
    if (!this.stored) this.addHeader(number, start, b.subarray(at, past));
    else if (start < this.headerStart) this.addBeforeHeader(number, start, b.subarray(at, past));
    else if (
      this.quick &&
      past > at &&
      b[past - 1] === 0x7d &&
      (heads.readFast(b, at, past) || heads.readEnds(b, at, past, true))
    )
      this.add(start, past - at, 0);
    else this.addUnusual(number, start, b.subarray(at, past));
  }

  private addUnusual(number: number, start: number, line: Uint8Array): void {
    if (isBlank(line)) return;
    const { heads } = this.entries;
    const fault = this.addEntry(number, start, line);
    if (fault === null) return;
    const isSalvaged = this.salvage(number, start, line);
    const isLegible =
      this.version >= CURRENT_VERSION &&
      (heads.readFast(line, 0, line.length, false) || heads.readEnds(line, 0, line.length, !isSalvaged));
    if (isSalvaged) {
      if (isLegible && heads.packedId >= 0) this.lostParents.set(unpackId(heads.packedId), heads.packedParent);
    } else if (isLegible) {
      // An entry with a legible head and a damaged body keeps its place in the tree.
      this.add(start, line.length, 0);
    } else if (!this.entries.isNewer || !isSound(line))
      this.entries.report("bad_line", start, line.length, `the line is ${fault}`, false, number);
  }

  /** Adds the entry of a line. Returns the kind of any other line, or null. */
  private addEntry(number: number, start: number, line: Uint8Array): string | null {
    if (!isUtf8(line)) return "not UTF-8";
    if (this.version < CURRENT_VERSION) return this.addOld(number, start, line);
    const { nodes, heads, overrides } = this.entries;
    let madeId: string | undefined;
    const fault = heads.readAny(line, 0, line.length, () => {
      madeId = deriveLegacyId(line, this.env.sha256, (id) => nodes.position(id) >= 0);
      return madeId;
    });
    if (fault !== null) return fault;
    if (nodes.typeCode("session") === heads.type) {
      if (start === this.headerStart) return null;
      this.entries.report("extra_header", start, line.length, "a second header", false, number);
      return null;
    }
    const position = this.add(start, line.length, 1);
    if (madeId !== undefined) {
      this.reportMadeId(position);
      overrides.set(position, withId(line, madeId));
    }
    return null;
  }

  private reportMadeId(position: number): void {
    this.records.reader.report("missing_id", position, "the entry has no id; it got one from its line", true);
  }

  /** Adds every whole entry of a damaged line. Returns whether it found any. */
  private salvage(number: number, start: number, line: Uint8Array): boolean {
    const { entries } = this;
    const before = entries.damage.length;
    const add = (piece: Uint8Array, at: number): boolean =>
      (start + at === this.headerStart || this.isEntry(piece)) && this.addEntry(number, start + at, piece) === null;
    let found = false;
    for (const { start: at, end, isRecord } of splitDamagedLine(line, add)) {
      if (isRecord) found = true;
      else if (at > 0 || end < line.length)
        entries.report("bad_line", start + at, end - at, "bytes that are not an entry", false, number);
    }
    if (found && entries.damage.length === before)
      entries.report("bad_line", start, line.length, "several entries in one line", true, number);
    return found;
  }

  /** Returns whether a piece of a line is an entry and not a part of one, such as a block of a message. */
  private isEntry(piece: Uint8Array): boolean {
    const found = isUtf8(piece) ? getMembers(piece) : null;
    const timestamp = found && findMember(found, "timestamp");
    if (!timestamp || piece[timestamp.start] !== 0x22) return false;
    return this.version === 1 || findMember(found, "id") !== undefined;
  }

  /** Adds the entry whose head was just read, and records where it lies. Returns its position. */
  private add(start: number, length: number, checked: number): number {
    const { nodes, heads } = this.entries;
    const { aliases } = nodes;
    const position = nodes.add(heads);
    if (position === SAMPLED) this.expectAsMany(start + length);
    this.records.addNode(position, start, length, checked);
    if (nodes.aliases > aliases) this.resolveAlias(position);
    return position;
  }

  /** Makes room for as many entries as a file likely has whose first ones end at `end`. */
  private expectAsMany(end: number): void {
    const count = Math.ceil(((this.file.seen?.size ?? 0) / end) * SAMPLED * 1.1);
    this.entries.nodes.expect(count);
    for (const column of [this.records.starts, this.records.lengths, this.entries.checked])
      column.reserve(Math.ceil(count / 1.5));
  }

  /** Handles an entry whose id is taken: a repetition is dropped, a damaged copy is replaced, others get another id. */
  private resolveAlias(position: number): void {
    const { nodes, placeholders, overrides } = this.entries;
    const { starts, lengths, reader } = this.records;
    const id = nodes.id(position);
    const original = id.slice(0, id.lastIndexOf("~"));
    const first = nodes.position(original);
    if (first < 0 || first === position) return;
    const line = reader.record(position);
    const before = reader.record(first);
    const same = areSameBytes(line, before);
    if (!same && !isSound(line)) {
      this.reportCopy(position, original);
      nodes.truncate(position);
      return;
    }
    if (!same && !placeholders.has(first) && !isSound(before) && this.haveSameHead(first, position)) {
      this.reportCopy(first, original);
      starts.set(first, starts.values[position]);
      lengths.set(first, lengths.values[position]);
      nodes.truncate(position);
      return;
    }
    const taken = `the id ${original} is taken; this entry is called ${id}`;
    reader.report("duplicate_id", position, same ? `the entry ${original} is repeated here` : taken, true);
    if (same) nodes.truncate(position);
    else overrides.set(position, patchMembers(line, { id: toBytes(JSON.stringify(id)) }));
  }

  /** Reports the damaged one of two lines with the same id: the whole one is the entry. */
  private reportCopy(position: number, id: string): void {
    const { starts, lengths } = this.records;
    const reason = `a damaged copy of the entry ${id}, which is whole elsewhere`;
    this.entries.report("bad_line", starts.values[position], lengths.values[position], reason, true);
  }

  private haveSameHead(a: number, b: number): boolean {
    const { nodes } = this.entries;
    return (
      nodes.type(a) === nodes.type(b) &&
      nodes.parent(a) === nodes.parent(b) &&
      nodes.role(a) === nodes.role(b) &&
      nodes.isBatch(a) === nodes.isBatch(b) &&
      nodes.isMarker(a) === nodes.isMarker(b)
    );
  }

  private addHeader(number: number, start: number, bytes: Uint8Array): void {
    // Copied: the buffer will be used again, and a slice of a Buffer shares its memory.
    const line = Uint8Array.from(bytes.subarray(start === 0 ? getMarkLength(bytes) : 0));
    if (isBlank(line)) return;
    const { disk, fd, path } = this.file;
    const first = parseHeader(line);
    const late = first ? undefined : findHeader(disk, fd);
    const parsed = first ?? (late ? parseHeader(Uint8Array.from(late.line)) : null);
    if (!parsed && !hasEntriesNearby(disk, fd))
      throw makeNotASessionFailure(path, `line ${number} is not a header with type session and an id`);
    this.stored = parsed ?? makeHeader(this.file, line, this.env.sha256);
    if (late) this.headerStart = late.start;
    const { damage } = this.stored;
    this.entries.isNewer = damage?.kind === "newer_version";
    const { length } = first ? line : bytes;
    if (damage && late) {
      const before = this.file.read(start, late.start - start).reduce((count, c) => count + (c === 0x0a ? 1 : 0), 0);
      this.entries.report(damage.kind, late.start, late.line.length, damage.reason, damage.salvaged, number + before);
    } else if (damage) this.entries.report(damage.kind, start, length, damage.reason, damage.salvaged, number);
    if (late) this.addBeforeHeader(number, start, bytes);
    else if (!first && !isDamagedHeaderLine(line)) this.addUnusual(number, start, bytes);
  }

  /** Adds a line that begins before the header: damage, unless it is an entry of a session or has the header. */
  private addBeforeHeader(number: number, start: number, line: Uint8Array): void {
    if (isBlank(line)) return;
    if (start + line.length > this.headerStart) {
      this.salvage(number, start, line);
      return;
    }
    const type = this.isEntry(line) ? (parse(line) as { type?: unknown }).type : undefined;
    const isKept = KNOWN_TYPES.includes(type as never) && this.addEntry(number, start, line) === null;
    this.entries.report("bad_line", start, line.length, "the line stands before the header", isKept, number);
  }

  private addOld(number: number, start: number, line: Uint8Array): string | null {
    const { nodes, heads, overrides } = this.entries;
    const found = getMembers(line);
    const type = found && findMember(found, "type");
    if (!type) return "not an entry";
    if (parse(line, type.start, type.end) === "session") {
      if (start === this.headerStart) return null;
      this.oldLines.push(undefined);
      this.entries.report("extra_header", start, line.length, "a second header", false, number);
      return null;
    }
    const makeId = (): string => deriveLineId(number, line, this.env.sha256, (taken) => nodes.position(taken) >= 0);
    let migrated: Uint8Array;
    if (this.version === 1) {
      const last = nodes.count - 1;
      const lastId = last < 0 ? null : nodes.id(last);
      const moved = migrateV1(line, { makeId, lastId, idAt: (index) => this.oldLines[index] });
      this.oldLines.push(moved.id);
      migrated = moved.line;
    } else migrated = migrateV2(line);
    let madeId: string | undefined;
    const fault = heads.readAny(migrated, 0, migrated.length, () => {
      madeId = makeId();
      return madeId;
    });
    if (fault !== null) return fault;
    const { count, aliases } = nodes;
    const position = this.add(start, line.length, 1);
    if (nodes.count === count) return null;
    if (madeId !== undefined) this.reportMadeId(position);
    if (madeId !== undefined || nodes.aliases > aliases) migrated = withId(migrated, nodes.id(position));
    if (migrated !== line) overrides.set(position, Uint8Array.from(migrated));
    return null;
  }

  /** Adds a last line without line feed as an entry, if it is whole; records the rest as torn. */
  private addLast(number: number, start: number, length: number): void {
    const line = this.file.read(start, length);
    if (!this.stored || isBlank(line) || isSound(line)) {
      this.end.isUnterminated = true;
      this.addLine(number, start, line, 0, length);
      return;
    }
    // A power cut can leave zeros after an entry that had no line feed yet.
    const end = findValueEnd(line, 0, length);
    const whole = end > 0 && isUtf8(line.subarray(0, end)) && getMembers(line, 0, end) !== null ? end : 0;
    if (whole > 0) this.addLine(number, start, line, 0, whole);
    this.end.isUnterminated = whole > 0;
    this.end.setTorn(start + whole);
    const reason = "the last line was cut off while it was written";
    this.entries.report("torn_tail", start + whole, length - whole, reason, false, number);
  }
}

function isSound(line: Uint8Array): boolean {
  return isUtf8(line) && isJson(line);
}

/** Returns whether the first line is a header whose type was damaged: it is no entry. */
function isDamagedHeaderLine(line: Uint8Array): boolean {
  return hasDamagedType(tryParse(line));
}

function isBlank(line: Uint8Array): boolean {
  return line.every((c) => c === 0x20 || c === 0x09 || c === 0x0d || c === 0x0a);
}

function withId(line: Uint8Array, id: string): Uint8Array {
  return replaceMember(line, "id", toBytes(JSON.stringify(id)));
}
