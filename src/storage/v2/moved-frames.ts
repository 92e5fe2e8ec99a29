/** Finds frames that are not at their recorded places, in segments that another program changed. */

import { storageFailure } from "../../core/errno.ts";
import type { FileInfo } from "../fs/disk.ts";
import { isSameStamp } from "../fs/stamps.ts";
import { CHUNK } from "../log/lines.ts";
import type { Container } from "./container.ts";
import { crc32c, decodeFrame, Malformed } from "./frame.ts";
import { gluedFrames, MIN_FRAME } from "./salvage.ts";

export class MovedFrames {
  private readonly container: Container;
  /** Segments in which a frame was found at a place other than the recorded one. */
  private readonly moved = new Set<number>();
  /** Results of searching segments for such frames. */
  private readonly searched = new Map<number, { info: FileInfo; starts: ReadonlyMap<number, number> }>();

  constructor(container: Container) {
    this.container = container;
  }

  /**
   * Returns the payload of a frame that is not what was written at its recorded place: of the first frame in its
   * segment that has its checksum, else of the one at that place if it is consistent in itself, because then the
   * checksum is wrong. Returns null when there is neither.
   */
  payload(position: number, frame: Uint8Array): Uint8Array | null {
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
    reader.report("bad_index", position, "the frame is whole, but its checksum in the index is another", true);
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
    const { heads, entries } = this.container;
    const { nodes } = entries;
    if (bytes[bytes.length - 1] !== 0x0a) return null;
    try {
      const frame = decodeFrame(bytes, 0, bytes.length - 1);
      heads.requireBound(bytes, frame);
      const parent = nodes.parent(position);
      const parentId = parent >= 0 ? nodes.id(parent) : (nodes.missingParent.get(position) ?? null);
      const isSame = frame.entryId === nodes.id(position) && frame.parentEntryId === parentId;
      if (!isSame || heads.reader.type !== nodes.typeCode(nodes.type(position))) return null;
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
      const info = this.container.disk.infoOf(this.container.segments.fd(segmentSeq));
      const known = this.searched.get(segmentSeq);
      if (known && isSameStamp(known.info, info)) return known.starts;
      const starts = this.search(segmentSeq);
      this.searched.set(segmentSeq, { info, starts });
      return starts;
    } catch (error) {
      throw storageFailure(error, "reading an entry");
    }
  }

  private search(segmentSeq: number): ReadonlyMap<number, number> {
    const { entries, extents } = this.container;
    const { nodes } = entries;
    const { segments, starts, lengths, crcs } = extents;
    const wanted = new Map<string, number[]>();
    const keyOf = (crc: number, length: number): string => `${crc} ${length}`;
    for (let position = nodes.count - 1; position >= 0; position--) {
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
    const checkLine = (at: number, b: Uint8Array, first: number, end: number): void => {
      if (end - first < MIN_FRAME || isHit(at, b, first, end)) return;
      for (const glued of gluedFrames(b, first, end)) if (isHit(at + glued - first, b, glued, end)) return;
    };
    this.container.segments.scan(segmentSeq, 0, checkLine, undefined, Buffer.allocUnsafe(CHUNK));
    return found;
  }
}
