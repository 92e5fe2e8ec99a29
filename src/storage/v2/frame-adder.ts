/** Adds the entries of frames to what is known, and keeps the ways back from an incomplete batch. */

import { patchMembers } from "../../core/format/entry.ts";
import { HEAD_BYTES } from "../../core/format/head.ts";
import { bytesOf } from "../../core/json/json.ts";
import type { Container } from "./container.ts";
import { type Tail, tailAfter } from "./extents.ts";
import { crcText, encodeRow, type Frame, type IndexRow, Malformed, sha256 } from "./frame.ts";
import { PAYLOAD } from "./frame-heads.ts";

/** The state of the store before an entry of a batch, in case the batch has to be dropped. */
interface RollbackPoint {
  readonly position: number;
  readonly tail: Tail;
  readonly indexEnd: number;
  readonly rows: number;
}

export class FrameAdder {
  private readonly container: Container;
  private readonly rollbackPoints: RollbackPoint[] = [];

  constructor(container: Container) {
    this.container = container;
  }

  /**
   * Adds the entry whose head was read last, and moves the tail past its frame. `at`: where the frame begins in the
   * buffer that it was decoded from. Returns its position.
   */
  add(frame: Frame, start: number, length: number, at: number, crc: number): number {
    const { entries, extents, end, reader } = this.container;
    const { nodes } = entries;
    const { aliases } = nodes;
    const { segmentSeq, payloadBytes: payloadLength } = frame;
    const before: RollbackPoint = {
      position: nodes.count,
      tail: end.tail,
      indexEnd: end.indexEnd,
      rows: end.rows.length,
    };
    const position = nodes.add(entries.heads);
    const payloadStart = frame.payloadStart - at;
    extents.set(position, { segmentSeq, start, length, payloadStart, payloadLength, crc });
    entries.checked.set(position, 0);
    end.tail = tailAfter(end.tail, frame, frame.payloadSha256, start, length, crc);
    if (nodes.isBatch(position)) this.rollbackPoints.push(before);
    else this.rollbackPoints.length = 0;
    if (nodes.aliases > aliases) {
      const id = nodes.id(position);
      const payload = reader.bytes(segmentSeq, start + payloadStart, payloadLength);
      entries.overrides.set(position, patchMembers(payload, { id: bytesOf(JSON.stringify(id)) }));
      reader.report("duplicate_id", position, `the id ${frame.entryId} is taken; this entry is called ${id}`, true);
    }
    return position;
  }

  /** Does the same for a whole frame that the index does not name. */
  addUnindexed(frame: Frame, start: number, length: number, at: number, crc: number): void {
    const { segmentSeq, frameSeq, entrySeq, entryId } = frame;
    const position = this.add(frame, start, length, at, crc);
    this.container.entries.checked.set(position, 1);
    this.container.end.rows.push(
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

  /**
   * Adds the entry of a damaged frame, which keeps its place in the tree if its own head or the frame's is legible and
   * fits the row; else throws {@link Malformed}. Reading the entry reports the damage. `usual`: the frame's head, if it
   * could be read.
   */
  addDamaged(row: IndexRow, bytes: Buffer, usual: Frame | null): void {
    const mark = bytes.indexOf(PAYLOAD);
    const payloadStart = usual?.payloadStart ?? mark + PAYLOAD.length;
    const payloadBytes = row.byteLength - 2 - payloadStart;
    if ((!usual && mark < 0) || payloadBytes < 1) throw new Malformed("its frame is damaged");
    const { heads, entries } = this.container;
    const { nodes } = entries;
    const fits = (): boolean => {
      const { id, parentId } = heads.ids();
      return id === row.entryId && (parentId === null || nodes.position(parentId) >= 0);
    };
    if (!heads.reader.readFast(bytes, payloadStart, Math.min(bytes.length, payloadStart + HEAD_BYTES)) || !fits()) {
      if (!usual) throw new Malformed("its frame is damaged");
      heads.reader.readValue({ type: usual.entryType, id: usual.entryId, parentId: usual.parentEntryId }, () => "");
      if (!fits()) throw new Malformed("its frame is damaged");
    }
    const { id, parentId } = heads.ids();
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
    this.add(frame, row.byteOffset, row.byteLength, 0, Number.parseInt(row.crc32c, 16));
  }

  /** Returns the state before an entry of the batch that was added last. */
  before(position: number): RollbackPoint | undefined {
    return this.rollbackPoints.find((before) => before.position === position);
  }

  /** Forgets the ways back from entries at and after a position. */
  forgetFrom(position: number): void {
    while ((this.rollbackPoints.at(-1)?.position ?? -1) >= position) this.rollbackPoints.pop();
  }
}
