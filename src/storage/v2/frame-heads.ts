/** Reads the heads of the entries in frames, and compares the two. */

import { isUtf8 } from "node:buffer";
import { HEAD_BYTES, type HeadReader } from "../../core/format/head.ts";
import { bytesOf } from "../../core/json/json.ts";
import { type Nodes, unpackId } from "../../core/tree/nodes.ts";
import type { KnownEntries } from "../log/known-entries.ts";
import { type Frame, Malformed } from "./frame.ts";

export const PAYLOAD = bytesOf(',"payload":');

export class FrameHeads {
  readonly reader: HeadReader;
  private readonly nodes: Nodes;

  constructor({ nodes, heads }: KnownEntries) {
    this.nodes = nodes;
    this.reader = heads;
  }

  /** Reads the head of the entry in a whole frame. Throws {@link Malformed}. */
  read(b: Uint8Array, frame: Frame): void {
    const { payloadStart, payloadEnd } = frame;
    if (this.reader.readFast(b, payloadStart, Math.min(payloadEnd, payloadStart + HEAD_BYTES))) return;
    if (!isUtf8(b.subarray(payloadStart, payloadEnd))) throw new Malformed("its payload is not UTF-8");
    const fault = this.reader.readAny(b, payloadStart, payloadEnd, () => frame.entryId);
    if (fault !== null) throw new Malformed(`its payload is ${fault}`);
  }

  /** Returns the ids of the head that was read last. */
  ids(): { id: string; parentId: string | null } {
    const { reader } = this;
    return {
      id: reader.packedId >= 0 ? unpackId(reader.packedId) : reader.id,
      parentId: reader.packedParent >= 0 ? unpackId(reader.packedParent) : reader.parentId,
    };
  }

  /** Whether the members of a frame match the entry in it, whose head was read last. */
  isBound(frame: Frame): boolean {
    const { id, parentId } = this.ids();
    return (
      id === frame.entryId &&
      parentId === frame.parentEntryId &&
      this.nodes.typeCode(frame.entryType) === this.reader.type
    );
  }

  /** Throws {@link Malformed} unless the members of a frame match the entry in it, whose head was read last. */
  requireMatch(frame: Frame): void {
    if (!this.isBound(frame)) throw new Malformed("its frame names another entry than its payload");
  }

  /** Reads the head of the entry in a whole frame. Throws {@link Malformed} unless the two match. */
  requireBound(b: Uint8Array, frame: Frame): void {
    this.read(b, frame);
    this.requireMatch(frame);
  }

  /** Returns the id of the entry that a line which is not a frame seems to hold; null for none. */
  idIn(b: Uint8Array, first: number, end: number): string | null {
    const mark = Buffer.from(b.buffer, b.byteOffset + first, end - first).indexOf(PAYLOAD);
    if (mark < 0 || !this.reader.readFast(b, first + mark + PAYLOAD.length, end)) return null;
    return this.ids().id;
  }
}
