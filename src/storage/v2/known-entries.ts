/** The entries of a container as they are known: their nodes, where their frames are, and what is wrong with them. */

import { isUtf8 } from "node:buffer";
import type { Damage } from "../../core/format/damage.ts";
import { BodyReader } from "../../core/json/validate.ts";
import { Column, Nodes } from "../../core/tree/nodes.ts";
import { crc32c } from "./frame.ts";
import { FrameHeads } from "./frame-heads.ts";
import { FramePlaces } from "./places.ts";

export class KnownEntries {
  readonly nodes = new Nodes();
  readonly heads = new FrameHeads(this.nodes);
  readonly bodies = new BodyReader();
  readonly places = new FramePlaces();
  /** Which frames were checked, as they are now. */
  readonly checked = new Column(new Uint8Array(16));
  /**
   * Lines that are returned in place of a segment's bytes: with an id of their own, waiting for the first append, or
   * valid despite their checksum in the index.
   */
  readonly overrides = new Map<number, Uint8Array>();
  /** Placeholders that are returned for damaged entries; `copy` copies the bytes themselves as they are. */
  readonly placeholders = new Map<number, Uint8Array>();
  readonly damage: Damage[] = [];

  payloadIn(frame: Uint8Array, position: number): Uint8Array {
    const start = this.places.payloadStarts.values[position];
    return frame.subarray(start, start + this.places.payloadLengths.values[position]);
  }

  /** Whether a frame has the checksum of its row, and a payload that is the JSON of an entry. */
  isWhole(position: number, frame: Uint8Array): boolean {
    const payload = this.payloadIn(frame, position);
    if (crc32c(frame) !== this.places.crcs.values[position] || !isUtf8(payload)) return false;
    return this.bodies.read(payload, 0, payload.length);
  }

  forgetChecks(): void {
    this.checked.values.fill(0);
  }

  forgetFrom(count: number): void {
    this.nodes.truncate(count);
    for (const lines of [this.overrides, this.placeholders])
      for (const position of lines.keys()) if (position >= count) lines.delete(position);
  }

  /** Returns a function that makes the entries from a position on, and all damage, what they are now. */
  image(from: number): () => void {
    const { nodes, places } = this;
    const { aliases } = nodes;
    const known = Array.from({ length: nodes.count - from }, (_, i) => ({
      head: nodes.headOf(from + i),
      place: places.at(from + i),
    }));
    const damage = [...this.damage];
    const maps = [this.overrides, this.placeholders].map((lines) => ({ lines, entries: [...lines] }));
    return () => {
      this.forgetFrom(from);
      for (const { head, place } of known) places.set(nodes.add(head), place);
      nodes.aliases = aliases;
      this.forgetChecks();
      for (const { lines, entries } of maps) for (const [position, line] of entries) lines.set(position, line);
      this.damage.splice(0, this.damage.length, ...damage);
    };
  }

  tell(kind: Damage["kind"], byteOffset: number, length: number, reason: string, salvaged: boolean): void {
    this.damage.push({ kind, line: 0, byteOffset, length, reason, salvaged });
  }

  /** Reports damage of one entry. */
  report(kind: Damage["kind"], position: number, reason: string, salvaged: boolean): void {
    const { start, length, segmentSeq } = this.places.at(position);
    this.damage.push({
      kind,
      line: 0,
      byteOffset: start,
      length,
      entryId: this.nodes.id(position),
      reason: `${reason} (segment ${segmentSeq})`,
      salvaged,
    });
  }
}
