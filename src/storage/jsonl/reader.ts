/**
 * Reads a JSONL session file: the nodes of its lines, found in one pass over line ends and heads; its damage, which is
 * read past and reported; the bytes of its entries, by offset. Never writes to the file.
 */

import { isUtf8 } from "node:buffer";
import { join } from "node:path";
import { storageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Damage } from "../../core/format/damage.ts";
import {
  type Batch,
  CURRENT_VERSION,
  headerIn,
  headerOf,
  patchMembers,
  type SessionHeader,
} from "../../core/format/entry.ts";
import { HEAD_BYTES, HeadReader } from "../../core/format/head.ts";
import { idOfLine, legacyIdOf, migrateHeader, migrateV1, migrateV2 } from "../../core/format/older-versions.ts";
import { firstLook, LOOKED_AT } from "../../core/json/fast-path.ts";
import { bytesOf, concat, isJson, memberOf, members, parse, sameBytes, valueEnd } from "../../core/json/json.ts";
import { BodyReader } from "../../core/json/validate.ts";
import type { Env } from "../../core/ports/env.ts";
import { Column, KNOWN_TYPES, Nodes, unpackId } from "../../core/tree/nodes.ts";
import { type Disk, type FileInfo, isCutOff, readAll, readWhole } from "../fs/disk.ts";
import { clockOf, isSameStamp, isYoung, Watched } from "../fs/stamps.ts";
import { CHUNK, scanLines } from "../log/lines.ts";
import type { ScannedFile, SideIndexes } from "./index-cache.ts";
import type { WrittenLines } from "./written-lines.ts";

/** Everything a reader needs besides the path. */
export interface JsonlReaderOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly readOnly?: boolean;
  /** Working directory of a session whose own is lost. */
  readonly cwd: string;
  /** Index snapshots of large files. */
  readonly sideIndexes?: SideIndexes;
}

export const LF = bytesOf("\n");
/** Length of the longest line whose body is checked at opening, in bytes. */
const CHECKED_TAIL_LINE = 1 << 20;
/** Lines at the end of a file whose bodies are checked at opening (reliability cases, guarantee 6). */
const CHECKED_TAIL = 64;
/** Number of entries from which the number of all is estimated. */
const SAMPLED = 512;
/** Most bytes before the first entry of a file that gets an index snapshot. */
const INDEXED_HEADER = 1 << 16;
/** Bytes of a file without a header line that are searched for entries. */
const HEADERLESS_LOOK = 1 << 18;
/** Bytes at the end of a file in which the last append of a dead writer is expected. */
const LAST_APPEND = 1 << 20;
const OBJECT_BEGINS = Buffer.from('{"');
/** Half the bytes of the first window. Each window is twice as long as the one before, up to a chunk. */
const LEAST_WINDOW = 1 << 13;
/** Bytes at each end of the known part that are compared to recognise it. */
const EDGE = 4096;
/** Most bytes between two entries that are read together. */
const NEAR = 1 << 13;
/**
 * Limit of the bytes that are read in the search for entries in a damaged line: this many times its length, and at
 * least `SALVAGE_LEAST`.
 */
const SALVAGE_PASSES = 16;
const SALVAGE_LEAST = 1 << 22;

/** Requested entries, from the `first` to before the one at `past`, and the stretch of the file that they lie in. */
interface Run {
  readonly first: number;
  readonly past: number;
  readonly start: number;
  readonly length: number;
  readonly override?: Uint8Array;
}

/** Returns the folder where pi_agent_rust keeps the attachments of a session file; a container has its own inside. */
export function attachmentFolder(file: string): string {
  return file.endsWith(".v2") ? join(file, "blobs") : `${file}.blobs`;
}

export abstract class JsonlReader {
  readonly file: string;
  header!: SessionHeader;
  headerLine!: Uint8Array;
  version = CURRENT_VERSION;
  readonly nodes = new Nodes();
  readonly damage: Damage[] = [];
  readOnly: Failure | null = null;

  protected readonly disk: Disk;
  protected readonly env: Env;
  /** Working directory of a session whose own is lost. */
  private readonly cwd: string;
  private readonly sideIndexes: SideIndexes | undefined;
  /** Bytes of the file that the index snapshot covers. */
  private indexed = 0;
  protected readonly heads = new HeadReader(this.nodes);
  /** Reads heads a second time, to compare them with their nodes. */
  private readonly witness = new HeadReader(this.nodes);
  private readonly bodies = new BodyReader();
  protected readonly starts: Column<Float64Array> = new Column(new Float64Array(16));
  protected readonly lengths: Column<Uint32Array> = new Column(new Uint32Array(16));
  protected readonly checked: Column<Uint8Array> = new Column(new Uint8Array(16));
  /** Lines that are not in the file in this form: migrated, given an id, or waiting for the first append. */
  protected readonly overrides = new Map<number, Uint8Array>();
  /** Placeholders for entries whose bytes are damaged. `copy` still yields the bytes as they are. */
  protected readonly standIns = new Map<number, Uint8Array>();
  /** Parents, packed, of damaged lines that are no entries any more but have a legible head; by the id in that head. */
  private readonly lostParents = new Map<string, number>();
  protected fd = -1;
  /** Whether the file must be published anew before anything is appended (an old version, a header with a leaf). */
  protected rewrite = false;
  /** Whether the last line is an entry without a line feed. */
  protected unterminated = false;
  /** Offset of what a torn write left at the end, or -1; whether only a server of ours can have left it. */
  protected torn = -1;
  protected tornIsOurs = false;
  protected lineCount = 0;
  /** Bytes of the file that were read. */
  protected size = 0;
  /** The stamp of the file when it was read. Any other stamp means that another program changed the file. */
  private readonly watched: Watched;
  /** The first and the last bytes of the known part, as they were read or written. */
  private edges = { first: new Uint8Array(0), lastStart: 0, last: new Uint8Array(0) };
  /** Whether the file may have changed since the heads were read: they are compared when a line is checked. */
  private doubted = false;
  protected closed = false;
  /**
   * A part of the file that was read ahead because entries are asked for one after the other: 10,000 entries of 2.5 KB
   * take 10 ms with it, and 40 ms one by one.
   */
  private window:
    | { readonly start: number; readonly end: number; readonly bytes: Buffer; readonly isKnown: boolean }
    | undefined;
  /** Bytes of the last window; the next one may hold twice as many. */
  private reach = LEAST_WINDOW;
  /** Extent of the entry that was read last. */
  private lastRead = { start: -NEAR, end: -NEAR };
  /** Whether the head of some entry may differ from the one that a parser finds in the whole line. */
  private misread = false;
  /** Whether every line is parsed whole while the file is opened. */
  protected readonly thorough: boolean;
  /** Whether what was read at opening may not be one consistent state of the file. */
  isMixed = false;
  /**
   * Whether lines are being read that were added since the last check: another program may have glued one to what a
   * dead writer left.
   */
  protected isGrowing = false;

