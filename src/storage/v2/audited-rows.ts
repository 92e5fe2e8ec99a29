/** The rows of a container's index, as the audit holds them against the frames. */

import { Column } from "../../core/tree/nodes.ts";
import type { Frame, IndexRow } from "./frame.ts";

/** Rows in columns, by place: as objects, a million of them would be most of the audit's memory. */
export class AuditedRows {
  count = 0;
  readonly ids: string[] = [];
  readonly crcs = new Column(new Uint32Array(16));
  private readonly segments = new Column(new Float64Array(16));
  private readonly frames = new Column(new Float64Array(16));
  private readonly starts = new Column(new Float64Array(16));
  private readonly lengths = new Column(new Float64Array(16));

  /** Returns how many there are then. */
  add(row: IndexRow): number {
    const place = this.count++;
    this.ids.push(row.entryId);
    this.crcs.set(place, Number.parseInt(row.crc32c, 16));
    this.segments.set(place, row.segmentSeq);
    this.frames.set(place, row.frameSeq);
    this.starts.set(place, row.byteOffset);
    this.lengths.set(place, row.byteLength);
    return this.count;
  }

  /** Returns whether the row at a place is that of a frame that lies there. */
  isOf(place: number, { segmentSeq, frameSeq, entryId }: Frame, start: number, length: number): boolean {
    return (
      this.segments.values[place] === segmentSeq &&
      this.frames.values[place] === frameSeq &&
      this.starts.values[place] === start &&
      this.lengths.values[place] === length &&
      this.ids[place] === entryId
    );
  }
}
