/** Returns the bytes of a container's entries, each checked when it is read first and when it may have changed. */

import { isUtf8 } from "node:buffer";
import { join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { Batch } from "../../core/format/entry.ts";
import { bytesOf, concat, parse } from "../../core/json/json.ts";
import { readWhole } from "../fs/disk.ts";
import { attachmentFolder } from "../log/attachments.ts";
import { CHUNK } from "../log/lines.ts";
import type { Container } from "./container.ts";
import { MovedFrames } from "./moved-frames.ts";

const LF = bytesOf("\n");

export class StoredEntries {
  private readonly container: Container;
  private readonly moved: MovedFrames;

  constructor(container: Container) {
    this.container = container;
    this.moved = new MovedFrames(container);
  }

  length(position: number): number {
    const { overrides, places } = this.container.entries;
    return overrides.get(position)?.length ?? places.payloadLengths.values[position];
  }

  read(position: number): Uint8Array {
    const { entries, segments } = this.container;
    segments.demandOpen();
    const override = entries.overrides.get(position);
    if (override) return override;
    const { segmentSeq, start, length } = entries.places.at(position);
    const { bytes, isKnown } = segments.knownBytes(segmentSeq, start, length);
    return this.sound(position, bytes, isKnown);
  }

  *readMany(positions: ArrayLike<number>): Iterable<Uint8Array> {
    const { entries, segments } = this.container;
    segments.demandOpen();
    for (const run of this.runs(positions)) {
      if (run.override) {
        yield run.override;
        continue;
      }
      const { bytes, isKnown } = segments.knownBytes(run.segmentSeq, run.start, run.length);
      const isText = isUtf8(bytes);
      for (let i = run.first; i < run.past; i++) {
        const at = entries.places.starts.values[positions[i]] - run.start;
        const frame = bytes.subarray(at, at + entries.places.lengths.values[positions[i]]);
        yield this.sound(positions[i], frame, isKnown, isText);
      }
    }
  }

  *copy(positions: ArrayLike<number>): Iterable<Uint8Array> {
    const { entries, segments } = this.container;
    segments.demandOpen();
    for (const run of this.runs(positions)) {
      if (run.override) {
        yield concat([run.override, LF]);
        continue;
      }
      const { bytes, isKnown } = segments.knownBytes(run.segmentSeq, run.start, run.length);
      const pieces: Uint8Array[] = [];
      for (let i = run.first; i < run.past; i++) {
        const position = positions[i];
        const at = entries.places.starts.values[position] - run.start;
        const frame = bytes.subarray(at, at + entries.places.lengths.values[position]);
        let line = entries.payloadIn(frame, position);
        // A damaged frame is copied as it is if it is still a line; else it may have moved, and is looked for.
        const isFrame = frame[frame.length - 1] === 0x0a && line.indexOf(0x0a) < 0;
        if (isKnown && !isFrame) line = this.sound(position, frame, isKnown);
        const isOurs = isKnown || entries.placeholders.has(position) || entries.isWhole(position, frame);
        if (!isOurs || line.indexOf(0x0a) >= 0)
          throw new Failure(
            "storage_failed",
            "Another program is changing the session's files. Nothing was done; ask again.",
            {},
            { retryable: true },
          );
        pieces.push(line, LF);
      }
      yield concat(pieces);
    }
  }

  /** Yields runs of adjacent frames; a run ends when it has reached the length of a chunk. */
  private *runs(positions: ArrayLike<number>): Generator<{
    first: number;
    past: number;
    segmentSeq: number;
    start: number;
    length: number;
    override?: Uint8Array;
  }> {
    const { overrides, places } = this.container.entries;
    const { segments, starts, lengths } = places;
    for (let first = 0; first < positions.length; ) {
      const override = overrides.get(positions[first]);
      if (override) {
        yield { first, past: first + 1, segmentSeq: 0, start: 0, length: 0, override };
        first++;
        continue;
      }
      let length = lengths.values[positions[first]];
      let past = first + 1;
      while (
        past < positions.length &&
        length < CHUNK &&
        !overrides.has(positions[past]) &&
        places.follows(positions[past - 1], positions[past])
      )
        length += lengths.values[positions[past++]];
      const { [positions[first]]: start } = starts.values;
      yield { first, past, segmentSeq: segments.values[positions[first]], start, length };
      first = past;
    }
  }

  attachment(position: number, sha256: string, sizeBytes: number): string | null {
    const { disk, options, folder, entries } = this.container;
    try {
      const bytes = readWhole(disk, join(attachmentFolder(folder), sha256));
      if (bytes.length === sizeBytes && options.env.sha256(bytes) === sha256)
        return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
    } catch {
      // Reported below.
    }
    const entryId = entries.nodes.id(position);
    if (!entries.damage.some((found) => found.kind === "missing_blob" && found.entryId === entryId))
      entries.report("missing_blob", position, `the attachment ${sha256} is missing or damaged`, false);
    return null;
  }

  batchOf(position: number): Batch | null {
    if (!this.container.entries.nodes.isBatch(position)) return null;
    const batch = (parse(this.read(position)) as { _batch?: Batch })._batch;
    const counts = Number.isInteger(batch?.index) && Number.isInteger(batch?.count);
    return counts && batch?.session === this.container.header.id && batch.index >= 0 ? batch : null;
  }

  /**
   * Returns the payload of a frame that is what was written, else a placeholder. A frame that was checked before is
   * checked again when its segment may have changed since.
   */
  private sound(position: number, frame: Uint8Array, isKnown: boolean, isText = isUtf8(frame)): Uint8Array {
    const { entries } = this.container;
    const known = entries.placeholders.get(position);
    if (known) return known;
    const payload = entries.payloadIn(frame, position);
    if (isText && isKnown && entries.checked.values[position] && payload.indexOf(0x0a) < 0) return payload;
    if (entries.isWhole(position, frame)) {
      if (isKnown) entries.checked.set(position, 1);
      entries.nodes.noteMessage(position, entries.bodies.messageStart);
      return payload;
    }
    const elsewhere = this.moved.payload(position, frame);
    if (elsewhere) return elsewhere;
    const placeholder = this.placeholderFor(position);
    entries.report("bad_body", position, "the frame's bytes are not those that were written", false);
    entries.nodes.lose(position);
    entries.placeholders.set(position, placeholder);
    // The invariants of the store no longer hold (INV-005), and only a repair restores them.
    if (!this.container.readOnly) this.container.refuseWrites();
    return placeholder;
  }

  private placeholderFor(position: number): Uint8Array {
    const { nodes } = this.container.entries;
    const parent = nodes.parent(position);
    return bytesOf(
      JSON.stringify({
        type: nodes.type(position),
        id: nodes.id(position),
        parentId: parent < 0 ? null : nodes.id(parent),
        timestamp: new Date(0).toISOString(),
        damaged: true,
      }),
    );
  }
}