  constructor(options: JsonlReaderOptions, file: string, thorough: boolean) {
    this.thorough = thorough;
    this.disk = options.disk;
    this.watched = new Watched(options.disk);
    this.env = options.env;
    this.cwd = options.cwd;
    this.sideIndexes = options.sideIndexes;
    this.file = file;
    if (options.readOnly) this.readOnly = new Failure("read_only");
  }

  get mayHideEntries(): boolean {
    return !this.thorough && (this.misread || this.damage.some(({ kind }) => kind === "bad_body"));
  }

  /** Whether it is enough to read heads, as it is for lines of the current format. */
  private get quick(): boolean {
    return !this.thorough && !this.isGrowing && this.version >= CURRENT_VERSION;
  }

  protected get seen(): FileInfo | undefined {
    return this.watched.seen;
  }

  protected set seen(info: FileInfo | undefined) {
    this.watched.note(info);
  }

  /** End of the part of the file that need not be judged again: the start of a torn write, if there is one. */
  protected get knownEnd(): number {
    return this.torn >= 0 ? this.torn : this.size;
  }

  /** Reads the open file. `written` is what is known from writing it. Throws not_a_session, or an errno error. */
  protected readFile(written?: WrittenLines): void {
    this.seen = this.disk.infoOf(this.fd);
    if (this.seen.kind !== "file") throw notASession(this.file, "it is not a regular file");
    this.scan(this.recall(written));
    if (!this.header) throw notASession(this.file, this.size === 0 ? "it is empty" : "it has no header line");
    this.checkGaps();
    this.bridgeGaps();
    // After the gaps: if a parent comes later in the file, a bridge may close a cycle, too.
    for (const position of this.nodes.cutCycles())
      this.report("cycle", position, "parents form a cycle; it is cut here", true);
    this.dropIncompleteBatch();
    // A file that has not grown since its snapshot was saved was checked before that.
    if (this.indexed < this.size) this.checkTail();
    this.readEdges();
  }

  /** Records the bytes by which the known part is recognised. If they cannot be read, it never is. */
  protected readEdges(): void {
    const end = this.knownEnd;
    const length = Math.min(EDGE, end);
    const [first, last] = [new Uint8Array(length), new Uint8Array(end > EDGE ? length : 0)];
    try {
      readAll(this.disk, this.fd, first, 0);
      readAll(this.disk, this.fd, last, end - last.length);
      this.edges = { first, lastStart: end - last.length, last };
    } catch {
      this.edges = { first, lastStart: Number.MAX_SAFE_INTEGER, last: new Uint8Array(1) };
    }
  }

  /** Records that the known part ends with these bytes now. */
  protected noteLast(bytes: Uint8Array): void {
    const { first } = this.edges;
    const length = Math.min(EDGE, bytes.length);
    const last = Uint8Array.from(bytes.subarray(bytes.length - length));
    this.edges = { first, lastStart: this.knownEnd - length, last };
  }

  /** Whether the file still has the known part, as far as the bytes at its ends show. */
  protected isThere(): boolean {
    const { first, lastStart, last } = this.edges;
    return this.holdsAt(0, first) && this.holdsAt(lastStart, last);
  }

  private holdsAt(start: number, bytes: Uint8Array): boolean {
    const found = Buffer.allocUnsafe(bytes.length);
    let filled = 0;
    while (filled < found.length) {
      const count = this.disk.read(this.fd, found, filled, found.length - filled, start + filled);
      if (count <= 0) return false;
      filled += count;
    }
    return sameBytes(found, bytes);
  }

  /** Records that bytes of the known part may have changed: each line is checked again when it is read. */
  protected doubt(): void {
    this.checked.values.fill(0);
    this.doubted = true;
    this.closeWindow();
  }

  /** Restores what is known of the file from its writer or from the index cache. Returns how many bytes that covers. */
  private recall(written?: WrittenLines): number {
    if (this.thorough || !this.seen) return 0;
    const known = written?.recall(this.seen, this.nodes);
    if (known) return this.takeKnown(known);
    const kept = this.sideIndexes?.recall(this.fd, this.seen, this.nodes);
    if (!kept) return 0;
    this.indexed = kept.size;
    return this.takeKnown(kept);
  }

  /** Restores the extents of known lines, whose nodes are there already. Returns how many bytes they cover. */
  private takeKnown(known: Omit<ScannedFile, "info">): number {
    this.starts.values = known.starts;
    this.lengths.values = known.lengths;
    this.checked.values = new Uint8Array(known.starts.length);
    const header = Buffer.allocUnsafe(known.starts[0]);
    readAll(this.disk, this.fd, header, 0);
    this.takeLine(1, 0, header, 0, header.length - 1);
    this.lineCount = known.lines;
    return known.size;
  }

  /** Whether every node follows from its line alone. */
  private get isLiteral(): boolean {
    return this.damage.length === 0 && this.overrides.size === 0 && !this.misread && this.nodes.aliases === 0;
  }

  get isPlain(): boolean {
    if (!this.isLiteral || this.fd < 0 || !this.seen) return false;
    try {
      return isSameStamp(this.disk.infoOf(this.fd), this.seen);
    } catch {
      return false;
    }
  }

