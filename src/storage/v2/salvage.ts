/**
 * Salvages whole frames from segments whose bytes are not at their indexed places. Every line is examined once, in memory
 * that grows with the frames and not with the garbage between them. Legible index rows decide which frame an entry has;
 * without a row, a frame that is consistent in itself is accepted.
 */

import { isJson } from "../../core/json/json.ts";
import type { KnownEntries } from "../log/known-entries.ts";
import { crc32c, formatCrc } from "./crc32c.ts";
import type { Tail } from "./extents.ts";
import { decodeFrame, decodeHead, FRAME_SCHEMA, type Frame, type IndexRow, Malformed } from "./frame.ts";
import { findEntryId, requireBound } from "./frame-entries.ts";

/** Bytes of the shortest possible frame: its schema, hash and member names alone take 220. */
export const MIN_FRAME = 220;
/** Bytes of the shortest line that can name an entry: as many come before its id. */
const MIN_NAMED = 30;
/** Multiple of a line's length that is read again, at most, to find the frames that may end with it. */
const REREADS = 4;
/** Most rows of one entry that are considered: one is right, and damage rarely makes a second. */
const SAME_ROWS = 4;
const BEGINNING = Buffer.from(`{"schema":"${FRAME_SCHEMA}","segmentSeq":`);

/** A byte range of a segment that is not a frame, or a frame that does not count. */
export interface Bad {
  readonly segmentSeq: number;
  readonly start: number;
  readonly end: number;
  readonly reason: string;
}

/** A frame and its place; `row` is the row that names it, if any. */
export interface FoundFrame {
  readonly segmentSeq: number;
  readonly start: number;
  /** Line feed included. */
  readonly length: number;
  readonly row: IndexRow | null;
  /** True if its bytes differ from the written ones, while its head still names the entry. */
  readonly isDamaged: boolean;
}

/** The entry of a frame, and the row that names it. */
interface PieceEntry {
  readonly entrySeq: number;
  readonly entryId: string;
  readonly row: IndexRow | null;
}

interface Piece extends Bad {
  end: number;
  readonly isFrame: boolean;
  /** The entry of a frame, or the one that a line which is not a frame seems to hold; null for none. */
  readonly entry: PieceEntry | null;
  isUsed: boolean;
}

/** Returns whether a frame is the one that a row names. */
export function isOf(frame: Frame, row: IndexRow): boolean {
  return (
    frame.entrySeq === row.entrySeq &&
    frame.entryId === row.entryId &&
    frame.segmentSeq === row.segmentSeq &&
    frame.frameSeq === row.frameSeq
  );
}

/** Returns whether rows follow the tail and each other without a gap. Merged or wrong rows do not. */
function areContiguous(rows: readonly IndexRow[], tail: Tail): boolean {
  let { entrySeq, segmentSeq, frameSeq, segmentSize } = tail;
  for (const row of rows) {
    const isNew = row.segmentSeq === segmentSeq + 1 && row.frameSeq === 1 && row.byteOffset === 0;
    const isNext = row.segmentSeq === segmentSeq && row.frameSeq === frameSeq + 1 && row.byteOffset === segmentSize;
    if (row.entrySeq !== entrySeq + 1 || !(isNew || isNext)) return false;
    ({ entrySeq, segmentSeq, frameSeq } = row);
    segmentSize = row.byteOffset + row.byteLength;
  }
  return true;
}

/**
 * Yields where whole frames may begin that end with the line, except at its own beginning: the bytes before them lost
 * their line feed. The last one comes first, because only the text of an entry holds others.
 */
export function* findGluedFrames(b: Uint8Array, first: number, end: number): Generator<number> {
  const line = Buffer.from(b.buffer, b.byteOffset + first, end - first);
  let left = REREADS * line.length;
  for (let at = line.lastIndexOf(BEGINNING); at > 0; at = line.lastIndexOf(BEGINNING, at - 1)) {
    if (decodeHead(line, at, line.length)?.payloadEnd !== line.length - 1) continue;
    left -= line.length - at;
    if (left < 0) return;
    yield first + at;
  }
}

