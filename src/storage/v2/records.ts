/** The frames of a container as records: where they lie, and where else if another program changed the segments. */

import { concat } from "../../core/json/json.ts";
import { addTo } from "../../core/lists.ts";
import type { Column } from "../../core/tree/nodes.ts";
import type { FileInfo } from "../fs/disk.ts";
import { guardErrno } from "../fs/files.ts";
import { isSameStamp } from "../fs/stamps.ts";
import { getAttachmentFolder } from "../log/attachments.ts";
import type { EntrySource, Run } from "../log/entry-reader.ts";
import { makeChangingFailure } from "../log/failures.ts";
import { CHUNK, LF } from "../log/lines.ts";
import type { Container } from "./container.ts";
import { crc32c } from "./crc32c.ts";
import { decodeFrame, readIfSound } from "./frame.ts";
import { requireBound } from "./frame-entries.ts";
import { findGluedFrames, MIN_FRAME } from "./salvage.ts";

export class FrameRecords implements EntrySource {
  readonly starts: Column<Float64Array>;
  readonly lengths: Column<Uint32Array>;
  readonly files: Column<Uint32Array>;
  readonly separator = 0;
  readonly near = 0;
  private readonly container: Container;
  /** Segments in which a frame has moved from its recorded place. */
  private readonly moved = new Set<number>();
  /** Results of searching segments for such frames. */
  private readonly searched = new Map<number, { info: FileInfo; starts: ReadonlyMap<number, number> }>();

  constructor(container: Container) {
    const { starts, lengths, segments } = container.extents;
    this.starts = starts;
    this.lengths = lengths;
    this.files = segments;
    this.container = container;
  }

  get attachments(): string {
    return getAttachmentFolder(this.container.folder);
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
      if (!isOurs || line.indexOf(0x0a) >= 0) throw makeChangingFailure("files");
      pieces.push(line, LF);
    }
    yield concat(pieces);
  }

  /**
   * Returns the payload of a frame that differs at its recorded place: of the first frame in its segment with its checksum,
   * else of the one at that place if it is consistent in itself, because then the checksum is wrong. Returns null if there
   * is neither.
   */
  elsewhere(position: number, frame: Uint8Array): Uint8Array | null {
    const { entries, extents, reader, end } = this.container;
    const { segmentSeq, length } = extents.at(position);
    const start = this.startsIn(segmentSeq).get(position);
    if (start !== undefined) {
      const bytes = reader.bytes(segmentSeq, start, length);
      if (reader.isWhole(position, bytes, true)) {
        this.reportMoved(position, start);
        extents.starts.set(position, start);
        if (end.base?.count === position + 1)
          end.base = { ...end.base, lastFrame: this.container.lastFrameOf(position + 1) };
        return reader.lineIn(bytes, position);
      }
    }
    const payload = this.selfConsistent(position, frame);
    if (payload === null) return null;
    reader.report("bad_index", position, "the frame is whole, but the index has another checksum for it", true);
    this.container.refuseWritesOnce();
    entries.overrides.set(position, payload);
    return payload;
  }

  /** Reports, once for each segment, that its frames moved. The invariants of the store do not hold (INV-003). */
  private reportMoved(position: number, start: number): void {
    const { extents, reader } = this.container;
    const segmentSeq = extents.segments.values[position];
    if (!this.moved.has(segmentSeq))
      reader.report("bad_index", position, `the frame is at byte ${start}, not where the index says`, true);
    this.moved.add(segmentSeq);
    this.container.refuseWritesOnce();
  }

  /** Returns the payload of a frame that has its own hash and matches the entry of this position; else null. */
  private selfConsistent(position: number, bytes: Uint8Array): Uint8Array | null {
    const { entries } = this.container;
    const { nodes, heads } = entries;
    if (bytes[bytes.length - 1] !== 0x0a) return null;
    return readIfSound(() => {
      const frame = decodeFrame(bytes, 0, bytes.length - 1);
      requireBound(entries, bytes, frame);
      const isSame = frame.entryId === nodes.id(position) && frame.parentEntryId === nodes.parentIdOf(position);
      if (!isSame || heads.type !== nodes.typeCode(nodes.type(position))) return null;
      return bytes.slice(frame.payloadStart, frame.payloadEnd);
    });
  }

  /** Returns the starts of frames that are elsewhere in a segment, by position. Searches it again when it changed. */
  private startsIn(segmentSeq: number): ReadonlyMap<number, number> {
    return guardErrno("reading an entry", () => {
      const info = this.container.disk.infoOf(this.container.segments.fd(segmentSeq));
      const known = this.searched.get(segmentSeq);
      if (known && isSameStamp(known.info, info)) return known.starts;
      const starts = this.search(segmentSeq);
      this.searched.set(segmentSeq, { info, starts });
      return starts;
    });
  }

  private search(segmentSeq: number): ReadonlyMap<number, number> {
    const { segments, starts, lengths, crcs } = this.container.extents;
    const wanted = new Map<string, number[]>();
    const keyOf = (crc: number, length: number): string => `${crc} ${length}`;
    for (let position = this.container.entries.nodes.count - 1; position >= 0; position--) {
      if (segments.values[position] !== segmentSeq) continue;
      addTo(wanted, keyOf(crcs.values[position], lengths.values[position]), position);
    }
    const found = new Map<number, number>();
    const isHit = (start: number, b: Uint8Array, first: number, end: number): boolean => {
      const position = wanted.get(keyOf(crc32c(b, first, end + 1), end - first + 1))?.pop();
      if (position !== undefined && starts.values[position] !== start) found.set(position, start);
      return position !== undefined;
    };
    const checkLine = (at: number, b: Uint8Array, first: number, end: number): void => {
      if (end - first < MIN_FRAME || isHit(at, b, first, end)) return;
      for (const glued of findGluedFrames(b, first, end)) if (isHit(at + glued - first, b, glued, end)) return;
    };
    this.container.segments.scan(segmentSeq, 0, checkLine, undefined, Buffer.allocUnsafe(CHUNK));
    return found;
  }
}