  /** Saves what is known of the file for the next opening, if it follows from the lines alone. */
  protected keepIndex(): void {
    const { nodes, seen, size, starts, lengths } = this;
    const plain = this.isLiteral && !this.rewrite && !this.unterminated;
    if (!this.sideIndexes || !seen || !plain || this.readOnly || this.torn >= 0) return;
    if (this.indexed === size || nodes.count === 0 || starts.values[0] > INDEXED_HEADER) return;
    const { count } = nodes;
    try {
      const before = Buffer.allocUnsafe(starts.values[0]);
      readAll(this.disk, this.fd, before, 0);
      if (before.indexOf(0x0a) !== before.length - 1) return;
      this.sideIndexes.keep(this.fd, nodes, {
        info: seen,
        size,
        lines: this.lineCount,
        starts: starts.values.subarray(0, count),
        lengths: lengths.values.subarray(0, count),
      });
      this.indexed = size;
    } catch {
      // The file cannot be read any more; its next opening reports that.
    }
  }

  /** Adds the lines from an offset on. */
  protected scan(from: number): void {
    const before = this.lineCount;
    const { size, tail, lines } = scanLines(this.disk, this.fd, from, HEAD_BYTES, {
      line: (number, start, b, at, end) => this.takeLine(before + number, start, b, at, end),
      long: (number, start, length, head, last) => this.takeLong(before + number, start, length, head, last),
    });
    this.size = size;
    this.lineCount += lines;
    if (tail < size) this.takeTail(this.lineCount + 1, tail, size - tail);
  }

  private takeLong(number: number, start: number, length: number, head: Uint8Array, last: number): void {
    if (!this.header) throw notASession(this.file, "its first line is too long for a header");
    const usual = this.quick && last === 0x7d && this.heads.read(head, 0, head.length);
    if (usual) {
      // A carriage return before the line feed is not part of the line.
      const end = Buffer.allocUnsafe(1);
      readAll(this.disk, this.fd, end, start + length - 1);
      this.place(start, end[0] === 0x0d ? length - 1 : length, 0);
    } else {
      const line = Buffer.allocUnsafe(length);
      readAll(this.disk, this.fd, line, start);
      this.takeLine(number, start, line, 0, length);
    }
  }

  /** Adds the line `b[at, end)`, which lies at `start` in the file. */
  private takeLine(number: number, start: number, b: Uint8Array, at: number, end: number): void {
    let past = end;
    if (past > at && b[past - 1] === 0x0d) past--;
    if (!this.header) this.takeHeader(number, start, b.subarray(at, past));
    else if (this.quick && past > at && b[past - 1] === 0x7d && this.heads.read(b, at, Math.min(past, at + HEAD_BYTES)))
      this.place(start, past - at, 0);
    else this.takeUnusual(number, start, b.subarray(at, past));
  }

  private takeUnusual(number: number, start: number, line: Uint8Array): void {
    if (isBlank(line)) return;
    const fault = this.takeEntry(number, start, line);
    if (fault === null) return;
    if (this.salvage(number, start, line)) {
      if (this.version >= CURRENT_VERSION && this.heads.read(line, 0, Math.min(line.length, HEAD_BYTES)))
        this.lostParents.set(unpackId(this.heads.packedId), this.heads.packedParent);
      return;
    }
    // An entry with a legible head and a damaged body keeps its place in the tree.
    if (this.version >= CURRENT_VERSION && this.heads.read(line, 0, Math.min(line.length, HEAD_BYTES)))
      this.place(start, line.length, 0);
    else this.badLine("bad_line", number, start, line.length, `the line is ${fault}`);
  }

  /**
   * Gives a parent to entries whose own is not in the file: the nearest known entry above the lost parent, if the
   * parent's head was legible; or the entry before, if a line that could not be read lies between two stretches of one
   * chain. Anywhere else the path ends, because a guess could splice an abandoned branch into what the model sees
   * (guarantee 7).
   */
  private bridgeGaps(): void {
    const { nodes } = this;
    const lost = this.damage.filter(({ kind }) => kind === "bad_line").map(({ byteOffset }) => byteOffset);
    for (const [position, parentId] of [...nodes.missingParent]) {
      const above = position - 1;
      const gap = lost.some(
        (offset) => above >= 0 && offset > this.starts.values[above] && offset < this.starts.values[position],
      );
      const chained = above === 0 || (above > 0 && nodes.parent(above) === above - 1);
      const continued = position + 1 >= nodes.count || nodes.parent(position + 1) === position;
      const grandparent = this.knownAbove(parentId);
      if (grandparent >= 0 && grandparent < position) {
        this.report("missing_parent", position, `the parent ${parentId} was lost; its own stands for it`, true);
        nodes.bridge(position, grandparent);
      } else if (gap && chained && continued) {
        this.report(
          "missing_parent",
          position,
          `the parent ${parentId} was lost; the entry before stands for it`,
          true,
        );
        nodes.bridge(position, above);
      } else
        this.report("missing_parent", position, `the parent ${parentId} is not in the file; the path ends here`, true);
    }
  }

  /** Returns the nearest known entry above one whose head alone was legible, or -1. */
  private knownAbove(id: string): number {
    for (const seen = new Set([id]); ; seen.add(id)) {
      const packed = this.lostParents.get(id) ?? -1;
      if (packed < 0) return -1;
      id = unpackId(packed);
      const position = this.nodes.position(id);
      if (position >= 0 || seen.has(id)) return position;
    }
  }

