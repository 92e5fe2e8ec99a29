/** The byte ranges of a store's frames, in columns, and the end of the store as it is known. */

import { Column } from "../../core/tree/nodes.ts";
import type { FileInfo } from "../fs/disk.ts";
import type { SnapshotColumn } from "../log/snapshot-cache.ts";
import { formatCrc } from "./crc32c.ts";
import { type Coordinates, extendChain, GENESIS, NO_CRC } from "./frame.ts";
import type { Segment } from "./segments.ts";

/** The byte range of one frame, and of the payload in it. */
export interface FrameExtent {
  readonly segmentSeq: number;
  /** Start of the frame in its segment. */
  readonly start: number;
  /** Length of the frame, line feed included. */
  readonly length: number;
  /** Start of the payload, counted from the start of the frame. */
  readonly payloadStart: number;
  readonly payloadLength: number;
  readonly crc: number;
}

/** Names of the stored columns. */
const COLUMNS = ["segments", "starts", "lengths", "payloadStarts", "payloadLengths", "crcs"] as const;

/** Places by position. */
export class Extents {
  readonly segments: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly starts: Column<Float64Array> = new Column(new Float64Array(16));
  readonly lengths: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly payloadStarts: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly payloadLengths: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly crcs: Column<Uint32Array> = new Column(new Uint32Array(16));

  set(position: number, place: FrameExtent): void {
    this.segments.set(position, place.segmentSeq);
    this.starts.set(position, place.start);
    this.lengths.set(position, place.length);
    this.payloadStarts.set(position, place.payloadStart);
    this.payloadLengths.set(position, place.payloadLength);
    this.crcs.set(position, place.crc);
  }

  at(position: number): FrameExtent {
    return {
      segmentSeq: this.segments.values[position],
      start: this.starts.values[position],
      length: this.lengths.values[position],
      payloadStart: this.payloadStarts.values[position],
      payloadLength: this.payloadLengths.values[position],
      crc: this.crcs.values[position],
    };
  }

  /** Returns views of the columns by their names, as far as `count`. */
  columns(count: number): Record<string, SnapshotColumn> {
    return Object.fromEntries(COLUMNS.map((name) => [name, this[name].values.subarray(0, count)]));
  }

  /** Replaces the columns by these. */
  load(columns: Readonly<Record<string, SnapshotColumn>>): void {
    for (const name of COLUMNS) this[name].values = columns[name] as never;
  }
}

/** The end of a store: the values that the next frame continues and a manifest repeats. */
export interface Tail {
  /** Number of the last segment; 0 for an empty store. */
  readonly segmentSeq: number;
  /** Number of the last frame in that segment. */
  readonly frameSeq: number;
  /** End of the frames in that segment. */
  readonly segmentSize: number;
  /** Number of the last entry. */
  readonly entrySeq: number;
  readonly chainHash: string;
  /** Checksum of the last frame, as text. */
  readonly lastCrc: string;
  /** Bytes of all frames. */
  readonly bytesTotal: number;
  readonly segmentCount: number;
}

export const EMPTY_TAIL: Tail = {
  segmentSeq: 0,
  frameSeq: 0,
  segmentSize: 0,
  entrySeq: 0,
  chainHash: GENESIS,
  lastCrc: NO_CRC,
  bytesTotal: 0,
  segmentCount: 0,
};

/** Returns the end of the store after a frame that follows `tail` and lies at `start`. */
export function advanceTail(
  tail: Tail,
  { segmentSeq, frameSeq, entrySeq }: Coordinates,
  payloadSha256: string,
  start: number,
  length: number,
  crc: number,
): Tail {
  return {
    segmentSeq,
    frameSeq,
    segmentSize: start + length,
    entrySeq,
    chainHash: extendChain(tail.chainHash, payloadSha256),
    lastCrc: formatCrc(crc),
    bytesTotal: tail.bytesTotal + length,
    segmentCount: tail.segmentCount + (segmentSeq === tail.segmentSeq ? 0 : 1),
  };
}

/** Length and checksum of an index row; length 0 if there is no row to compare with. */
export interface RowMark {
  readonly length: number;
  readonly crc: number;
}

/** The end of a store in both kinds of its files. */
export interface StoreEnd {
  readonly tail: Tail;
  /** Bytes of the index that hold rows of known entries. */
  readonly indexEnd: number;
  /** The last row before `indexEnd`. */
  readonly lastRow: RowMark;
}

export const EMPTY_END: StoreEnd = { tail: EMPTY_TAIL, indexEnd: 0, lastRow: { length: 0, crc: 0 } };

/** Leftovers that the first write cuts off. */
export interface TornTail {
  /** End of the valid frames. What follows is cut off, and moved to quarantine first unless it was written by us. */
  readonly segmentSeq: number;
  readonly start: number;
  readonly ours: boolean;
  /** Returns whether a segment has, from this byte on, the same content as when it was read. */
  readonly isAsRead: (segment: Segment, start: number) => boolean;
}

/** The end before an entry of a batch, in case the batch has to be dropped. */
interface RollbackPoint {
  readonly position: number;
  readonly tail: Tail;
  readonly indexEnd: number;
  readonly rows: number;
}

/** The part of a container that need not be examined again: its indexed entries, up to a place. */
export interface Base extends StoreEnd {
  readonly count: number;
  readonly aliases: number;
  /** Checksum of the bytes of its last frame, valid or not; null when they cannot be read, or are very many. */
  readonly lastFrame: number | null;
}

/**
 * The known end. These hold between any two calls of a log:
 *
 * - `tail` is the end of the last known entry's frame. The index names the known entries but the last `rows.length`,
 *   with its first `indexEnd` bytes; `lastRow` is the last of those rows.
 * - With an `indexFault`, or with `tornTail`, nothing is appended before the first write has cut these off.
 * - `base` and `durable` are at or before this end, and `base` is at or before the entries in `rows`.
 */
export class ContainerEnd implements StoreEnd {
  tail: Tail = EMPTY_TAIL;
  /** Rows of the last entries, which the index does not hold yet. */
  rows: string[] = [];
  /** Bytes of the index that hold rows of known entries. */
  indexEnd = 0;
  lastRow: RowMark = EMPTY_END.lastRow;
  /** Reason why the index is wrong after `indexEnd`, or missing; null when it is neither. */
  indexFault: string | null = null;
  /** The index as it was last seen; any other stamp is another process's doing. */
  seen: FileInfo | undefined;
  tornTail: TornTail | null = null;
  /** The ends before the entries of the batch that was read last; empty when the last entry is in none. */
  batch: RollbackPoint[] = [];
  /** Number of entries that were found after the index at opening. */
  replayed = 0;
  /** The part that need not be examined again; null while entries are known that the index does not name. */
  base: Base | null = null;
  /** Numbers of the entries whose chain a reading has to record, because a mark names them. */
  readonly awaited = new Set<number>();
  /** The hash chain at durable entries, by their numbers. */
  readonly chains = new Map<number, string>();
  durable: StoreEnd = EMPTY_END;

  goTo({ tail, indexEnd, lastRow }: StoreEnd): void {
    this.tail = tail;
    this.indexEnd = indexEnd;
    this.lastRow = lastRow;
  }

  /** Goes back to the end of a part that need not be examined again. */
  restart(base: StoreEnd): void {
    this.goTo(base);
    this.rows = [];
    this.batch = [];
    this.tornTail = null;
    this.replayed = 0;
    this.indexFault = null;
  }

  /** Returns a function that restores the present end. */
  image(): () => void {
    const image = { ...this, rows: [...this.rows] };
    return () => Object.assign(this, image);
  }
}