export class Salvage {
  private readonly pieces: Piece[] = [];
  private readonly bySeq = new Map<number, IndexRow[]>();
  private readonly byId = new Map<string, IndexRow>();
  /** Rows whose frame was found: by its checksum, its numbers or its head. */
  private readonly foundRows = new Set<IndexRow>();
  /** Rows of entries that lines which are not frames seem to hold. */
  private readonly named = new Set<IndexRow>();
  /** Number of whole frames that are not entries of the session. */
  private strangers = 0;
  /** True if a line that is not a frame is complete JSON, so that another program changed or wrote it. */
  hasWholeLines = false;
  private readonly isIntact: boolean;
  private readonly indexed: number;
  private readonly entries: KnownEntries;

  /** Starts with the index rows after `tail`, in the order of the index. `isIntact`: all of them were legible. */
  constructor(rows: readonly IndexRow[], isIntact: boolean, tail: Tail, entries: KnownEntries) {
    const indexed = tail.entrySeq;
    this.isIntact = isIntact && areContiguous(rows, tail);
    this.indexed = indexed;
    this.entries = entries;
    for (const row of rows) {
      if (row.entrySeq <= indexed) continue;
      const same = this.bySeq.get(row.entrySeq);
      if (!same) this.bySeq.set(row.entrySeq, [row]);
      else if (same.length < SAME_ROWS) same.push(row);
      if (!this.byId.has(row.entryId)) this.byId.set(row.entryId, row);
    }
  }

  /** Returns whether the index allows a frame to be the next one: no row has its entry number, or one has its checksum. */
  allows({ entrySeq }: Frame, length: number, crc: number): boolean {
    const rows = this.bySeq.get(entrySeq);
    if (rows === undefined) return true;
    const exact = rows.find((row) => row.byteLength === length && row.crc32c === formatCrc(crc));
    if (exact) this.foundRows.add(exact);
    return exact !== undefined;
  }

  /** Notes that the frame of a row is not there after all. */
  abandon(row: IndexRow): void {
    this.foundRows.delete(row);
  }

  /** Returns how many entries that rows name were not found. */
  unsettled(isKnown: (entryId: string) => boolean): number {
    let count = 0;
    for (const rows of this.bySeq.values())
      if (!rows.some((row) => this.foundRows.has(row) || isKnown(row.entryId))) count++;
    return count;
  }

  /** Adds the line `b[first, end)`, line feed excluded, at byte `start` of a segment. Ignores entries after `limit`. */
  line(segmentSeq: number, start: number, b: Uint8Array, first: number, end: number, limit: number): void {
    let reason = "it is too short";
    if (end - first >= MIN_FRAME) {
      try {
        this.frame(segmentSeq, start, b, first, end, limit);
        return;
      } catch (error) {
        if (!(error instanceof Malformed)) throw error;
        reason = error.message;
      }
      for (const at of findGluedFrames(b, first, end))
        try {
          this.frame(segmentSeq, start + at - first, b, at, end, limit, () =>
            this.bad(segmentSeq, start, start + at - first, reason, this.namedBy(b, first, at)),
          );
          return;
        } catch (error) {
          if (!(error instanceof Malformed)) throw error;
        }
    }
    // A write that was cut off leaves no line feed, and a power cut leaves no complete JSON line.
    this.hasWholeLines ||= end > first && isJson(b, first, end);
    this.bad(segmentSeq, start, start + end - first + 1, reason, this.namedBy(b, first, end));
  }

  /** Adds a byte range that is not a frame. `named`: the row of the entry whose frame it was. */
  bad(segmentSeq: number, start: number, end: number, reason: string, named: IndexRow | null = null): void {
    const last = this.pieces.at(-1);
    const isMore = named === null && last?.entry === null;
    if (isMore && last.segmentSeq === segmentSeq && last.end === start) last.end = end;
    else {
      const entry = named && { entrySeq: named.entrySeq, entryId: named.entryId, row: named };
      this.pieces.push({ segmentSeq, start, end, isFrame: false, entry, reason, isUsed: false });
    }
  }