  /** Adds the entry of a line. Returns what the line is instead, or null. */
  private takeEntry(number: number, start: number, line: Uint8Array): string | null {
    if (!isUtf8(line)) return "not UTF-8";
    if (this.version < CURRENT_VERSION) return this.takeOld(number, start, line);
    let madeId: string | undefined;
    const fault = this.heads.parse(line, 0, line.length, () => {
      madeId = legacyIdOf(line, this.env.sha256, (id) => this.nodes.position(id) >= 0);
      return madeId;
    });
    if (fault !== null) return fault;
    if (this.nodes.typeCode("session") === this.heads.type) {
      this.badLine("extra_header", number, start, line.length, "a second header");
      return null;
    }
    const position = this.place(start, line.length, 1);
    if (madeId !== undefined) {
      this.report("missing_id", position, "the entry has no id; it got one from its line", true);
      this.overrides.set(position, withId(line, madeId));
    }
    return null;
  }

  /**
   * Adds every whole entry that it finds in a damaged line, and returns whether it found any. A torn write can have
   * glued its rest to the next whole entry, or left a run of zeros before or after it.
   */
  private salvage(number: number, start: number, line: Uint8Array): boolean {
    const bytes = Buffer.from(line.buffer, line.byteOffset, line.byteLength);
    const before = this.damage.length;
    let lost = 0;
    let found = false;
    let budget = Math.max(SALVAGE_LEAST, SALVAGE_PASSES * bytes.length);
    for (let at = bytes.indexOf(OBJECT_BEGINS); at >= 0; at = bytes.indexOf(OBJECT_BEGINS, at)) {
      const end = valueEnd(bytes, at, bytes.length);
      budget -= (end < 0 ? bytes.length : end) - at;
      if (budget < 0) break;
      const piece = bytes.subarray(at, Math.max(at, end));
      if (!this.isEntry(piece) || this.takeEntry(number, start + at, piece) !== null) {
        // A whole object is skipped: no part of it was written on its own.
        at = Math.max(at + 1, end);
        continue;
      }
      if (at > lost) this.badLine("bad_line", number, start + lost, at - lost, "bytes that are no entry");
      found = true;
      lost = end;
      at = end;
    }
    if (found && lost < bytes.length)
      this.badLine("bad_line", number, start + lost, bytes.length - lost, "bytes that are no entry");
    else if (found && this.damage.length === before)
      this.badLine("bad_line", number, start, bytes.length, "several entries in one line", true);
    return found;
  }

  /** Whether a piece of a line is an entry and not a part of one, such as a block of a message. */
  private isEntry(piece: Uint8Array): boolean {
    const found = isUtf8(piece) ? members(piece) : null;
    const timestamp = found && memberOf(found, "timestamp");
    if (!timestamp || piece[timestamp.start] !== 0x22) return false;
    return this.version === 1 || memberOf(found, "id") !== undefined;
  }

  /** Adds the entry whose head was just read, and records where it lies. Returns its position. */
  private place(start: number, length: number, checked: number): number {
    const { aliases } = this.nodes;
    const position = this.nodes.add(this.heads);
    if (position === SAMPLED) this.expectAsMany(start + length);
    this.starts.room(position)[position] = start;
    this.lengths.room(position)[position] = length;
    this.checked.room(position)[position] = checked;
    if (this.nodes.aliases > aliases) this.takeAlias(position);
    return position;
  }

  /**
   * Makes room for as many entries as the file is likely to have, if the rest is like the first ones, which end at
   * `end`.
   */
  private expectAsMany(end: number): void {
    const count = Math.ceil(((this.seen?.size ?? 0) / end) * SAMPLED * 1.1);
    this.nodes.expect(count);
    for (const column of [this.starts, this.lengths, this.checked]) column.room(Math.ceil(count / 1.5));
  }

  /**
   * Handles an entry whose id is taken: the same bytes again are not a second entry, a damaged copy gives way to the
   * whole one, and other bytes keep an id of their own.
   */
  private takeAlias(position: number): void {
    const id = this.nodes.id(position);
    const original = id.slice(0, id.lastIndexOf("~"));
    const first = this.nodes.position(original);
    if (first < 0 || first === position) return;
    const line = this.bytesAt(position);
    const before = this.bytesAt(first);
    const same = sameBytes(line, before);
    if (!same && !isSound(line)) {
      this.tellCopy(position, original);
      this.nodes.truncate(position);
      return;
    }
    if (!same && !this.standIns.has(first) && !isSound(before) && this.haveSameHead(first, position)) {
      this.tellCopy(first, original);
      this.starts.set(first, this.starts.values[position]);
      this.lengths.set(first, this.lengths.values[position]);
      this.nodes.truncate(position);
      return;
    }
    this.report(
      "duplicate_id",
      position,
      same ? `the entry ${original} stands here again` : `the id ${original} is taken; this entry is called ${id}`,
      true,
    );
    if (same) this.nodes.truncate(position);
    else this.overrides.set(position, patchMembers(line, { id: bytesOf(JSON.stringify(id)) }));
  }

  /** Reports the damaged one of two lines with the same id: the whole one is the entry. */
  private tellCopy(position: number, id: string): void {
    const reason = `a damaged copy of the entry ${id}, which stands elsewhere whole`;
    this.badLine("bad_line", 0, this.starts.values[position], this.lengths.values[position], reason, true);
  }

  private haveSameHead(a: number, b: number): boolean {
    const { nodes } = this;
    return (
      nodes.type(a) === nodes.type(b) &&
      nodes.parent(a) === nodes.parent(b) &&
      nodes.role(a) === nodes.role(b) &&
      nodes.isBatch(a) === nodes.isBatch(b) &&
      nodes.isMarker(a) === nodes.isMarker(b)
    );
  }

  // --- the header ----------------------------------------------------------------------------------------------

