/**
 * Which frames are whole in segments whose bytes are not where the index says: every line is looked at once, in memory
 * that grows with the frames and not with the garbage between them. The rows that can be read tell which frame an entry
 * has; where there is none, a frame that agrees with itself is believed.
 */

import { isJson } from "../../core/json/json.ts";
import {
  crc32c,
  crcText,
  decodeFrame,
  decodeHead,
  FRAME_SCHEMA,
  type Frame,
  type IndexRow,
  Malformed,
} from "./frame.ts";
import type { Tail } from "./places.ts";

/** No frame is shorter: its schema, hash and names of members alone take 220 bytes. */
export const LEAST_FRAME = 220;
/** No shorter line names an entry: what comes before the id in the shortest has 30 bytes. */
const LEAST_NAMED = 30;
/** How many times the length of a line is read again, at most, for the frames that may end with it. */
const REREADS = 4;
/** So many rows of one entry are looked at: one is right, and damage rarely makes a second. */
const SAME_ROWS = 4;
const BEGINNING = Buffer.from(`{"schema":"${FRAME_SCHEMA}","segmentSeq":`);

/** A stretch of a segment that is no frame, or none that counts. */
export interface Bad {
  readonly segmentSeq: number;
  readonly start: number;
  readonly end: number;
  readonly reason: string;
}

/** A frame and where it lies; where `row` is given, it is that row's. */
export interface FoundFrame {
  readonly segmentSeq: number;
  readonly start: number;
  /** Line feed included. */
  readonly length: number;
  readonly row: IndexRow | null;
  /** Its bytes are not those that were written, but its head tells which entry it is of. */
  readonly isDamaged: boolean;
}

/** What is read of the entry in a frame. */
export interface Entries {
  /** Throws {@link Malformed} unless a frame tells of the entry in it. */
  demandBound(b: Uint8Array, frame: Frame): void;
  /** Returns the id of the entry that seems to be in a line that is no frame. */
  idIn(b: Uint8Array, first: number, end: number): string | null;
}

interface Piece {
  readonly segmentSeq: number;
  readonly start: number;
  end: number;
  /** Null for what is no frame. */
  readonly frame: { readonly entrySeq: number; readonly entryId: string; readonly row: IndexRow | null } | null;
  readonly reason: string;
  /** A row that the head of a line that is no frame agrees with. */
  readonly named: IndexRow | null;
  isTaken: boolean;
}

/** Whether a frame is the one that a row names. */
export function isOf(frame: Frame, row: IndexRow): boolean {
  return (
    frame.entrySeq === row.entrySeq &&
    frame.entryId === row.entryId &&
    frame.segmentSeq === row.segmentSeq &&
    frame.frameSeq === row.frameSeq
  );
}