  private frame(
    segmentSeq: number,
    start: number,
    b: Uint8Array,
    first: number,
    end: number,
    limit: number,
    before?: () => void,
  ): void {
    const frame = decodeFrame(b, first, end);
    // It counts as another program's until it is found to be an entry of the session.
    this.strangers++;
    requireBound(this.entries, b, frame);
    const { entrySeq, entryId } = frame;
    if (entrySeq > limit) return;
    const length = end - first + 1;
    const crc = formatCrc(crc32c(b, first, end + 1));
    const rows = this.bySeq.get(entrySeq) ?? [];
    const exact = rows.find((row) => row.byteLength === length && row.crc32c === crc && !this.foundRows.has(row));
    // The text of an entry may hold frames, and the bytes around them may be lost.
    if (before && !exact && rows.length > 0) throw new Malformed("its row has another checksum");
    before?.();
    const row = exact ?? rows.find((row) => isOf(frame, row)) ?? null;
    if (exact) this.foundRows.add(exact);
    this.pieces.push({
      segmentSeq,
      start,
      end: start + length,
      isFrame: true,
      entry: { entrySeq, entryId, row },
      reason: "its entry is whole elsewhere, or the index names another",
      isUsed: exact !== undefined,
    });
  }

  /** Returns the row of the entry that a line which is not a frame seems to hold; null for a later line of it. */
  private namedBy(b: Uint8Array, first: number, end: number): IndexRow | null {
    if (this.byId.size === 0 || end - first < MIN_NAMED) return null;
    const head = decodeHead(b, first, end);
    let row = head === null ? undefined : this.byId.get(head.entryId);
    if (!head || !row || !isOf(head, row)) row = this.byId.get(findEntryId(this.entries.heads, b, first, end) ?? "");
    if (!row || this.named.has(row)) return null;
    this.named.add(row);
    return row;
  }

  /** Returns the frames that count, in the order of their entries, and all other byte ranges. */
  finish(isKnown: (entryId: string) => boolean): { found: FoundFrame[]; bad: Bad[]; strangers: number } {
    const { pieces, foundRows } = this;
    const taken = new Set<string>();
    for (const { entry, isUsed } of pieces) if (entry && isUsed) taken.add(entry.entryId);
    // An entry that is nowhere whole keeps its place in the tree by the first line that names it.
    for (const ofFrames of [true, false])
      for (const piece of pieces) {
        const { entry, isFrame, isUsed } = piece;
        if (!entry || isFrame !== ofFrames || isUsed || taken.has(entry.entryId) || isKnown(entry.entryId)) continue;
        if (isFrame ? !this.isBelievable(entry) : foundRows.has(entry.row as IndexRow)) continue;
        piece.isUsed = true;
        taken.add(entry.entryId);
        if (entry.row) foundRows.add(entry.row);
      }
    return this.inOrder();
  }

  /** Returns whether a frame is an entry of the session although no row has its checksum. */
  private isBelievable({ entrySeq, row }: PieceEntry): boolean {
    if (entrySeq <= this.indexed) return false;
    const rows = this.bySeq.get(entrySeq);
    if (rows === undefined) return true;
    if (row) return !this.foundRows.has(row);
    // If the index is damaged too, the row may be wrong.
    return !this.isIntact && !rows.some((other) => this.foundRows.has(other));
  }

  private inOrder(): { found: FoundFrame[]; bad: Bad[]; strangers: number } {
    const found: { key: number; piece: Piece }[] = [];
    const bad: Bad[] = [];
    let key = this.indexed;
    for (const piece of this.pieces) {
      const { isFrame, entry, isUsed, segmentSeq, start, end, reason } = piece;
      if (!isFrame || !isUsed) {
        const last = bad.at(-1);
        if (last?.segmentSeq === segmentSeq && last.end === start) bad[bad.length - 1] = { ...last, end };
        else bad.push({ segmentSeq, start, end, reason });
        if (!isUsed) continue;
      }
      if (isFrame) this.strangers--;
      // A frame that no row names follows the piece before it.
      key = entry?.row?.entrySeq ?? key;
      found.push({ key, piece });
    }
    found.sort((a, b) => a.key - b.key);
    return {
      bad,
      strangers: this.strangers,
      found: found.map(({ piece: { segmentSeq, start, end, isFrame, entry } }) => ({
        segmentSeq,
        start,
        length: end - start,
        row: entry?.row ?? null,
        isDamaged: !isFrame,
      })),
    };
  }
}