  private takeHeader(number: number, start: number, bytes: Uint8Array): void {
    const bom = start === 0 && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
    // Copied: the buffer will be used again, and a slice of a Buffer shares its memory.
    const line = Uint8Array.from(bytes.subarray(bom));
    if (isBlank(line)) return;
    const header = headerIn(line);
    if (header === null) {
      if (!this.hasEntriesNearby())
        throw notASession(this.file, `line ${number} is not a header with type session and an id`);
      this.makeHeader(number, start, bytes);
      return;
    }
    this.header = headerOf(header);
    this.headerLine = line;
    this.version = versionOf(header.version);
    if (this.version > CURRENT_VERSION || this.version < 1) {
      const reason = `format version ${JSON.stringify(header.version)}; this server writes version ${CURRENT_VERSION}`;
      this.readOnly = new Failure("unsupported_version", `The session has ${reason}. It can be read, not written.`);
      this.badLine("newer_version", number, start, line.length, reason, true);
      if (this.version < 1) this.version = CURRENT_VERSION;
    } else if (this.version < CURRENT_VERSION) {
      this.rewrite = true;
      this.headerLine = migrateHeader(line);
      this.header = { ...header, version: CURRENT_VERSION };
    } else if (header.leafId !== undefined) {
      this.rewrite = true;
      this.headerLine = withoutMember(line, "leafId");
    }
  }

  /** Whether a file without a header is a session all the same: its beginning has an entry that only sessions have. */
  private hasEntriesNearby(): boolean {
    const bytes = Buffer.alloc(Math.min(HEADERLESS_LOOK, this.seen?.size ?? 0));
    const count = this.disk.read(this.fd, bytes, 0, bytes.length, 0);
    for (const line of bytes.subarray(0, count).toString("latin1").split("\n"))
      try {
        const { type, id, timestamp } = JSON.parse(line) as Record<string, unknown>;
        if (KNOWN_TYPES.includes(type as never) && typeof id === "string" && typeof timestamp === "string") return true;
      } catch {
        // Not this one.
      }
    return false;
  }

  /** Makes a header in place of a damaged one. The session can then be read, and repaired or cloned to be written. */
  private makeHeader(number: number, start: number, line: Uint8Array): void {
    const named = /_([^_]+)\.jsonl$/.exec(this.file)?.[1];
    const id = named ?? `damaged-${this.env.sha256(bytesOf(this.file)).slice(0, 16)}`;
    const timestamp = new Date(this.seen?.modified ?? 0).toISOString();
    this.header = { type: "session", version: CURRENT_VERSION, id, timestamp, cwd: this.cwd };
    this.headerLine = bytesOf(JSON.stringify(this.header));
    this.readOnly = new Failure(
      "read_only",
      "The session's header line is damaged, so it can be read but not written. repair_session gives it a new one; clone copies it.",
    );
    this.badLine("bad_header", number, start, line.length, "the first line is not a header");
    this.takeUnusual(number, start, line);
  }

  // --- older versions ------------------------------------------------------------------------------------------

  /** Ids by the index of their line among the whole lines; the header is 0. Version 1 names entries by these. */
  private readonly oldLines: (string | undefined)[] = [undefined];

  private takeOld(number: number, start: number, line: Uint8Array): string | null {
    const found = members(line);
    const type = found && memberOf(found, "type");
    if (!type) return "not an entry";
    if (parse(line, type.start, type.end) === "session") {
      this.oldLines.push(undefined);
      this.badLine("extra_header", number, start, line.length, "a second header");
      return null;
    }
    const makeId = (): string => idOfLine(number, line, this.env.sha256, (taken) => this.nodes.position(taken) >= 0);
    let migrated: Uint8Array;
    if (this.version === 1) {
      const last = this.nodes.count - 1;
      const moved = migrateV1(line, {
        makeId,
        lastId: last < 0 ? null : this.nodes.id(last),
        idAt: (index) => this.oldLines[index],
      });
      this.oldLines.push(moved.id);
      migrated = moved.line;
    } else migrated = migrateV2(line);
    let madeId: string | undefined;
    const fault = this.heads.parse(migrated, 0, migrated.length, () => {
      madeId = makeId();
      return madeId;
    });
    if (fault !== null) return fault;
    const { count, aliases } = this.nodes;
    const position = this.place(start, line.length, 1);
    if (this.nodes.count === count) return null;
    if (madeId !== undefined)
      this.report("missing_id", position, "the entry has no id; it got one from its line", true);
    if (madeId !== undefined || this.nodes.aliases > aliases) migrated = withId(migrated, this.nodes.id(position));
    if (migrated !== line) this.overrides.set(position, Uint8Array.from(migrated));
    return null;
  }

  // --- the end of the file -------------------------------------------------------------------------------------

  /** Adds a last line without line feed: an entry when it is whole, else what a torn write left. */
  private takeTail(number: number, start: number, length: number): void {
    const line = Buffer.allocUnsafe(length);
    readAll(this.disk, this.fd, line, start);
    if (!this.header || isBlank(line) || (isUtf8(line) && isJson(line))) {
      this.unterminated = true;
      this.takeLine(number, start, line, 0, length);
      return;
    }
    // A power cut can leave zeros after an entry that had no line feed yet.
    const end = valueEnd(line, 0, length);
    const whole = end > 0 && isUtf8(line.subarray(0, end)) && members(line, 0, end) !== null ? end : 0;
    if (whole > 0) this.takeLine(number, start, line, 0, whole);
    this.unterminated = whole > 0;
    this.torn = start + whole;
    this.tornIsOurs = false;
    const reason = "the last line was cut off while it was written";
    this.badLine("torn_tail", number, this.torn, length - whole, reason);
  }

  /** Removes the damage that was reported at the end of the file, unless its bytes were moved to quarantine since. */
  protected forgetTailDamage(from = 0): void {
    for (let i = this.damage.length - 1; i >= from; i--) {
      const { kind, byteOffset, keptAt } = this.damage[i];
      const isOfTail = kind === "torn_tail" || kind === "incomplete_batch";
      if (isOfTail && keptAt === undefined && byteOffset >= this.torn) this.damage.splice(i, 1);
    }
  }

