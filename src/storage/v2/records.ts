/** The frames of a container as records: where they lie, and whether they hold what was written. */

import { concat } from "../../core/json/json.ts";
import type { Column } from "../../core/tree/nodes.ts";
import { attachmentFolder } from "../log/attachments.ts";
import type { EntrySource, Run } from "../log/entry-reader.ts";
import { beingChanged } from "../log/failures.ts";
import { LF } from "../log/lines.ts";
import type { Container } from "./container.ts";
import { crc32c } from "./frame.ts";
import { MovedFrames } from "./moved-frames.ts";

export class FrameRecords implements EntrySource {
  readonly starts: Column<Float64Array>;
  readonly lengths: Column<Uint32Array>;
  readonly files: Column<Uint32Array>;
  readonly separator = 0;
  readonly near = 0;
  private readonly container: Container;
  private readonly moved: MovedFrames;

  constructor(container: Container) {
    const { starts, lengths, segments } = container.extents;
    this.starts = starts;
    this.lengths = lengths;
    this.files = segments;
    this.container = container;
    this.moved = new MovedFrames(container);
  }

  get attachments(): string {
    return attachmentFolder(this.container.folder);
  }

  descriptor(segmentSeq: number): number {
    return this.container.segments.fd(segmentSeq);
  }

  since(segmentSeq: number, since: number): "same" | "renewed" | "unsure" {
    return this.container.segments.since(segmentSeq, since);
  }

  lineLength(position: number): number {
    return this.container.extents.payloadLengths.values[position];
  }

  lineStart(position: number): number {
    return this.container.extents.payloadStarts.values[position];
  }

  isOf(position: number, frame: Uint8Array): boolean {
    return crc32c(frame) === this.container.extents.crcs.values[position];
  }

  elsewhere(position: number, frame: Uint8Array): Uint8Array | null {
    return this.moved.payload(position, frame);
  }

  noteLost(position: number): void {
    const { reader } = this.container;
    reader.report("bad_body", position, "the frame's bytes are not those that were written", false);
    // The invariants of the store no longer hold (INV-005), and only a repair restores them.
    this.container.refuseWritesOnce();
  }

  locationOf(position: number): string {
    return ` (segment ${this.files.values[position]})`;
  }

  *copyRun(positions: ArrayLike<number>, run: Run): Iterable<Uint8Array> {
    const { reader, entries } = this.container;
    const { bytes, isKnown } = reader.knownBytes(run.file, run.start, run.length);
    const pieces: Uint8Array[] = [];
    for (let i = run.first; i < run.past; i++) {
      const position = positions[i];
      const at = this.starts.values[position] - run.start;
      const frame = bytes.subarray(at, at + this.lengths.values[position]);
      let line = reader.lineIn(frame, position);
      // A damaged frame is copied as it is if it is still a line; else it may have moved, and is looked for.
      const isFrame = frame[frame.length - 1] === 0x0a && line.indexOf(0x0a) < 0;
      if (isKnown && !isFrame) line = reader.sound(position, frame, isKnown);
      const isOurs = isKnown || entries.placeholders.has(position) || reader.isWhole(position, frame, isKnown);
      if (!isOurs || line.indexOf(0x0a) >= 0) throw beingChanged("files");
      pieces.push(line, LF);
    }
    yield concat(pieces);
  }
}
