/** The end of a container as it is known, in one value. */

import type { FileInfo } from "../fs/disk.ts";
import { EMPTY_END, EMPTY_TAIL, type RowMark, type StoreEnd, type Tail } from "./extents.ts";
import type { Segment } from "./segments.ts";

/** Leftovers that the first write cuts off. */
export interface TornTail {
  /** End of the valid frames. What follows is cut off, and moved to quarantine first unless it was written by us. */
  readonly segmentSeq: number;
  readonly start: number;
  readonly ours: boolean;
  /** Whether a segment holds, from this byte on, what it held when it was examined. */
  readonly isAsJudged: (segment: Segment, start: number) => boolean;
}

/** The end before an entry of a batch, in case the batch has to be dropped. */
interface RollbackPoint {
  readonly position: number;
  readonly tail: Tail;
  readonly indexEnd: number;
  readonly rows: number;
}

/** The part of a container that need not be examined again: what its index names, up to a place. */
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

  /** Returns a function that makes this end what it is now. */
  image(): () => void {
    const image = { ...this, rows: [...this.rows] };
    return () => Object.assign(this, image);
  }
}