  /**
   * Drops an incomplete batch at the end of the file. Entries that were appended together count only together, so they
   * were never acknowledged.
   */
  protected dropIncompleteBatch(): void {
    const last = this.nodes.count - 1;
    if (last < 0 || !this.nodes.isBatch(last)) return;
    const batch = this.batchOf(last);
    if (!batch || batch.index >= batch.count - 1) return;
    let first = last;
    for (let index = batch.index - 1; index >= 0 && first > 0; index--, first--) {
      const before = this.batchOf(first - 1);
      if (before?.index !== index || before.count !== batch.count || before.key !== batch.key) break;
    }
    this.report("incomplete_batch", first, `${batch.index + 1} of ${batch.count} entries that belong together`, false);
    this.torn = this.starts.values[first];
    // Only a server of ours marks batches. The lock holder knows that this one's writer is dead.
    this.tornIsOurs = true;
    this.lineCount -= last - first + (this.unterminated ? 0 : 1);
    this.unterminated = false;
    this.forgetFrom(first);
  }

  /** Discards the verdict on the end of the file, which is read again. Returns where that begins. */
  protected forgetTail(): number {
    const start = this.knownEnd;
    if (this.torn >= 0) this.forgetTailDamage();
    this.torn = -1;
    this.tornIsOurs = false;
    return start;
  }

  /** Returns the batch of this session that an entry belongs to, or null. */
  private batchOf(position: number): Batch | null {
    if (!this.nodes.isBatch(position)) return null;
    const batch = (parse(this.read(position)) as { _batch?: Batch })._batch;
    const counts = Number.isInteger(batch?.index) && Number.isInteger(batch?.count);
    return counts && batch?.session === this.header.id && batch.index >= 0 ? batch : null;
  }

  protected forgetFrom(count: number): void {
    this.closeWindow();
    this.nodes.truncate(count);
    for (const lines of [this.overrides, this.standIns])
      for (const position of lines.keys()) if (position >= count) lines.delete(position);
  }

  private checkTail(): void {
    this.check(this.nodes.count - CHECKED_TAIL, this.nodes.count);
  }

  /** Checks the entries around each one whose parent is missing: they may contain the lost parent. */
  private checkGaps(): void {
    for (const position of this.nodes.missingParent.keys()) this.check(position - 1, position + 2);
  }

  private check(from: number, to: number): void {
    for (let p = Math.max(0, from); p < Math.min(to, this.nodes.count); p++)
      if (this.lengths.values[p] <= CHECKED_TAIL_LINE && !this.seemsSound(p)) this.read(p);
  }

  /**
   * Whether V8's own parser accepts the bytes of an entry as JSON. In a process that has just started, it checks the
   * end of a file in a tenth of the time that our parser needs. Ours still checks each entry when it is read.
   */
  private seemsSound(position: number): boolean {
    const { buffer, byteOffset, byteLength } = this.bytesAt(position);
    const bytes = Buffer.from(buffer, byteOffset, byteLength);
    if (!isUtf8(bytes)) return false;
    try {
      // Decoding as Latin-1 is enough: it matters where strings end, not which characters they have.
      JSON.parse(bytes.toString("latin1"));
      return true;
    } catch {
      return false;
    }
  }

  private badLine(
    kind: Damage["kind"],
    line: number,
    byteOffset: number,
    length: number,
    reason: string,
    salvaged = false,
  ): void {
    this.damage.push({ kind, line, byteOffset, length, reason, salvaged });
  }

  protected report(kind: Damage["kind"], position: number, reason: string, salvaged: boolean): void {
    this.damage.push({
      kind,
      line: 0,
      byteOffset: this.starts.values[position],
      length: this.lengths.values[position],
      entryId: this.nodes.id(position),
      reason,
      salvaged,
    });
  }

  // --- reading -------------------------------------------------------------------------------------------------

  length(position: number): number {
    return this.overrides.get(position)?.length ?? this.lengths.values[position];
  }

  read(position: number): Uint8Array {
    const override = this.overrides.get(position);
    if (override) return override;
    const { bytes, isKnown } = this.lineAt(position);
    return this.sound(position, bytes, isKnown);
  }

  *readMany(positions: ArrayLike<number>, passing = false): Iterable<Uint8Array> {
    let again: Buffer | undefined;
    for (const run of this.runs(positions, NEAR)) {
      if (run.override) {
        yield run.override;
        continue;
      }
      const { bytes, isKnown } = this.knownBytes(run.start, run.length, again);
      if (passing && bytes.length > (again?.length ?? 0) && bytes.length <= LOOKED_AT) again = bytes;
      const sound = isUtf8(bytes) ? this.lookAt(positions, run, bytes, isKnown) : null;
      // Slices of a Buffer take five times as long to make.
      const plain = new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
      for (let i = run.first; i < run.past; i++) {
        const at = this.starts.values[positions[i]] - run.start;
        const line = plain.subarray(at, at + this.lengths.values[positions[i]]);
        yield sound?.[i - run.first] ? line : this.sound(positions[i], line, isKnown);
      }
    }
  }

  /**
   * Checks the lines of a stretch that is UTF-8. Returns 1 for each that is sound; the others need the full check of
   * {@link sound}.
   */
  private lookAt(positions: ArrayLike<number>, run: Run, bytes: Buffer, isKnown: boolean): Uint8Array {
    const { first, past, start } = run;
    const sound = new Uint8Array(past - first);
    let unchecked = 0;
    for (let i = first; i < past; i++) {
      if (!isKnown || !this.checked.values[positions[i]]) unchecked++;
      else {
        const at = this.starts.values[positions[i]] - start;
        const feed = bytes.indexOf(0x0a, at);
        if (feed < 0 || feed >= at + this.lengths.values[positions[i]]) sound[i - first] = 1;
      }
    }
    const look = unchecked > 1 && bytes.length <= LOOKED_AT ? firstLook() : null;
    if (!look) return sound;
    look.bytes.set(bytes);
    for (let i = first; i < past; i++) {
      const position = positions[i];
      if (sound[i - first] === 1) continue;
      const at = this.starts.values[position] - start;
      const end = at + this.lengths.values[position];
      const messageStart = look.read(at, end);
      if (messageStart < 0 || !this.isTrue(position, bytes.subarray(at, end), isKnown)) continue;
      sound[i - first] = 1;
      this.noteSound(position, messageStart, isKnown);
    }
    return sound;
  }

