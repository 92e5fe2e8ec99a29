/** Where the frames of a store lie: columns of byte ranges, and what its end is like. */

import { Column } from "../../core/tree/nodes.ts";
import { GENESIS, NO_CRC } from "./frame.ts";

/** Where one frame lies, and in it its payload. */
export interface FramePlace {
  readonly segmentSeq: number;
  /** Of the frame in its segment. */
  readonly start: number;
  /** Of the frame, line feed included. */
  readonly length: number;
  /** Of the payload, from the start of the frame. */
  readonly payloadStart: number;
  readonly payloadLength: number;
  readonly crc: number;
}

/** The columns of places, by the names under which they are kept. */
export type PlaceColumns = {
  readonly segments: Uint32Array;
  readonly starts: Float64Array;
  readonly lengths: Uint32Array;
  readonly payloadStarts: Uint32Array;
  readonly payloadLengths: Uint32Array;
  readonly crcs: Uint32Array;
};

/** Places by position. */
export class FramePlaces {
  readonly segments: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly starts: Column<Float64Array> = new Column(new Float64Array(16));
  readonly lengths: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly payloadStarts: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly payloadLengths: Column<Uint32Array> = new Column(new Uint32Array(16));
  readonly crcs: Column<Uint32Array> = new Column(new Uint32Array(16));

  set(position: number, place: FramePlace): void {
    this.segments.set(position, place.segmentSeq);
    this.starts.set(position, place.start);
    this.lengths.set(position, place.length);
    this.payloadStarts.set(position, place.payloadStart);
    this.payloadLengths.set(position, place.payloadLength);
    this.crcs.set(position, place.crc);
  }

  /** Takes over the place of a position that others have, at the same one or at another. */
  copy(from: FramePlaces, position: number, at = position): void {
    this.segments.set(at, from.segments.values[position]);
    this.starts.set(at, from.starts.values[position]);
    this.lengths.set(at, from.lengths.values[position]);
    this.payloadStarts.set(at, from.payloadStarts.values[position]);
    this.payloadLengths.set(at, from.payloadLengths.values[position]);
    this.crcs.set(at, from.crcs.values[position]);
  }

  /** Views of the columns by their names, as far as `count`. */
  columns(count: number): PlaceColumns {
    const { segments, starts, lengths, payloadStarts, payloadLengths, crcs } = this;
    return {
      segments: segments.values.subarray(0, count),
      starts: starts.values.subarray(0, count),
      lengths: lengths.values.subarray(0, count),
      payloadStarts: payloadStarts.values.subarray(0, count),
      payloadLengths: payloadLengths.values.subarray(0, count),
      crcs: crcs.values.subarray(0, count),
    };
  }

  /** Makes columns those of these places. */
  take(columns: PlaceColumns): void {
    this.segments.values = columns.segments;
    this.starts.values = columns.starts;
    this.lengths.values = columns.lengths;
    this.payloadStarts.values = columns.payloadStarts;
    this.payloadLengths.values = columns.payloadLengths;
    this.crcs.values = columns.crcs;
  }

  /** Whether the frame of a position stands right behind that of another. */
  follows(before: number, position: number): boolean {
    return (
      this.segments.values[position] === this.segments.values[before] &&
      this.starts.values[position] === this.starts.values[before] + this.lengths.values[before]
    );
  }
}

/** The end of a store: what the next frame continues, and what a manifest tells of it. */
export interface Tail {
  /** The last segment, 0 when there is none. */
  readonly segmentSeq: number;
  /** Of the last frame in it. */
  readonly frameSeq: number;
  /** Where its frames end. */
  readonly segmentSize: number;
  /** Of the last frame of all. */
  readonly entrySeq: number;
  readonly chainHash: string;
  /** Of the last frame, as text. */
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
