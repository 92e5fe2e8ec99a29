/**
 * Reads a container: finds its entries through the index snapshot, the index and the frames after those, reads past
 * damage and reports it, and returns the bytes of entries. Nothing here writes: what a crash left is recovered in
 * memory, and on the disk by the first write.
 */

import { isUtf8 } from "node:buffer";
import { basename, dirname, join } from "node:path";
import { isMissing, isNoFile, storageFailure } from "../../core/errno.ts";
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
import { bytesOf, concat, parse } from "../../core/json/json.ts";
import { BodyReader } from "../../core/json/validate.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Change } from "../../core/ports/store.ts";
import { Column, Nodes, unpackId } from "../../core/tree/nodes.ts";
import {
  CONTAINER,
  headerFile,
  indexFile,
  manifestFile,
  numberOf,
  segmentFile,
  segmentFolder,
  spineFile,
} from "../fs/container-paths.ts";
import { closeQuietly, type Disk, type FileInfo, isCutOff, openFile, readAll, readWhole } from "../fs/disk.ts";
import { clockOf, isSameFile, isSameStamp, Watched } from "../fs/stamps.ts";
import { attachmentFolder } from "../log/attachments.ts";
import { notASession } from "../log/failures.ts";
import { CHUNK, type LineVisitor, scanLines } from "../log/lines.ts";
import type { KeptSpines } from "../log/snapshot-cache.ts";
import { isUuid, readManifest } from "./documents.ts";
import {
  chained,
  crc32c,
  crcText,
  decodeFrame,
  decodeHead,
  decodeRow,
  encodeRow,
  FRAME_BYTES,
  FRAME_HEAD_BYTES,
  type Frame,
  type IndexRow,
  Malformed,
  sha256,
} from "./frame.ts";
import { lastCheckpoint } from "./last-checkpoint.ts";
import { EMPTY_TAIL, FramePlaces, type PlaceColumns, type Tail } from "./places.ts";
import { type FoundFrame, gluedFrames, isOf, LEAST_FRAME, Salvage } from "./salvage.ts";
import { loadBlocks, type Reach, readBlocks, type SnapshotBlock } from "./snapshot.ts";

const LF = bytesOf("\n");
const PAYLOAD = bytesOf(',"payload":');
const UNBOUND = "its frame tells of another entry than its payload";
/** Number of last frames whose bytes are checked at opening, and the length beyond which one is not. */
const CHECKED_TAIL = 64;
const CHECKED_TAIL_LINE = 1 << 20;
/** Bytes of the largest header that is read; a usual one has a few hundred. */
const HEADER_BYTES = 1 << 20;
/** Number of segments that are kept open for reading. */
const OPEN_SEGMENTS = 16;
/** Length up to which a frame is read together with those after it when its head is read. */
const SHORT_FRAME = 8 << 10;
const WINDOW = 256 << 10;

/** Buffer that lines are read into. No line outlives the call for it, and no scan begins within another. */
let scratch: Buffer | undefined;

function scratchBuffer(): Buffer {
  scratch ??= Buffer.allocUnsafe(CHUNK);
  return scratch;
}

export interface SegmentedReaderOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly readOnly?: boolean;
  /** Index snapshots of large containers, kept from before. */
  readonly spines?: KeptSpines;
}

/** Facts of a container that the state folder keeps, in addition to the columns. */
interface KeptContainer extends Reach {
  /** Id of the session. */
  readonly id: string;
  /** Bytes of the container's own index snapshot that were valid, and the number of entries in them. */
  readonly spineEnd: number;
  readonly spineCount: number;
}

export interface Segment {
  readonly seq: number;
  readonly size: number;
  readonly info: FileInfo;
}

/** Leftovers that the first write cuts off. */
export interface Remains {
  /** End of the valid frames. What follows is cut off, and moved to quarantine first unless it was written by us. */
  readonly segmentSeq: number;
  readonly start: number;
  readonly ours: boolean;
  /** Whether a segment holds, from this byte on, what it held when it was examined. */
  readonly isAsJudged: (segment: Segment, start: number) => boolean;
}

/** The part of a container that need not be examined again: what its index names, up to a place. */
interface Base {
  readonly count: number;
  readonly aliases: number;
  readonly tail: Tail;
  readonly indexEnd: number;
  readonly lastRow: { readonly length: number; readonly crc: number };
  /**
   * Checksum of the bytes of its last frame as they are, valid or not; null when they cannot be read, or are very many.
   */
  readonly lastFrame: number | null;
}

/** The rows of the index after the part that fits the segments. */
interface Rest {
  readonly rows: readonly IndexRow[];
  /** Whether all of these rows could be read. */
  readonly isIntact: boolean;
  /** Highest entry number in any row. */
  readonly promised: number;
}

/** The last row that was accepted, and what was known before it. */
interface LastTaken {
  readonly row: IndexRow;
  readonly nodeCount: number;
  readonly aliases: number;
  readonly damageCount: number;
  readonly tail: Tail;
  readonly indexEnd: number;
  /** Reads length and checksum of the row before it. */
  readonly lastRow: () => { readonly length: number; readonly crc: number };
}

/** The result of reading rows of the index. */
interface Taken {
  /** Reason why the row after the last accepted one was refused; null when none was. */
  readonly fault: string | null;
  readonly rest: Rest;
  /** Size of the index in bytes. */
  readonly size: number;
  /** Whether rows of entries that were known before are exactly those that the index still lacked. */
  readonly known: boolean;
  readonly before: LastTaken | null;
}

/** The state of the store before an entry of a batch, in case the batch has to be dropped. */
interface Before {
  readonly position: number;
  readonly tail: Tail;
  readonly indexEnd: number;
  readonly rows: number;
}