  *copy(positions: ArrayLike<number>, passing = false): Iterable<Uint8Array> {
    // Reading into memory that was never used before takes twice the time.
    let again: Buffer | undefined;
    for (const run of this.runs(positions)) {
      if (run.override) yield concat([run.override, LF]);
      else {
        const { start, length } = run;
        for (let at = 0; at < length; at += CHUNK) {
          const { bytes, isKnown } = this.knownBytes(start + at, Math.min(CHUNK, length - at), again);
          if (passing && bytes.length > (again?.length ?? 0)) again = bytes;
          if (!isKnown) this.demandLines(positions, run, start + at, bytes);
          yield bytes;
        }
        yield LF;
      }
    }
  }

  /**
   * Throws storage_failed unless lines lie where they are known to lie, as far as a piece of the file shows it. A
   * damaged line counts as a line: it is copied as it is.
   */
  private demandLines(positions: ArrayLike<number>, { first, past }: Run, start: number, piece: Uint8Array): void {
    for (let i = first; i < past; i++) {
      const at = this.starts.values[positions[i]] - start;
      const length = this.lengths.values[positions[i]];
      if (at + length <= 0 || at >= piece.length) continue;
      const line = piece.subarray(Math.max(0, at), Math.min(piece.length, at + length));
      const isBegun = at >= 0 && at + Math.min(length, HEAD_BYTES) <= piece.length;
      if (line.includes(0x0a) || (isBegun && !this.isOfNode(positions[i], line, line.length === length)))
        throw new Failure(
          "storage_failed",
          "Another program is changing the session's file. Nothing was done; ask again.",
          {},
          { retryable: true },
        );
    }
  }

  /** Whether a line that is JSON is still the line of its entry. */
  private isTrue(position: number, line: Uint8Array, isKnown: boolean): boolean {
    return (isKnown && !this.doubted) || this.isOfNode(position, line, true);
  }

  /**
   * Whether one consistent state was read: nobody changed the file meanwhile, or no entry that was read is a mixture.
   * Other programs may only have cut what a dead writer left, which is no longer than its last append.
   */
  protected isOfOneMoment(): boolean {
    const { seen, nodes } = this;
    const now = this.disk.infoOf(this.fd);
    if (!seen || (isSameStamp(now, seen) && !isYoung(now, clockOf(this.disk)))) return true;
    const ends = (position: number): number => this.starts.values[position] + this.lengths.values[position];
    let first = nodes.count;
    while (first > 0 && ends(first - 1) > seen.size - LAST_APPEND) first--;
    return this.holdsNodes(first, seen.size - LAST_APPEND);
  }

  /**
   * Whether the file has the heads of entries where they were read, from position `first` on, and no damaged line from
   * byte `from` on. What is read while another program writes may be a mixture: that program cut off what a dead writer
   * left, and wrote as many bytes of its own.
   */
  protected holdsNodes(first: number, from: number): boolean {
    // Halves of two lines are a damaged line, unless they make a whole one by chance.
    if (this.damage.some(({ kind, byteOffset }) => kind === "bad_line" && byteOffset >= from)) return false;
    for (let position = first; position < this.nodes.count; position++) {
      if (this.overrides.has(position)) continue;
      const length = this.lengths.values[position];
      const head = Buffer.alloc(Math.min(length, HEAD_BYTES));
      try {
        readAll(this.disk, this.fd, head, this.starts.values[position]);
      } catch (error) {
        if (isCutOff(error)) return false;
        throw error;
      }
      if (!this.isOfNode(position, head, head.length === length)) return false;
    }
    return true;
  }

  /**
   * Whether a line has the head of an entry. A line that is not whole counts as one if its beginning does not show the
   * head.
   */
  private isOfNode(position: number, line: Uint8Array, isWhole: boolean): boolean {
    const { witness, nodes } = this;
    if (witness.read(line, 0, Math.min(line.length, HEAD_BYTES))) return nodes.isHeadOf(position, witness);
    if (!isWhole) return true;
    const fault = witness.parse(line, 0, line.length, () => "");
    // If only the fast path could read the head, the line cannot be parsed.
    return fault === null ? nodes.isHeadOf(position, witness) : this.standIns.has(position);
  }

  /**
   * Splits positions into stretches that lie in the file one after the other, with at most `gap` bytes between entries
   * (1: only line feeds). A stretch ends with the entry that makes it as long as a chunk. An override is a stretch of
   * its own.
   */
  private *runs(positions: ArrayLike<number>, gap = 1): Generator<Run> {
    let first = 0;
    while (first < positions.length) {
      const override = this.overrides.get(positions[first]);
      if (override) {
        yield { first, past: first + 1, start: -1, length: override.length, override };
        first++;
        continue;
      }
      const start = this.starts.values[positions[first]];
      let end = start + this.lengths.values[positions[first]];
      let past = first + 1;
      while (past < positions.length && end - start < CHUNK) {
        const next = this.starts.values[positions[past]];
        if (next <= end || next - end > gap) break;
        if (this.overrides.size > 0 && this.overrides.has(positions[past])) break;
        end = next + this.lengths.values[positions[past]];
        past++;
      }
      yield { first, past, start, length: end - start };
      first = past;
    }
  }

  attachment(position: number, sha256: string, sizeBytes: number): string | null {
    const bytes = this.attachmentBytes(sha256, sizeBytes);
    if (bytes) return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
    const entryId = this.nodes.id(position);
    if (!this.damage.some((found) => found.kind === "missing_blob" && found.entryId === entryId))
      this.report("missing_blob", position, `the attachment ${sha256} is missing or damaged`, false);
    return null;
  }

  private attachmentBytes(sha256: string, sizeBytes: number): Uint8Array | null {
    try {
      const bytes = readWhole(this.disk, join(attachmentFolder(this.file), sha256));
      return bytes.length === sizeBytes && this.env.sha256(bytes) === sha256 ? bytes : null;
    } catch {
      return null;
    }
  }

  private bytesAt(position: number): Buffer {
    return this.lineAt(position).bytes;
  }