/** Whether rows follow each other without a gap: two that became one, or one that is wrong, do not. */
function follow(rows: readonly IndexRow[], tail: Tail): boolean {
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
 * Returns where in a line whole frames may begin that end with it, but for its own beginning: the bytes before them lost
 * their line feed. The last one comes first, for only the text of an entry holds others.
 */
export function* gluedFrames(b: Uint8Array, first: number, end: number): Generator<number> {
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
  /** Rows whose frame was found with their checksum, or the head of it. */
  private readonly settled = new Set<IndexRow>();
  /** Rows of entries that a line seems to hold which is no frame. */
  private readonly named = new Set<IndexRow>();
  /** Frames that are whole, and no entries of the session. */
  private strangers = 0;
  /** Whether a line that is no frame is a whole one all the same, so that somebody else changed or wrote it. */
  hasWholeLines = false;
  private readonly isIntact: boolean;
  private readonly indexed: number;
  private readonly entries: Entries;

  /** `rows`: those of the index after `tail`, in its order. `isIntact`: none of them was illegible. */
  constructor(rows: readonly IndexRow[], isIntact: boolean, tail: Tail, entries: Entries) {
    const indexed = tail.entrySeq;
    this.isIntact = isIntact && follow(rows, tail);
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

  /** Whether the index allows that a frame is the next one: no row names its number, or one has its checksum. */
  allows({ entrySeq }: Frame, length: number, crc: number): boolean {
    const rows = this.bySeq.get(entrySeq);
    if (rows === undefined) return true;
    const exact = rows.find((row) => row.byteLength === length && row.crc32c === crcText(crc));
    if (exact) this.settled.add(exact);
    return exact !== undefined;
  }

  /** The frame that was found for a row is not there any more. */
  giveUp(row: IndexRow): void {
    this.settled.delete(row);
  }

  /** Returns how many entries rows name that were not found. */
  unsettled(isKnown: (entryId: string) => boolean): number {
    let count = 0;
    for (const rows of this.bySeq.values())
      if (!rows.some((row) => this.settled.has(row) || isKnown(row.entryId))) count++;
    return count;
  }

  /** Takes note of the line `b[first, end)`, line feed excluded, that begins at `start` of a segment. */
  line(segmentSeq: number, start: number, b: Uint8Array, first: number, end: number, limit: number): void {
    let reason = "it is too short";
    if (end - first >= LEAST_FRAME) {
      try {
        this.frame(segmentSeq, start, b, first, end, limit);
        return;
      } catch (error) {
        if (!(error instanceof Malformed)) throw error;
        reason = error.message;
      }
      for (const at of gluedFrames(b, first, end))
        try {
          this.frame(segmentSeq, start + at - first, b, at, end, limit, () =>
            this.bad(segmentSeq, start, start + at - first, reason, this.namedBy(b, first, at)),
          );
          return;
        } catch (error) {
          if (!(error instanceof Malformed)) throw error;
        }
    }
    // What is cut off while it is written has no line feed, and no power cut leaves a line that is whole.
    this.hasWholeLines ||= end > first && isJson(b, first, end);
    this.bad(segmentSeq, start, start + end - first + 1, reason, this.namedBy(b, first, end));
  }

  /** Takes note of a stretch that is no frame. `named`: the row of the entry whose frame it was. */
  bad(segmentSeq: number, start: number, end: number, reason: string, named: IndexRow | null = null): void {
    const last = this.pieces.at(-1);
    const isMore = named === null && last?.frame === null && last.named === null;
    if (isMore && last.segmentSeq === segmentSeq && last.end === start) last.end = end;
    else this.pieces.push({ segmentSeq, start, end, frame: null, reason, named, isTaken: false });
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
    // Until it is found to be an entry of the session, somebody else wrote it.
    this.strangers++;
    this.entries.demandBound(b, frame);
    const { entrySeq, entryId } = frame;
    if (entrySeq > limit) return;
    const length = end - first + 1;
    const crc = crcText(crc32c(b, first, end + 1));
    const rows = this.bySeq.get(entrySeq) ?? [];
    const exact = rows.find((row) => row.byteLength === length && row.crc32c === crc && !this.settled.has(row));
    // The text of an entry may hold frames, and what is around them be lost.
    if (before && !exact && rows.length > 0) throw new Malformed("its row has another checksum");
    before?.();
    const row = exact ?? rows.find((row) => isOf(frame, row)) ?? null;
    if (exact) this.settled.add(exact);
    this.pieces.push({
      segmentSeq,
      start,
      end: start + length,
      frame: { entrySeq, entryId, row },
      reason: "its entry stands elsewhere whole, or the index names another",
      named: null,
      isTaken: exact !== undefined,
    });
  }

  /** Returns the row of the entry that a line seems to hold that is no frame, for the first such line. */
  private namedBy(b: Uint8Array, first: number, end: number): IndexRow | null {
    if (this.byId.size === 0 || end - first < LEAST_NAMED) return null;
    const head = decodeHead(b, first, end);
    let row = head === null ? undefined : this.byId.get(head.entryId);
    if (!head || !row || !isOf(head, row)) row = this.byId.get(this.entries.idIn(b, first, end) ?? "");
    if (!row || this.named.has(row)) return null;
    this.named.add(row);
    return row;
  }

  /**
   * Returns the frames that count, in the order of their entries, and all else. `isKnown`: whether an entry was found
   * before.
   */
  settle(isKnown: (entryId: string) => boolean): { found: FoundFrame[]; bad: Bad[]; strangers: number } {
    const { pieces, settled } = this;
    const taken = new Set<string>();
    for (const { frame, isTaken } of pieces) if (frame && isTaken) taken.add(frame.entryId);
    for (const piece of pieces) {
      const { frame } = piece;
      if (!frame || piece.isTaken || taken.has(frame.entryId) || isKnown(frame.entryId)) continue;
      if (!this.isBelievable(frame)) continue;
      piece.isTaken = true;
      taken.add(frame.entryId);
      if (frame.row) settled.add(frame.row);
    }
    // Of an entry that is nowhere whole, the first line that tells of it keeps its place in the tree.
    for (const piece of pieces) {
      const { named } = piece;
      if (!named || settled.has(named) || taken.has(named.entryId) || isKnown(named.entryId)) continue;
      piece.isTaken = true;
      settled.add(named);
      taken.add(named.entryId);
    }
    return this.inOrder();
  }

  /** Whether a frame that no row has the checksum of is an entry of the session. */
  private isBelievable({ entrySeq, row }: NonNullable<Piece["frame"]>): boolean {
    if (entrySeq <= this.indexed) return false;
    const rows = this.bySeq.get(entrySeq);
    if (rows === undefined) return true;
    if (row) return !this.settled.has(row);
    // Of an index that is damaged too, a row may be the one that is wrong.
    return !this.isIntact && !rows.some((other) => this.settled.has(other));
  }

  private inOrder(): { found: FoundFrame[]; bad: Bad[]; strangers: number } {
    const found: { key: number; piece: Piece }[] = [];
    const bad: Bad[] = [];
    let key = this.indexed;
    for (const piece of this.pieces) {
      const { frame, named, isTaken, segmentSeq, start, end, reason } = piece;
      if (frame === null || !isTaken) {
        const last = bad.at(-1);
        if (last?.segmentSeq === segmentSeq && last.end === start) bad[bad.length - 1] = { ...last, end };
        else bad.push({ segmentSeq, start, end, reason });
        if (!isTaken) continue;
      }
      if (frame !== null) this.strangers--;
      // What no row names comes after what lies before it.
      key = frame?.row?.entrySeq ?? named?.entrySeq ?? key;
      found.push({ key, piece });
    }
    found.sort((a, b) => a.key - b.key);
    return {
      bad,
      strangers: this.strangers,
      found: found.map(({ piece: { segmentSeq, start, end, frame, named } }) => {
        const row = frame === null ? named : frame.row;
        return { segmentSeq, start, length: end - start, row, isDamaged: frame === null };
      }),
    };
  }
}