/** Lists a folder; returns nothing when it is missing, because copies may leave out empty folders. */
function orNone<T>(list: () => T[]): T[] {
  try {
    return list();
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

export abstract class SegmentedReader {
  readonly file: string;
  /** Folder of the container; it is not `file` after a repair that was cut off. */
  protected folder: string;
  header!: SessionHeader;
  headerLine!: Uint8Array;
  /** Reason why a container with a damaged header must not be written; null for a sound one. */
  private headerFault: Failure | null = null;
  readonly version = CURRENT_VERSION;
  readonly nodes = new Nodes();
  readonly damage: Damage[] = [];
  readOnly: Failure | null = null;
  readonly mayHideEntries = false;

  protected readonly disk: Disk;
  protected readonly env: Env;
  protected readonly heads = new HeadReader(this.nodes);
  private readonly bodies = new BodyReader();
  protected readonly places = new FramePlaces();
  protected readonly checked = new Column(new Uint8Array(16));
  /**
   * Lines that are returned in place of a segment's bytes: with an id of their own, waiting for the first append, or
   * valid despite their checksum in the index.
   */
  protected readonly overrides = new Map<number, Uint8Array>();
  /** Placeholders that are returned for damaged entries; `copy` copies the bytes themselves as they are. */
  protected readonly standIns = new Map<number, Uint8Array>();
  protected tail: Tail = EMPTY_TAIL;
  /** Rows of the last entries, which the index does not hold yet. */
  protected rows: string[] = [];
  /** Bytes of the index that hold rows of known entries. */
  protected indexEnd = 0;
  /** Length and checksum of the last row before `indexEnd`. */
  protected lastRow = { length: 0, crc: 0 };
  /** Reason why the index is wrong after `indexEnd`, or missing; null when it is neither. */
  protected indexFault: string | null = null;
  /** The index as it was last seen; any other stamp is another process's doing. */
  protected seen: FileInfo | undefined;
  /** The header file, whose device and inode identify the container. */
  protected key: FileInfo | undefined;
  protected remains: Remains | null = null;
  /** The part that need not be examined again; null while entries are known that the index does not name. */
  private base: Base | null = null;
  /** Damage that was reported in the part after the base. */
  private judgements: Damage[] = [];
  /** Whether that part is why nothing may be written. */
  private refusedByJudgement = false;
  /** Number of entries that were found after the index at opening. */
  protected replayed = 0;
  /** Bytes of the index snapshot file that are valid, and the number of entries in them. */
  protected spineEnd = 0;
  protected spineCount = 0;
  /** Whether everything known comes from an index snapshot, and nothing from rows. */
  private isRecalled = false;
  private readonly spines: KeptSpines | undefined;
  /** Number of entries in the index snapshot that the state folder keeps. */
  private keptCount = 0;
  protected closed = false;
  private readonly segmentFds = new Map<number, number>();
  /** Stamps of the segments that were read. */
  private readonly watched = new Map<number, Watched>();
  private window: { segmentSeq: number; start: number; bytes: Buffer } | null = null;
  private befores: Before[] = [];
  /** Segments in which a frame was found at a place other than the recorded one. */
  private readonly moved = new Set<number>();
  /** Results of searching segments for such frames. */
  private readonly searched = new Map<number, { info: FileInfo; starts: ReadonlyMap<number, number> }>();
  private judgedSegments: Remains["isAsJudged"] = () => false;

  constructor(options: SegmentedReaderOptions, file: string, folder = file) {
    this.disk = options.disk;
    this.env = options.env;
    this.spines = options.spines;
    this.file = file;
    this.folder = folder;
    if (options.readOnly) this.readOnly = new Failure("read_only");
  }

  // --- opening -------------------------------------------------------------------------------------------------

  /**
   * Reads the container. While another process writes to it, entries that the index does not hold yet are left to that
   * process. Throws not_a_session, or an errno error.
   */
  protected readContainer(isLive: (key: FileInfo) => boolean): void {
    this.demandPlain();
    this.readHeader();
    const live = isLive(this.key as FileInfo);
    // Read before the sizes of the segments: a row that is added meanwhile names a frame that is not in them.
    const seen = this.infoOrNull(indexFile(this.folder)) ?? undefined;
    const segments = this.segments();
    this.loadSpine(segments);
    this.judge(segments, live, seen);
    for (const position of this.nodes.cutCycles())
      this.report("cycle", position, "parents form a cycle; it is cut here", true);
    for (const [position, parentId] of this.nodes.missingParent)
      this.report("missing_parent", position, `the parent ${parentId} is not in the session; the path ends here`, true);
    for (let p = Math.max(0, this.nodes.count - CHECKED_TAIL); p < this.nodes.count; p++)
      if (this.places.lengths.values[p] <= CHECKED_TAIL_LINE) this.read(p);
  }

  /** Reads what comes after the known part. While another process is the writer, only what it has indexed. */
  private judge(segments: readonly Segment[], live: boolean, seen: FileInfo | undefined): void {
    const known = this.damage.length;
    // A damaged header does not influence what is found here.
    if (this.readOnly === this.headerFault) this.readOnly = null;
    const { readOnly } = this;
    const rest = this.readIndex(segments, live);
    this.seen = seen;
    this.noteBase();
    // When the index is wrong, the entries that later rows name are there all the same.
    if (live && this.indexFault !== null) this.replay(segments, rest, rest.promised);
    if (!live) {
      this.replay(segments, rest);
      this.dropIncompleteBatch();
      this.holdAgainstMarks();
    }
    this.judgements = this.damage.slice(known);
    this.refusedByJudgement = readOnly === null && this.readOnly !== null;
    this.readOnly ??= this.headerFault;
    this.befores = [];
    this.window = null;
  }

  /** Records the part that need not be examined again, if the index names every known entry. */
  protected noteBase(): void {
    const { nodes, tail, indexEnd, lastRow } = this;
    const { count, aliases } = nodes;
    this.base =
      this.rows.length > 0 ? null : { count, aliases, tail, indexEnd, lastRow, lastFrame: this.frameCrc(count - 1) };
  }

  /** Returns the checksum of a frame's bytes as they are; null when they cannot be read, or are very many. */
  private frameCrc(position: number): number | null {
    const { lengths, segments, starts } = this.places;
    if (position < 0 || lengths.values[position] > CHECKED_TAIL_LINE) return null;
    const frame = Buffer.allocUnsafe(lengths.values[position]);
    try {
      readAll(this.disk, this.segmentFd(segments.values[position]), frame, starts.values[position]);
      return crc32c(frame);
    } catch {
      return null;
    }
  }

  /**
   * Reads again, as the only writer, what comes after the base: its writer may have continued since. Returns "replaced"
   * when an entry is missing or is a different one.
   */
  protected judgeAgain(): Change {
    const { base, nodes, places } = this;
    if (!base || !this.isThere(base)) return { kind: "replaced" };
    const { count } = nodes;
    const crcs = places.crcs.values.slice(base.count, count);
    const restore = this.image(base.count);
    try {
      this.forgetFrom(base.count);
      nodes.aliases = base.aliases;
      Object.assign(this, { tail: base.tail, indexEnd: base.indexEnd, lastRow: base.lastRow });
      Object.assign(this, { rows: [], remains: null, replayed: 0, indexFault: null });
      if (this.refusedByJudgement) this.readOnly = null;
      for (const judgement of this.judgements) {
        const index = this.damage.indexOf(judgement);
        if (index >= 0) this.damage.splice(index, 1);
      }
      const before = this.infoOrNull(indexFile(this.folder)) ?? undefined;
      this.judge(this.segments(), false, before);
    } catch (error) {
      restore();
      throw error;
    }
    if (nodes.count < count || crcs.some((crc, i) => crc !== places.crcs.values[base.count + i])) {
      // Until another log replaces it, this one keeps what it knew.
      restore();
      return { kind: "replaced" };
    }
    return nodes.count === count ? { kind: "none" } : { kind: "grown", first: count };
  }

  /** Returns a function that makes everything known from a position on what it is now. */
  private image(from: number): () => void {
    const { nodes, places, tail, indexEnd, lastRow, remains, replayed, indexFault, seen, base, judgements } = this;
    const { readOnly, refusedByJudgement } = this;
    const { aliases } = nodes;
    const heads = Array.from({ length: nodes.count - from }, (_, i) => nodes.headOf(from + i));
    const before = new FramePlaces();
    for (const i of heads.keys()) before.copy(places, from + i, i);
    const rows = [...this.rows];
    const damage = [...this.damage];
    const maps = [this.overrides, this.standIns].map((lines) => ({ lines, entries: [...lines] }));
    return () => {
      this.forgetFrom(from);
      for (const [i, head] of heads.entries()) places.copy(before, i, nodes.add(head));
      nodes.aliases = aliases;
      this.checked.values.fill(0);
      for (const { lines, entries } of maps) for (const [position, line] of entries) lines.set(position, line);
      this.damage.splice(0, this.damage.length, ...damage);
      Object.assign(this, { tail, indexEnd, lastRow, remains, replayed, indexFault, seen, base, judgements, rows });
      Object.assign(this, { readOnly, refusedByJudgement });
    };
  }

  /**
   * Whether writes are refused because of a reading that other processes may have disturbed: the container has changed
   * since, or a process is writing to it.
   */
  protected isDoubtful(isLive: boolean): boolean {
    if (!this.refusedByJudgement) return false;
    try {
      const index = this.infoOrNull(indexFile(this.folder));
      const isSame = index && this.seen ? isSameStamp(index, this.seen) : !index && !this.seen;
      return isLive || !isSame || this.segments().some((segment) => !this.judgedSegments(segment, 0));
    } catch {
      return true;
    }
  }

  /** Whether the last row and the last frame of a known part lie where they were. */
  private isThere({ count, indexEnd, lastRow, lastFrame, tail }: Base): boolean {
    const { disk } = this;
    try {
      if (!this.hasItsHeader()) return false;
      if (count === 0) return true;
      if (lastRow.length > 0) {
        const fd = disk.openRead(indexFile(this.folder));
        try {
          const row = Buffer.allocUnsafe(lastRow.length);
          readAll(disk, fd, row, indexEnd - lastRow.length);
          if (crc32c(row) !== lastRow.crc) return false;
        } finally {
          closeQuietly(disk, fd);
        }
      }
      // The name may belong to another file now than the one that is open.
      this.forgetSegment(tail.segmentSeq);
      const size = disk.info(segmentFile(this.folder, tail.segmentSeq)).size;
      return size >= tail.segmentSize && (lastFrame === null || this.frameCrc(count - 1) === lastFrame);
    } catch (error) {
      if (isMissing(error) || isCutOff(error)) return false;
      throw error;
    }
  }

  /**
   * Whether the header is still the one that was read. The inode of a removed file is used again, and another program
   * may write the file anew in place, so its bytes decide when its times have changed.
   */
  protected hasItsHeader(folder = this.folder): boolean {
    const { disk, key } = this;
    const path = headerFile(folder);
    const now = this.infoOrNull(path);
    if (!now || !key || !isSameFile(now, key) || now.kind !== key.kind || now.size !== key.size) return false;
    if (now.changed === key.changed && now.modified === key.modified) return true;
    if (now.kind === "file" && this.hasHeader) {
      const line = readWhole(disk, path).subarray(0, this.headerLine.length);
      if (Buffer.compare(line, this.headerLine) !== 0) return false;
    }
    this.key = now;
    return true;
  }

  /**
   * Throws not_a_session when a file or folder that entries are in is a link. Any other part that is one counts as
   * missing.
   */
  private demandPlain(): void {
    if (!this.disk.list) return;
    const [index, segments] = [dirname(indexFile(this.folder)), segmentFolder(this.folder)];
    const needed = new Set([headerFile(this.folder), index, segments].map((path) => basename(path)));
    for (const folder of [this.folder, segments, index])
      for (const { name, kind } of orNone(() => this.disk.list?.(folder) ?? []))
        if (kind === "link" && (folder !== this.folder || needed.has(name)))
          throw notASession(this.file, `${name} in it is a link`);
  }

  /** Whether the header was read from the file, rather than made up for a damaged one. */
  protected get hasHeader(): boolean {
    return this.headerFault === null;
  }

  private readHeader(): void {
    const fd = this.disk.openRead(headerFile(this.folder));
    try {
      const info = this.disk.infoOf(fd);
      this.key = info;
      if (info.kind !== "file" || info.size > HEADER_BYTES) {
        this.makeHeader(info);
        return;
      }
      const bytes = Buffer.alloc(info.size);
      readAll(this.disk, fd, bytes, 0);
      const end = bytes.indexOf(0x0a);
      const line = bytes.subarray(0, end < 0 ? bytes.length : end);
      const header = headerIn(line);
      if (header === null) {
        this.makeHeader(info);
        return;
      }
      this.header = headerOf(header);
      this.headerLine = line;
    } finally {
      closeQuietly(this.disk, fd);
    }
  }

  /** Makes up a header for one that is damaged: the session can be read, and repaired or cloned to be written. */
  private makeHeader({ size, modified }: FileInfo): void {
    const id = basename(this.file, CONTAINER);
    if (!isUuid(id)) throw notASession(this.file, "its header is not one of a session");
    this.header = {
      type: "session",
      version: CURRENT_VERSION,
      id,
      timestamp: new Date(modified).toISOString(),
      cwd: "",
    };
    this.headerLine = bytesOf(JSON.stringify(this.header));
    this.headerFault = new Failure(
      "corrupt",
      "The session's header is damaged, so it can be read but not written. repair_session gives it a new one; clone copies it.",
    );
    this.tell("bad_header", 0, size, "header.jsonl is not a header with type session and an id", true);
  }

  /** Returns the existing segments, in order. Closes those whose name now belongs to another file. */
  protected segments(): Segment[] {
    const folder = segmentFolder(this.folder);
    const found: Segment[] = [];
    for (const name of orNone(() => this.disk.names(folder))) {
      const seq = numberOf(name, "seg");
      if (seq === 0) continue;
      const info = this.disk.info(join(folder, name));
      if (info.kind !== "file") continue;
      const open = this.segmentFds.has(seq) && this.watched.get(seq)?.seen;
      // A process that cuts off what a dead writer left removes a segment that held nothing else, and creates it again.
      if (open && !isSameFile(open, info)) this.forgetSegment(seq);
      found.push({ seq, size: info.size, info });
    }
    return found.sort((a, b) => a.seq - b.seq);
  }

  /** Loads an index snapshot, if one fits the index and the segments. */
  private loadSpine(segments: readonly Segment[]): void {
    let index: number;
    try {
      index = openFile(this.disk, indexFile(this.folder));
    } catch (error) {
      if (isMissing(error) || isNoFile(error)) return;
      throw error;
    }
    try {
      const { size } = this.disk.infoOf(index);
      const fits = (reach: Reach): boolean => this.fits(reach, index, size, segments);
      if (!this.recallSpine(fits)) this.readSpine(fits);
    } finally {
      closeQuietly(this.disk, index);
    }
  }

  /** Loads the index snapshot that the state folder keeps. Returns whether there was one that fits. */
  private recallSpine(fits: (reach: Reach) => boolean): boolean {
    const isOurs = ({ id, ...reach }: KeptContainer): boolean => id === this.header.id && fits(reach);
    const kept = this.spines?.recall(this.key as FileInfo, this.nodes, (facts) => isOurs(facts as KeptContainer));
    if (!kept) return false;
    this.places.take(kept.columns as PlaceColumns);
    const { spineEnd, spineCount, ...reach } = kept.facts as KeptContainer;
    this.resumeAt(reach, spineEnd, spineCount);
    this.keptCount = reach.count;
    return true;
  }

  /** Keeps an index snapshot in the state folder for the next opening, if it says no more than the frames do. */
  protected keepSpine(): void {
    const { nodes, tail, indexEnd, lastRow, spineEnd, spineCount, key } = this;
    const { count } = nodes;
    const plain =
      this.damage.length === 0 && this.overrides.size === 0 && this.rows.length === 0 && this.indexFault === null;
    if (!this.spines || !key || !plain || this.readOnly || this.remains || nodes.aliases > 0) return;
    if (count === this.keptCount || count !== tail.entrySeq || tail.bytesTotal < this.spines.leastBytes) return;
    const reach = { count, tail, indexEnd, rowLength: lastRow.length, rowCrc: lastRow.crc };
    const facts: KeptContainer = { ...reach, id: this.header.id, spineEnd, spineCount };
    this.spines.keep(key, nodes, { columns: this.places.columns(count), facts });
    this.keptCount = count;
  }

  /** Loads the container's own index snapshot. */
  private readSpine(fits: (reach: Reach) => boolean): void {
    let blocks: SnapshotBlock[];
    let file: Buffer;
    try {
      const bytes = readWhole(this.disk, spineFile(this.folder));
      file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      blocks = readBlocks(file);
    } catch (error) {
      if (isMissing(error) || isNoFile(error)) return;
      throw error;
    }
    for (let last = blocks.pop(); last; last = blocks.pop()) {
      const { details, end } = last;
      if (!fits(details)) continue;
      if (!loadBlocks(file, [...blocks, last], this.nodes, this.places)) return;
      this.resumeAt(details, end, details.count);
      return;
    }
  }

  private resumeAt(reach: Reach, spineEnd: number, spineCount: number): void {
    this.checked.set(reach.count, 0);
    this.tail = reach.tail;
    this.indexEnd = reach.indexEnd;
    this.lastRow = { length: reach.rowLength, crc: reach.rowCrc };
    this.spineEnd = spineEnd;
    this.spineCount = spineCount;
    this.isRecalled = true;
  }

  private fits(
    { tail, indexEnd, rowLength, rowCrc, count }: Reach,
    index: number,
    indexSize: number,
    segments: readonly Segment[],
  ): boolean {
    if (indexEnd > indexSize || rowLength > indexEnd || tail.entrySeq !== count) return false;
    const upTo = segments.filter(({ seq }) => seq <= tail.segmentSeq);
    let sealed = 0;
    for (const { seq, size } of upTo) if (seq < tail.segmentSeq) sealed += size;
    if (upTo.length !== tail.segmentCount || sealed + tail.segmentSize !== tail.bytesTotal) return false;
    if ((upTo.at(-1)?.size ?? 0) < tail.segmentSize) return false;
    const row = Buffer.alloc(rowLength);
    readAll(this.disk, index, row, indexEnd - rowLength);
    if (crc32c(row) !== rowCrc) return false;
    try {
      return decodeRow(row, 0, row.length - 1).entrySeq === count;
    } catch {
      return false;
    }
  }

  /**
   * Reads the rows after the known part, and the heads of their frames, until one does not fit. Where the bytes after
   * the last of these frames are not what the index says, the frame itself must be whole, because its head does not say
   * where it ends.
   */
  private readIndex(segments: readonly Segment[], live: boolean): Rest {
    let fd: number;
    try {
      fd = openFile(this.disk, indexFile(this.folder));
    } catch (error) {
      if (!isMissing(error) && !isNoFile(error)) throw error;
      this.indexFault = isMissing(error) ? "it is missing" : "it is not a file";
      return { rows: [], isIntact: false, promised: 0 };
    }
    try {
      let taken = this.takeRows(fd, segments);
      const { isRecalled } = this;
      this.isRecalled = false;
      if ((taken.fault !== null || this.isMoreThere(segments)) && !this.isLastWhole()) {
        if (isRecalled && !taken.before) {
          this.forgetAll();
          taken = this.takeRows(fd, segments);
        }
        if (taken.before && !this.isLastWhole()) taken = this.giveLastBack(taken.before, taken);
      }
      const { fault, rest, size } = taken;
      this.indexFault = fault;
      if (fault === null && this.indexEnd < size && !live) this.indexFault = "its last row was cut off";
      return { ...rest, isIntact: rest.isIntact && this.indexFault === fault };
    } finally {
      closeQuietly(this.disk, fd);
    }
  }

  /** Whether segments hold bytes after the last known frame. */
  private isMoreThere(segments: readonly Segment[]): boolean {
    const { segmentSeq, segmentSize } = this.tail;
    return segments.some(({ seq, size }) => (seq === segmentSeq ? size > segmentSize : seq > segmentSeq && size > 0));
  }

  /** Whether the last known frame is at its recorded place, with every byte. */
  private isLastWhole(): boolean {
    const last = this.nodes.count - 1;
    if (last < 0) return true;
    const { segments, starts, lengths, crcs } = this.places;
    const frame = Buffer.allocUnsafe(lengths.values[last]);
    try {
      readAll(this.disk, this.segmentFd(segments.values[last]), frame, starts.values[last]);
    } catch (error) {
      if (isCutOff(error)) return false;
      throw error;
    }
    return crc32c(frame) === crcs.values[last];
  }

  /** Forgets everything that an index snapshot said, because the segments are not what they were. */
  private forgetAll(): void {
    this.forgetFrom(0);
    this.nodes.aliases = 0;
    this.checked.values.fill(0);
    this.tail = EMPTY_TAIL;
    this.indexEnd = 0;
    this.lastRow = { length: 0, crc: 0 };
    Object.assign(this, { spineEnd: 0, spineCount: 0, keptCount: 0 });
  }

  /** Undoes the last accepted row, so that it is the first one that was refused. */
  private giveLastBack(before: LastTaken, taken: Taken): Taken {
    const { row, nodeCount, aliases, damageCount, tail, indexEnd, lastRow } = before;
    this.forgetFrom(nodeCount);
    this.damage.length = damageCount;
    this.nodes.aliases = aliases;
    while ((this.befores.at(-1)?.position ?? -1) >= nodeCount) this.befores.pop();
    Object.assign(this, { tail, indexEnd, lastRow: lastRow() });
    const fault = `of the row at byte ${indexEnd}, its frame is damaged`;
    return { ...taken, fault, rest: { ...taken.rest, rows: [row, ...taken.rest.rows] } };
  }

  private takeRows(fd: number, segments: readonly Segment[], past?: number): Taken {
    const sizes = new Map(segments.map(({ seq, size }) => [seq, size]));
    const rows: IndexRow[] = [];
    let fault: string | null = null;
    let promised = 0;
    let known = true;
    let isIntact = true;
    /** Lengths of the last row that was accepted, and of the one before it. */
    let length = 0;
    let lengthBefore = 0;
    let before: Omit<LastTaken, "lastRow"> | null = null;
    const take = (b: Uint8Array, at: number, end: number): void => {
      let row: IndexRow | undefined;
      try {
        row = decodeRow(b, at, end);
        promised = Math.max(promised, row.entrySeq);
        if (fault !== null) {
          rows.push(row);
          return;
        }
        if (row.entrySeq > this.tail.entrySeq) {
          const { nodes, tail, indexEnd } = this;
          const { count: nodeCount, aliases } = nodes;
          const damageCount = this.damage.length;
          this.takeRow(row, sizes);
          before = { row, nodeCount, aliases, damageCount, tail, indexEnd };
        } else if (!this.isKnown(row)) {
          known = false;
          throw new Malformed(`entry ${row.entrySeq} has its row before`);
        }
        this.indexEnd += end - at + 1;
        lengthBefore = length;
        length = end - at + 1;
      } catch (error) {
        if (!(error instanceof Malformed)) throw error;
        fault ??= `of the row at byte ${this.indexEnd}, ${error.message}`;
        if (row) rows.push(row);
        else isIntact = false;
      }
    };
    const visitor = {
      line: (_number: number, _start: number, b: Uint8Array, at: number, end: number) => take(b, at, end),
      long: () => {
        fault ??= `a row at byte ${this.indexEnd} is too long`;
        isIntact = false;
      },
    };
    const lastRowBefore = this.lastRow;
    const scanned = scanLines(this.disk, fd, this.indexEnd, HEAD_BYTES, visitor, scratchBuffer(), past);
    const rowBefore = (end: number, length: number): { length: number; crc: number } => {
      if (length === 0) return lastRowBefore;
      const row = Buffer.allocUnsafe(length);
      readAll(this.disk, fd, row, end - length);
      return { length, crc: crc32c(row) };
    };
    this.lastRow = rowBefore(this.indexEnd, length);
    const last = before as Omit<LastTaken, "lastRow"> | null;
    return {
      fault,
      size: scanned.size,
      known,
      rest: { rows, isIntact, promised },
      before: last && { ...last, lastRow: () => rowBefore(last.indexEnd, lengthBefore) },
    };
  }

  /** Whether a row is the next one that the index still lacked. If so, it is removed from the waiting rows. */
  private isKnown(row: IndexRow): boolean {
    const waiting = this.rows.length;
    const position = row.entrySeq - 1;
    const isNext = waiting > 0 && row.entrySeq === this.tail.entrySeq - waiting + 1;
    if (!isNext || this.places.crcs.values[position] !== Number.parseInt(row.crc32c, 16)) return false;
    this.rows.shift();
    return true;
  }

  private takeRow(row: IndexRow, sizes: ReadonlyMap<number, number>): void {
    const { tail } = this;
    if (row.entrySeq !== tail.entrySeq + 1)
      throw new Malformed(`entry ${tail.entrySeq + 1} was due, not ${row.entrySeq}`);
    const isNew = row.segmentSeq !== tail.segmentSeq;
    const due = isNew ? { frameSeq: 1, byteOffset: 0 } : { frameSeq: tail.frameSeq + 1, byteOffset: tail.segmentSize };
    if (isNew && row.segmentSeq !== tail.segmentSeq + 1)
      throw new Malformed(`segment ${row.segmentSeq} does not follow ${tail.segmentSeq}`);
    if (isNew && tail.segmentSeq > 0 && sizes.get(tail.segmentSeq) !== tail.segmentSize)
      throw new Malformed(`there are more frames in segment ${tail.segmentSeq}`);
    if (row.frameSeq !== due.frameSeq || row.byteOffset !== due.byteOffset)
      throw new Malformed(`frame ${due.frameSeq} at byte ${due.byteOffset} was due`);
    const size = sizes.get(row.segmentSeq) ?? 0;
    if (row.byteOffset + row.byteLength > size)
      throw new Malformed(`the frame would end behind the ${size} bytes of segment ${row.segmentSeq}`);
    this.takeIndexed(row);
  }

  /**
   * Adds the entry of a row, from the head of its frame, or from the whole frame where the head is not enough. Throws
   * {@link Malformed}.
   */
  private takeIndexed(row: IndexRow): void {
    const crc = Number.parseInt(row.crc32c, 16);
    const head = this.headAt(row);
    const usual = decodeHead(head, 0, head.length);
    if (usual !== null && usual.payloadEnd === row.byteLength - 2) {
      const enough = head.length >= Math.min(usual.payloadStart + HEAD_BYTES, usual.payloadEnd);
      const end = Math.min(head.length, usual.payloadEnd);
      if (enough && this.heads.read(head, usual.payloadStart, end) && isOf(usual, row) && this.isBound(usual)) {
        this.place(usual, row.byteOffset, row.byteLength, 0, crc);
        return;
      }
    }
    const bytes = this.bytes(row.segmentSeq, row.byteOffset, row.byteLength);
    if (crc32c(bytes) !== crc) {
      // A damaged frame must end with its only line feed. Else bytes were inserted or removed, and what follows is not
      // where its row says either.
      if (bytes.indexOf(0x0a) !== bytes.length - 1) throw new Malformed("its frame is damaged");
      this.takeDamaged(row, bytes, usual);
      return;
    }
    if (bytes[bytes.length - 1] !== 0x0a) throw new Malformed("its frame does not end with a line feed");
    const frame = decodeFrame(bytes, 0, bytes.length - 1, false);
    this.readHead(bytes, frame);
    if (!isOf(frame, row)) throw new Malformed("its frame says something else");
    if (!this.isBound(frame)) throw new Malformed(UNBOUND);
    this.place(frame, row.byteOffset, row.byteLength, 0, crc);
  }

  /**
   * Adds the entry of a damaged frame, which keeps its place in the tree if its own head or the frame's is legible and
   * fits the row; else throws {@link Malformed}. Reading the entry reports the damage.
   */
  private takeDamaged(row: IndexRow, bytes: Buffer, usual: Frame | null): void {
    const mark = bytes.indexOf(PAYLOAD);
    const payloadStart = usual?.payloadStart ?? mark + PAYLOAD.length;
    const payloadBytes = row.byteLength - 2 - payloadStart;
    if ((!usual && mark < 0) || payloadBytes < 1) throw new Malformed("its frame is damaged");
    const { heads } = this;
    const fits = (): boolean => {
      const { id, parentId } = this.headIds();
      return id === row.entryId && (parentId === null || this.nodes.position(parentId) >= 0);
    };
    if (!heads.read(bytes, payloadStart, Math.min(bytes.length, payloadStart + HEAD_BYTES)) || !fits()) {
      if (!usual) throw new Malformed("its frame is damaged");
      heads.take({ type: usual.entryType, id: usual.entryId, parentId: usual.parentEntryId }, () => "");
      if (!fits()) throw new Malformed("its frame is damaged");
    }
    const { id, parentId } = this.headIds();
    const frame: Frame = {
      ...row,
      entryId: id,
      parentEntryId: parentId,
      entryType: usual?.entryType ?? "",
      timestamp: usual?.timestamp ?? "",
      payloadSha256: usual?.payloadSha256 ?? sha256(bytes.subarray(payloadStart, payloadStart + payloadBytes)),
      payloadStart,
      payloadEnd: payloadStart + payloadBytes,
      payloadBytes,
    };
    this.place(frame, row.byteOffset, row.byteLength, 0, Number.parseInt(row.crc32c, 16));
  }

  /** Returns the frame of a row, or as much of its beginning as was read. */
  private headAt(row: IndexRow): Buffer {
    const { segmentSeq, byteOffset: start, byteLength: length } = row;
    const wanted = Math.min(length, FRAME_HEAD_BYTES);
    const { window } = this;
    if (window?.segmentSeq === segmentSeq && start >= window.start) {
      const at = start - window.start;
      if (at + wanted <= window.bytes.length)
        return window.bytes.subarray(at, Math.min(at + length, window.bytes.length));
    }
    const fd = this.segmentFd(segmentSeq);
    const bytes = Buffer.allocUnsafe(length <= SHORT_FRAME ? WINDOW : wanted);
    let filled = 0;
    while (filled < bytes.length) {
      const count = this.disk.read(fd, bytes, filled, bytes.length - filled, start + filled);
      if (count <= 0) break;
      filled += count;
    }
    this.window = { segmentSeq, start, bytes: bytes.subarray(0, filled) };
    return this.window.bytes.subarray(0, Math.min(length, filled));
  }

  /** Reads the head of the entry in a whole frame. Throws {@link Malformed}. */
  private readHead(b: Uint8Array, frame: Frame): void {
    const { payloadStart, payloadEnd } = frame;
    if (this.heads.read(b, payloadStart, Math.min(payloadEnd, payloadStart + HEAD_BYTES))) return;
    if (!isUtf8(b.subarray(payloadStart, payloadEnd))) throw new Malformed("its payload is not UTF-8");
    const fault = this.heads.parse(b, payloadStart, payloadEnd, () => frame.entryId);
    if (fault !== null) throw new Malformed(`its payload is ${fault}`);
  }

  /** Returns the ids of the head that was read last. */
  private headIds(): { id: string; parentId: string | null } {
    const { heads } = this;
    return {
      id: heads.packedId >= 0 ? unpackId(heads.packedId) : heads.id,
      parentId: heads.packedParent >= 0 ? unpackId(heads.packedParent) : heads.parentId,
    };
  }

  /** Whether the members of a frame match the entry in it, whose head was read last. */
  private isBound(frame: Frame): boolean {
    const { id, parentId } = this.headIds();
    return (
      id === frame.entryId &&
      parentId === frame.parentEntryId &&
      this.nodes.typeCode(frame.entryType) === this.heads.type
    );
  }

  /** Adds the entry whose head was read last, and moves the tail past its frame. Returns its position. */
  private place(frame: Frame, start: number, length: number, at: number, crc: number): number {
    const { tail, nodes } = this;
    const { aliases } = nodes;
    const before: Before = { position: nodes.count, tail, indexEnd: this.indexEnd, rows: this.rows.length };
    const position = nodes.add(this.heads);
    this.places.set(position, {
      segmentSeq: frame.segmentSeq,
      start,
      length,
      payloadStart: frame.payloadStart - at,
      payloadLength: frame.payloadBytes,
      crc,
    });
    this.checked.set(position, 0);
    this.tail = {
      segmentSeq: frame.segmentSeq,
      frameSeq: frame.frameSeq,
      segmentSize: start + length,
      entrySeq: frame.entrySeq,
      chainHash: chained(tail.chainHash, frame.payloadSha256),
      lastCrc: crcText(crc),
      bytesTotal: tail.bytesTotal + length,
      segmentCount: tail.segmentCount + (frame.segmentSeq === tail.segmentSeq ? 0 : 1),
    };
    if (nodes.isBatch(position)) this.befores.push(before);
    else this.befores.length = 0;
    if (nodes.aliases > aliases) {
      const id = nodes.id(position);
      this.overrides.set(position, patchMembers(this.payload(position), { id: bytesOf(JSON.stringify(id)) }));
      this.report("duplicate_id", position, `the id ${frame.entryId} is taken; this entry is called ${id}`, true);
    }
    return position;
  }

  /**
   * Adds the frames after those of the index. A damaged frame with no whole one after it was being written when its
   * writer died; otherwise the whole ones after it are added too, and the session can only be read. `limit`: the last
   * entry to add, because a writer is at work after it.
   */
  private replay(segments: readonly Segment[], rest: Rest, limit = Number.POSITIVE_INFINITY): void {
    const indexed = this.tail.entrySeq;
    const isAsJudged: Remains["isAsJudged"] = ({ seq, info }) => {
      const judged = segments.find((segment) => segment.seq === seq);
      return judged !== undefined && isSameStamp(judged.info, info);
    };
    const salvage = new Salvage(rest.rows, rest.isIntact, this.tail, {
      demandBound: (b, frame) => this.demandBound(b, frame),
      idIn: (b, first, end) => this.idIn(b, first, end),
    });
    /** Reason why the first frame that was not the expected one was refused. */
    let reason: string | null = null;
    const from = Math.max(1, this.tail.segmentSeq);
    for (const { seq, size } of segments) {
      if (seq < from) continue;
      const start = seq === this.tail.segmentSeq ? this.tail.segmentSize : 0;
      if (size <= start) continue;
      const fd = this.segmentFd(seq);
      const take = (at: number, b: Uint8Array, first: number, end: number): void => {
        if (reason === null && this.tail.entrySeq >= limit) return;
        try {
          if (reason === null) this.takeReplayed(seq, at, b, first, end, salvage);
        } catch (error) {
          if (!(error instanceof Malformed)) throw error;
          reason = error.message;
        }
        if (reason !== null) salvage.line(seq, at, b, first, end, limit);
      };
      const scanned = scanLines(this.disk, fd, start, 0, this.wholeLines(seq, salvage, take), scratchBuffer());
      if (scanned.tail < scanned.size && (reason !== null || this.tail.entrySeq < limit)) {
        reason ??= "it has no line feed";
        salvage.bad(seq, scanned.tail, scanned.size, "it has no line feed");
      }
    }
    const { found, bad, strangers } = salvage.settle((entryId) => this.nodes.position(entryId) >= 0);
    let salvaged = 0;
    for (const one of found)
      if (this.takeFound(one)) salvaged++;
      else if (one.row) salvage.giveUp(one.row);
    this.replayed = this.tail.entrySeq - indexed;
    // Anything else is left to its writer.
    if (limit < Number.POSITIVE_INFINITY) return;
    const lost = salvage.unsettled((entryId) => this.nodes.position(entryId) >= 0);
    if (salvaged + strangers === 0 && bad.length > 0 && !salvage.hasWholeLines) {
      const { segmentSeq, start, reason } = bad[0];
      this.remains = { segmentSeq, start, ours: false, isAsJudged };
      let length = 0;
      for (const { start, end } of bad) length += end - start;
      const why =
        lost > 0 ? `the last frames are damaged: ${reason}` : "the last frame was cut off while it was written";
      this.tell("torn_tail", start, length, `${why} (segment ${segmentSeq})`, false);
    } else if (reason !== null) {
      this.replayed = 0;
      for (const { segmentSeq, start, end, reason } of bad)
        this.tell("bad_line", start, end - start, `no frame in segment ${segmentSeq}: ${reason}`, false);
      if (bad.length === 0 && lost === 0)
        for (const { segmentSeq, start, length } of found.slice(0, 1))
          this.tell("bad_line", start, length, `in segment ${segmentSeq}, ${reason}`, true);
      this.refuseWrites();
    }
    if (this.indexFault !== null)
      this.tell("bad_index", this.indexEnd, 0, `the index is wrong: ${this.indexFault}`, true);
    if (lost > 0) {
      this.tell("lost_entries", 0, 0, `${lost} entries that the index names are in no segment`, false);
      this.refuseWrites();
    }
    // A crash during a rotation leaves a segment without frames.
    const last = segments.at(-1)?.seq ?? 0;
    if (!this.remains && this.readOnly?.name !== "corrupt" && last > this.tail.segmentSeq)
      this.remains = { segmentSeq: this.tail.segmentSeq + 1, start: 0, ours: true, isAsJudged };
    this.judgedSegments = isAsJudged;
  }

  /** Returns a visitor that passes on, with all its bytes, every line that may be a frame. */
  private wholeLines(
    seq: number,
    salvage: Salvage | null,
    take: (at: number, b: Uint8Array, first: number, end: number) => void,
  ): LineVisitor {
    return {
      line: (_number, at, b, first, end) => take(at, b, first, end),
      long: (_number, at, length) => {
        // If such a line ends with a frame, the bytes before it belong to none.
        const skipped = Math.max(0, length - FRAME_BYTES);
        if (skipped > 0) salvage?.bad(seq, at, at + skipped, "it is longer than a frame may be");
        take(at + skipped, this.bytes(seq, at + skipped, length - skipped + 1), 0, length - skipped);
      },
    };
  }

  /**
   * Adds the frame `b[first, end)`, line feed excluded, that begins at `start`, if it is the expected one; else throws
   * {@link Malformed}.
   */
  private takeReplayed(seq: number, start: number, b: Uint8Array, first: number, end: number, salvage: Salvage): void {
    const frame = decodeFrame(b, first, end);
    const { tail } = this;
    const isNew = seq !== tail.segmentSeq;
    if (frame.entrySeq !== tail.entrySeq + 1) throw new Malformed(`entry ${tail.entrySeq + 1} was due`);
    if (isNew && seq !== tail.segmentSeq + 1) throw new Malformed(`segment ${tail.segmentSeq + 1} is missing`);
    if (frame.segmentSeq !== seq || frame.frameSeq !== (isNew ? 1 : tail.frameSeq + 1))
      throw new Malformed("its numbers are not those of its place");
    this.demandBound(b, frame);
    const crc = crc32c(b, first, end + 1);
    if (!salvage.allows(frame, end - first + 1, crc)) throw new Malformed("its row has another checksum");
    this.placeReplayed({ ...frame, segmentSeq: seq }, start, end - first + 1, first, crc);
  }

  private placeReplayed(frame: Frame, start: number, length: number, first: number, crc: number): void {
    const { segmentSeq, frameSeq, entrySeq, entryId } = frame;
    const position = this.place(frame, start, length, first, crc);
    this.checked.set(position, 1);
    this.rows.push(
      encodeRow({
        entrySeq,
        entryId,
        segmentSeq,
        frameSeq,
        byteOffset: start,
        byteLength: length,
        crc32c: crcText(crc),
      }),
    );
  }

  /** Adds a frame that was salvaged; returns false when it no longer matches its entry. */
  private takeFound({ segmentSeq, start, length, row, isDamaged }: FoundFrame): boolean {
    const bytes = this.bytes(segmentSeq, start, length);
    try {
      if (isDamaged && row !== null) {
        const there = { ...row, segmentSeq, byteOffset: start, byteLength: length };
        this.takeDamaged(there, bytes, decodeHead(bytes, 0, length));
        return true;
      }
      const frame = decodeFrame(bytes, 0, length - 1, false);
      this.demandBound(bytes, frame);
      this.placeReplayed({ ...frame, segmentSeq }, start, length, 0, crc32c(bytes));
      return true;
    } catch (error) {
      // Another program may have written there since.
      if (error instanceof Malformed) return false;
      throw error;
    }
  }

  /** Reads the head of the entry in a whole frame. Throws {@link Malformed} unless the two match. */
  private demandBound(b: Uint8Array, frame: Frame): void {
    this.readHead(b, frame);
    if (!this.isBound(frame)) throw new Malformed(UNBOUND);
  }

  /** Returns the id of the entry that a line which is not a frame seems to hold; null for none. */
  private idIn(b: Uint8Array, first: number, end: number): string | null {
    const mark = Buffer.from(b.buffer, b.byteOffset + first, end - first).indexOf(PAYLOAD);
    if (mark < 0 || !this.heads.read(b, first + mark + PAYLOAD.length, end)) return null;
    return this.headIds().id;
  }

  protected refuseWrites(): void {
    this.readOnly = new Failure(
      "corrupt",
      "Entries of the session are damaged or lost, so it can be read but not written. repair_session rebuilds it from what is whole and keeps the rest beside it; clone copies what is whole.",
    );
  }

  /**
   * Compares the entries with the manifest and the last checkpoint, which mark a durable end. Both are written after
   * the entries that they name: where these are missing, acknowledged entries were lost (seed 003, "Recovery").
   */
  private holdAgainstMarks(): void {
    if (this.readOnly?.name === "corrupt") return;
    const manifest = readManifest(this.disk, manifestFile(this.folder));
    const checkpoint = lastCheckpoint(this.disk, this.folder);
    if (manifest !== null)
      this.holdAgainst("manifest", manifest.head.entrySeq, manifest.head.entryId, manifest.integrity.chainHash);
    if (checkpoint !== null)
      this.holdAgainst("last checkpoint", checkpoint.headEntrySeq, checkpoint.headEntryId, checkpoint.chainHash);
  }

  private holdAgainst(mark: string, entrySeq: number, entryId: string, chainHash: string): void {
    const missing = entrySeq - this.tail.entrySeq;
    if (missing > 0) {
      if (!this.damage.some(({ kind }) => kind === "lost_entries"))
        this.tell("lost_entries", 0, 0, `${missing} entries that the ${mark} counts are in no segment`, false);
    } else if (entrySeq > 0 && this.nodes.position(entryId) < 0)
      this.tell("bad_line", 0, 0, `the ${mark} ends with the entry ${entryId}, which is not there`, false);
    else if (missing === 0 && chainHash !== this.tail.chainHash)
      this.tell("bad_line", 0, 0, `the chain of payload hashes is not the one of the ${mark}`, false);
    else return;
    this.refuseWrites();
  }

  /**
   * Drops the last entries if they are an incomplete batch: entries that were appended together, but never
   * acknowledged.
   */
  private dropIncompleteBatch(): void {
    const last = this.nodes.count - 1;
    if (last < 0 || !this.nodes.isBatch(last) || this.readOnly?.name === "corrupt") return;
    const batch = this.batchOf(last);
    if (!batch || batch.index >= batch.count - 1) return;
    let first = last;
    for (let index = batch.index - 1; index >= 0 && first > 0; index--, first--) {
      const before = this.batchOf(first - 1);
      if (before?.index !== index || before.count !== batch.count || before.key !== batch.key) break;
    }
    const before = this.befores.find(({ position }) => position === first);
    if (!before || this.isMarkedAfter(before.tail.entrySeq)) return;
    this.report("incomplete_batch", first, `${batch.index + 1} of ${batch.count} entries that belong together`, false);
    this.remains = {
      segmentSeq: this.places.segments.values[first],
      start: this.places.starts.values[first],
      ours: this.remains?.ours ?? true,
      isAsJudged: this.judgedSegments,
    };
    if (before.indexEnd < this.indexEnd) this.indexFault ??= "its last rows are of entries that were never whole";
    this.tail = before.tail;
    this.indexEnd = before.indexEnd;
    this.lastRow = { length: 0, crc: 0 };
    this.rows.length = before.rows;
    this.replayed = this.rows.length;
    this.forgetFrom(first);
    if (this.base && this.base.count > first) this.noteBase();
  }

  /** Whether the manifest or the last checkpoint names a later entry, so that what comes next was acknowledged. */
  private isMarkedAfter(entrySeq: number): boolean {
    const manifest = readManifest(this.disk, manifestFile(this.folder));
    if (manifest !== null && manifest.head.entrySeq > entrySeq) return true;
    const checkpoint = lastCheckpoint(this.disk, this.folder);
    return checkpoint !== null && checkpoint.headEntrySeq > entrySeq;
  }

  private batchOf(position: number): Batch | null {
    if (!this.nodes.isBatch(position)) return null;
    const batch = (parse(this.read(position)) as { _batch?: Batch })._batch;
    const counts = Number.isInteger(batch?.index) && Number.isInteger(batch?.count);
    return counts && batch?.session === this.header.id && batch.index >= 0 ? batch : null;
  }

  protected forgetFrom(count: number): void {
    this.nodes.truncate(count);
    for (const lines of [this.overrides, this.standIns])
      for (const position of lines.keys()) if (position >= count) lines.delete(position);
  }

  // --- other writers -------------------------------------------------------------------------------------------

  refresh(): Change {
    if (this.closed || !this.key) return { kind: "none" };
    const first = this.nodes.count;
    const { seen } = this;
    const restore = this.image(first);
    try {
      const now = this.infoOrNull(indexFile(this.folder));
      if (!now) {
        if (!this.infoOrNull(headerFile(this.folder))) return { kind: "gone" };
        return { kind: seen ? "replaced" : "none" };
      }
      if (!seen || !isSameFile(now, seen)) return { kind: "replaced" };
      if (isSameStamp(now, seen)) return { kind: "none" };
      if (now.size < this.indexEnd) return { kind: "replaced" };
      const fd = this.disk.openRead(indexFile(this.folder));
      try {
        // Rows that are added from here on are for the next refresh: they name frames that are not in these segments.
        const before = this.disk.infoOf(fd);
        const { fault, known } = this.takeRows(fd, this.segments(), before.size);
        if (fault !== null || !known) {
          // Until another log replaces it, this one keeps what it knew.
          restore();
          return { kind: "replaced" };
        }
        this.seen = before;
      } finally {
        closeQuietly(this.disk, fd);
      }
    } catch (error) {
      restore();
      throw storageFailure(error, "looking at the session");
    }
    this.window = null;
    this.befores = [];
    this.noteBase();
    return this.nodes.count === first ? { kind: "none" } : { kind: "grown", first };
  }

  protected infoOrNull(path: string): FileInfo | null {
    try {
      return this.disk.info(path);
    } catch (error) {
      if (isMissing(error)) return null;
      throw error;
    }
  }

  // --- reading -------------------------------------------------------------------------------------------------

  length(position: number): number {
    return this.overrides.get(position)?.length ?? this.places.payloadLengths.values[position];
  }

  read(position: number): Uint8Array {
    this.demandOpen();
    const override = this.overrides.get(position);
    if (override) return override;
    const { segments, starts, lengths } = this.places;
    const { bytes, isKnown } = this.knownBytes(
      segments.values[position],
      starts.values[position],
      lengths.values[position],
    );
    return this.sound(position, bytes, isKnown);
  }

  *readMany(positions: ArrayLike<number>): Iterable<Uint8Array> {
    this.demandOpen();
    for (const run of this.runs(positions)) {
      if (run.override) {
        yield run.override;
        continue;
      }
      const { bytes, isKnown } = this.knownBytes(run.segmentSeq, run.start, run.length);
      const isText = isUtf8(bytes);
      for (let i = run.first; i < run.past; i++) {
        const at = this.places.starts.values[positions[i]] - run.start;
        const frame = bytes.subarray(at, at + this.places.lengths.values[positions[i]]);
        yield this.sound(positions[i], frame, isKnown, isText);
      }
    }
  }

  *copy(positions: ArrayLike<number>): Iterable<Uint8Array> {
    this.demandOpen();
    for (const run of this.runs(positions)) {
      if (run.override) {
        yield concat([run.override, LF]);
        continue;
      }
      const { bytes, isKnown } = this.knownBytes(run.segmentSeq, run.start, run.length);
      const pieces: Uint8Array[] = [];
      for (let i = run.first; i < run.past; i++) {
        const position = positions[i];
        const at = this.places.starts.values[position] - run.start;
        const frame = bytes.subarray(at, at + this.places.lengths.values[position]);
        let line = this.payloadIn(frame, 0, position);
        // A damaged frame is copied as it is if it is still a line; else it may have moved, and is looked for.
        const isFrame = frame[frame.length - 1] === 0x0a && line.indexOf(0x0a) < 0;
        if (isKnown && !isFrame) line = this.sound(position, frame, isKnown);
        const isOurs = isKnown || this.standIns.has(position) || this.isWhole(position, frame);
        if (!isOurs || line.indexOf(0x0a) >= 0)
          throw new Failure(
            "storage_failed",
            "Another program is changing the session's files. Nothing was done; ask again.",
            {},
            { retryable: true },
          );
        pieces.push(line, LF);
      }
      yield concat(pieces);
    }
  }

  /** Yields runs of adjacent frames; a run ends when it has reached the length of a chunk. */
  private *runs(positions: ArrayLike<number>): Generator<{
    first: number;
    past: number;
    segmentSeq: number;
    start: number;
    length: number;
    override?: Uint8Array;
  }> {
    const { segments, starts, lengths } = this.places;
    for (let first = 0; first < positions.length; ) {
      const override = this.overrides.get(positions[first]);
      if (override) {
        yield { first, past: first + 1, segmentSeq: 0, start: 0, length: 0, override };
        first++;
        continue;
      }
      let length = lengths.values[positions[first]];
      let past = first + 1;
      while (
        past < positions.length &&
        length < CHUNK &&
        !this.overrides.has(positions[past]) &&
        this.places.follows(positions[past - 1], positions[past])
      )
        length += lengths.values[positions[past++]];
      const { [positions[first]]: start } = starts.values;
      yield { first, past, segmentSeq: segments.values[positions[first]], start, length };
      first = past;
    }
  }

  attachment(position: number, sha256: string, sizeBytes: number): string | null {
    try {
      const bytes = readWhole(this.disk, join(attachmentFolder(this.folder), sha256));
      if (bytes.length === sizeBytes && this.env.sha256(bytes) === sha256)
        return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
    } catch {
      // Reported below.
    }
    const entryId = this.nodes.id(position);
    if (!this.damage.some((found) => found.kind === "missing_blob" && found.entryId === entryId))
      this.report("missing_blob", position, `the attachment ${sha256} is missing or damaged`, false);
    return null;
  }

  private payload(position: number): Uint8Array {
    const { segments, starts, payloadStarts, payloadLengths } = this.places;
    return this.bytes(
      segments.values[position],
      starts.values[position] + payloadStarts.values[position],
      payloadLengths.values[position],
    );
  }

  private payloadIn(frame: Uint8Array, at: number, position: number): Uint8Array {
    const start = at + this.places.payloadStarts.values[position];
    return frame.subarray(start, start + this.places.payloadLengths.values[position]);
  }

  protected demandOpen(): void {
    if (this.closed) throw new Failure("storage_failed", "The session was closed while it was in use. Open it again.");
  }

  private bytes(segmentSeq: number, start: number, length: number): Buffer {
    this.demandOpen();
    const bytes = Buffer.allocUnsafe(length);
    try {
      readAll(this.disk, this.segmentFd(segmentSeq), bytes, start);
    } catch (error) {
      throw storageFailure(error, "reading an entry");
    }
    return bytes;
  }

  /**
   * Reads bytes of a segment. `isKnown`: nothing can have changed them since they became known, so that earlier checks
   * still hold.
   */
  private knownBytes(segmentSeq: number, start: number, length: number): { bytes: Buffer; isKnown: boolean } {
    const since = clockOf(this.disk);
    const bytes = this.bytes(segmentSeq, start, length);
    try {
      const fd = this.segmentFd(segmentSeq);
      const watched = this.watchedSegment(segmentSeq);
      const found = watched.since(fd, since);
      if (found === "renewed") this.checked.values.fill(0);
      else if (found === "unsure") this.watchAnew(watched, fd);
      return { bytes, isKnown: found !== "unsure" };
    } catch (error) {
      throw storageFailure(error, "reading an entry");
    }
  }

  private watchedSegment(segmentSeq: number): Watched {
    let watched = this.watched.get(segmentSeq);
    if (!watched) {
      watched = new Watched(this.disk);
      this.watched.set(segmentSeq, watched);
    }
    return watched;
  }

  /** Records the present stamp of a segment if it is another than before, and forgets earlier checks of its bytes. */
  private watchAnew(watched: Watched, fd: number): void {
    const now = this.disk.infoOf(fd);
    if (watched.seen && isSameStamp(now, watched.seen)) return;
    if (watched.seen) this.checked.values.fill(0);
    watched.note(now);
  }

  protected segmentFd(segmentSeq: number): number {
    const known = this.segmentFds.get(segmentSeq);
    if (known !== undefined) return known;
    if (this.segmentFds.size >= OPEN_SEGMENTS) {
      const [oldest] = this.segmentFds.keys();
      this.forgetSegment(oldest);
    }
    const fd = this.disk.openRead(segmentFile(this.folder, segmentSeq));
    this.segmentFds.set(segmentSeq, fd);
    this.watchAnew(this.watchedSegment(segmentSeq), fd);
    return fd;
  }

  /** Records the stamp that our own write gave to a segment. */
  protected noteSegment(segmentSeq: number, info: FileInfo): void {
    this.watched.get(segmentSeq)?.note(info);
  }

  protected forgetSegment(segmentSeq: number): void {
    const fd = this.segmentFds.get(segmentSeq);
    if (fd !== undefined) closeQuietly(this.disk, fd);
    this.segmentFds.delete(segmentSeq);
  }

  protected closeSegments(): void {
    for (const seq of [...this.segmentFds.keys()]) this.forgetSegment(seq);
  }

  /** Whether a frame has the checksum of its row, and a payload that is the JSON of an entry. */
  private isWhole(position: number, frame: Uint8Array): boolean {
    const payload = this.payloadIn(frame, 0, position);
    if (crc32c(frame) !== this.places.crcs.values[position] || !isUtf8(payload)) return false;
    return this.bodies.read(payload, 0, payload.length);
  }

  /**
   * Returns the payload of a frame that is what was written, else a placeholder. A frame that was checked before is
   * checked again when its segment may have changed since.
   */
  private sound(position: number, frame: Uint8Array, isKnown: boolean, isText = isUtf8(frame)): Uint8Array {
    const known = this.standIns.get(position);
    if (known) return known;
    const payload = this.payloadIn(frame, 0, position);
    if (isText && isKnown && this.checked.values[position] && payload.indexOf(0x0a) < 0) return payload;
    if (this.isWhole(position, frame)) {
      if (isKnown) this.checked.set(position, 1);
      this.nodes.noteMessage(position, this.bodies.messageStart);
      return payload;
    }
    const elsewhere = this.readElsewhere(position, frame);
    if (elsewhere) return elsewhere;
    const standIn = this.standInFor(position);
    this.report("bad_body", position, "the frame's bytes are not those that were written", false);
    this.nodes.lose(position);
    this.standIns.set(position, standIn);
    // The invariants of the store no longer hold (INV-005), and only a repair restores them.
    if (!this.readOnly) this.refuseWrites();
    return standIn;
  }

  /**
   * Returns the payload of a frame that is not what was written at its recorded place: of the first frame in its
   * segment that has its checksum, else of the one at that place if it is consistent in itself, because then the
   * checksum is wrong. Returns null when there is neither.
   */
  private readElsewhere(position: number, frame: Uint8Array): Uint8Array | null {
    const { segments, starts, lengths } = this.places;
    const segmentSeq = segments.values[position];
    const start = this.startsIn(segmentSeq).get(position);
    if (start !== undefined) {
      const bytes = this.bytes(segmentSeq, start, lengths.values[position]);
      if (this.isWhole(position, bytes)) {
        this.reportMoved(position, start);
        starts.set(position, start);
        if (this.base?.count === position + 1) this.base = { ...this.base, lastFrame: this.frameCrc(position) };
        this.nodes.noteMessage(position, this.bodies.messageStart);
        return this.payloadIn(bytes, 0, position);
      }
    }
    const payload = this.selfConsistent(position, frame);
    if (payload === null) return null;
    this.report("bad_index", position, "the frame is whole, but its checksum in the index is another", true);
    if (!this.readOnly) this.refuseWrites();
    this.overrides.set(position, payload);
    return payload;
  }

  /** Reports, once for each segment, that its frames moved. The invariants of the store do not hold (INV-003). */
  private reportMoved(position: number, start: number): void {
    const segmentSeq = this.places.segments.values[position];
    if (!this.moved.has(segmentSeq))
      this.report("bad_index", position, `the frame is at byte ${start}, not where the index says`, true);
    this.moved.add(segmentSeq);
    if (!this.readOnly) this.refuseWrites();
  }

  /** Returns the payload of a frame that has its own hash and matches the entry of this position; else null. */
  private selfConsistent(position: number, bytes: Uint8Array): Uint8Array | null {
    const { nodes, heads } = this;
    if (bytes[bytes.length - 1] !== 0x0a) return null;
    try {
      const frame = decodeFrame(bytes, 0, bytes.length - 1);
      this.demandBound(bytes, frame);
      const parent = nodes.parent(position);
      const parentId = parent >= 0 ? nodes.id(parent) : (nodes.missingParent.get(position) ?? null);
      const isSame = frame.entryId === nodes.id(position) && frame.parentEntryId === parentId;
      if (!isSame || heads.type !== nodes.typeCode(nodes.type(position))) return null;
      return bytes.slice(frame.payloadStart, frame.payloadEnd);
    } catch (error) {
      if (error instanceof Malformed) return null;
      throw error;
    }
  }

  /**
   * Returns the starts of frames in a segment that are not at their recorded places, by position. A segment is searched
   * once for as long as it stays as it is.
   */
  private startsIn(segmentSeq: number): ReadonlyMap<number, number> {
    try {
      return this.searchSegment(segmentSeq);
    } catch (error) {
      throw storageFailure(error, "reading an entry");
    }
  }

  private searchSegment(segmentSeq: number): ReadonlyMap<number, number> {
    const fd = this.segmentFd(segmentSeq);
    const info = this.disk.infoOf(fd);
    const known = this.searched.get(segmentSeq);
    if (known && isSameStamp(known.info, info)) return known.starts;
    const { segments, starts, lengths, crcs } = this.places;
    const wanted = new Map<string, number[]>();
    const keyOf = (crc: number, length: number): string => `${crc} ${length}`;
    for (let position = this.nodes.count - 1; position >= 0; position--) {
      if (segments.values[position] !== segmentSeq) continue;
      const key = keyOf(crcs.values[position], lengths.values[position]);
      const same = wanted.get(key);
      if (same) same.push(position);
      else wanted.set(key, [position]);
    }
    const found = new Map<number, number>();
    const isHit = (start: number, b: Uint8Array, first: number, end: number): boolean => {
      const position = wanted.get(keyOf(crc32c(b, first, end + 1), end - first + 1))?.pop();
      if (position !== undefined && starts.values[position] !== start) found.set(position, start);
      return position !== undefined;
    };
    const look = (at: number, b: Uint8Array, first: number, end: number): void => {
      if (end - first < LEAST_FRAME || isHit(at, b, first, end)) return;
      for (const glued of gluedFrames(b, first, end)) if (isHit(at + glued - first, b, glued, end)) return;
    };
    scanLines(this.disk, fd, 0, 0, this.wholeLines(segmentSeq, null, look), Buffer.allocUnsafe(CHUNK));
    this.searched.set(segmentSeq, { info, starts: found });
    return found;
  }

  private standInFor(position: number): Uint8Array {
    const { nodes } = this;
    const parent = nodes.parent(position);
    return bytesOf(
      JSON.stringify({
        type: nodes.type(position),
        id: nodes.id(position),
        parentId: parent < 0 ? null : nodes.id(parent),
        timestamp: new Date(0).toISOString(),
        damaged: true,
      }),
    );
  }

  // --- damage --------------------------------------------------------------------------------------------------

  protected tell(kind: Damage["kind"], byteOffset: number, length: number, reason: string, salvaged: boolean): void {
    this.damage.push({ kind, line: 0, byteOffset, length, reason, salvaged });
  }

  protected report(kind: Damage["kind"], position: number, reason: string, salvaged: boolean): void {
    this.damage.push({
      kind,
      line: 0,
      byteOffset: this.places.starts.values[position],
      length: this.places.lengths.values[position],
      entryId: this.nodes.id(position),
      reason: `${reason} (segment ${this.places.segments.values[position]})`,
      salvaged,
    });
  }
}