  /** Returns the bytes at an entry's place, and whether they are those that were known to be there. */
  private lineAt(position: number): { bytes: Buffer; isKnown: boolean } {
    const start = this.starts.values[position];
    const length = this.lengths.values[position];
    const { window } = this;
    if (window && start >= window.start && start + length <= window.end) {
      const bytes = window.bytes.subarray(start - window.start, start - window.start + length);
      return { bytes, isKnown: window.isKnown };
    }
    // A single read does not start a window, and an entry as long as a window needs none.
    const reach = Math.min(CHUNK, this.reach * 2);
    const ahead = start >= this.lastRead.end && start - this.lastRead.end < NEAR;
    const back = start + length <= this.lastRead.start && this.lastRead.start - start - length < NEAR;
    this.lastRead = { start, end: start + length };
    if (length >= reach || !(ahead || back)) {
      this.reach = LEAST_WINDOW;
      return this.knownBytes(start, length);
    }
    this.reach = reach;
    const from = ahead ? start : Math.max(0, start + length - reach);
    const past = Math.min(ahead ? start + reach : start + length, this.size);
    if (past < start + length) return this.knownBytes(start, length);
    const { bytes, isKnown } = this.knownBytes(from, past - from);
    // Another program may change the file while nothing runs here, so the window is kept only while one command works.
    if (!this.window) queueMicrotask(() => this.closeWindow());
    this.window = { start: from, end: past, bytes, isKnown };
    return { bytes: bytes.subarray(start - from, start - from + length), isKnown };
  }

  /**
   * Reads bytes of the file. Returns them, and whether nothing can have changed them since they became known. A check
   * of the stamp takes 1 us and is as sound as to check all bytes again (25 MB take 40 ms).
   */
  private knownBytes(start: number, length: number, again?: Buffer): { bytes: Buffer; isKnown: boolean } {
    const since = clockOf(this.disk);
    const bytes = this.bytes(start, length, again);
    try {
      const found = this.watched.since(this.fd, since);
      if (found === "renewed") this.doubt();
      return { bytes, isKnown: found !== "unsure" };
    } catch (error) {
      throw storageFailure(error, "reading an entry");
    }
  }

  /** Discards the window, so that its bytes are read again. */
  protected closeWindow(): void {
    this.window = undefined;
    this.reach = LEAST_WINDOW;
  }

  /** Reads these bytes of the file, into `again` if they fit there, else into new memory. Throws storage_failed. */
  private bytes(start: number, length: number, again?: Buffer): Buffer {
    if (this.closed) throw new Failure("storage_failed", "The session was closed while it was read. Open it again.");
    const bytes = again && length <= again.length ? again.subarray(0, length) : Buffer.allocUnsafe(length);
    try {
      readAll(this.disk, this.fd, bytes, start);
    } catch (error) {
      throw storageFailure(error, "reading an entry");
    }
    return bytes;
  }

  private noteSound(position: number, messageStart: number, isKnown: boolean): void {
    if (isKnown) this.checked.set(position, 1);
    this.nodes.noteMessage(position, messageStart);
  }

  /**
   * Returns the line if it is UTF-8 and the JSON of its entry, else a placeholder with the head of that entry. A line
   * that was checked before is checked again if the file may have changed since.
   */
  private sound(position: number, line: Uint8Array, isKnown: boolean): Uint8Array {
    const known = this.standIns.get(position);
    if (known) return known;
    if (isUtf8(line) && !line.includes(0x0a)) {
      if (isKnown && this.checked.values[position]) return line;
      if (this.bodies.read(line, 0, line.length) && this.isTrue(position, line, isKnown)) {
        this.misread ||= this.bodies.isAmbiguous;
        this.noteSound(position, this.bodies.messageStart, isKnown);
        return line;
      }
    }
    const { nodes } = this;
    const parent = nodes.parent(position);
    const standIn = bytesOf(
      JSON.stringify({
        type: nodes.type(position),
        id: nodes.id(position),
        parentId: parent < 0 ? null : nodes.id(parent),
        timestamp: new Date(0).toISOString(),
        damaged: true,
      }),
    );
    this.report("bad_body", position, "the entry's bytes are not those of an entry of that id", false);
    this.nodes.lose(position);
    this.standIns.set(position, standIn);
    return standIn;
  }
}

export function notASession(file: string, reason: string): Failure {
  return new Failure("not_a_session", `${file} is not a session file: ${reason}. It was left as it is.`, {
    sessionPath: file,
  });
}

/** Returns the version of a header: 1 if it has none, 0 if its value is not a version. */
function versionOf(version: unknown): number {
  if (version === undefined || version === null) return 1;
  const number = typeof version === "string" && /^\d+$/.test(version) ? Number(version) : version;
  return typeof number === "number" && Number.isInteger(number) && number > 0 ? number : 0;
}

function isSound(line: Uint8Array): boolean {
  return isUtf8(line) && isJson(line);
}

function isBlank(line: Uint8Array): boolean {
  return line.every((c) => c === 0x20 || c === 0x09 || c === 0x0d || c === 0x0a);
}

function withId(line: Uint8Array, id: string): Uint8Array {
  return withMember(line, "id", bytesOf(JSON.stringify(id)));
}

/** Returns the line with a member's value replaced, or with the member added after the type. */
export function withMember(line: Uint8Array, name: string, value: Uint8Array): Uint8Array {
  const found = members(line) ?? [];
  if (memberOf(found, name)) return patchMembers(line, { [name]: value });
  const type = memberOf(found, "type");
  const at = type ? type.end : 1;
  return concat([line.subarray(0, at), bytesOf(`,${JSON.stringify(name)}:`), value, line.subarray(at)]);
}

function withoutMember(line: Uint8Array, name: string): Uint8Array {
  const found = members(line) ?? [];
  const index = found.findIndex((member) => member.name === name);
  if (index < 0) return line;
  const from = index > 0 ? found[index - 1].end : found[index].nameStart;
  const to = index > 0 ? found[index].end : (found[index + 1]?.nameStart ?? found[index].end);
  return concat([line.subarray(0, from), line.subarray(to)]);
}
