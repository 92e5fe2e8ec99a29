/** Reads the frames after those that the index names, and judges them: entries, leftovers of a crash, or damage. */

import { manifestFile } from "../fs/container-paths.ts";
import { readLastCheckpoint } from "./checkpoints.ts";
import type { Container } from "./container.ts";
import { crc32c } from "./crc32c.ts";
import { readManifest } from "./documents.ts";
import { EMPTY_END, type TornTail } from "./extents.ts";
import { decodeFrame, decodeHead, Malformed, readIfSound } from "./frame.ts";
import { addDamaged, addUnindexed, readChainAt, requireBound } from "./frame-entries.ts";
import type { Rest } from "./index-rows.ts";
import { type Bad, type FoundFrame, Salvage } from "./salvage.ts";
import type { Segment } from "./segments.ts";

/** A durable end that a document names. */
interface Mark {
  readonly name: string;
  readonly entrySeq: number;
  readonly entryId: string;
  readonly chainHash: string;
}

/** Returns the durable ends that the manifest and the last checkpoint name. */
export function readDurableEnds({ disk, folder }: Container): Mark[] {
  const marks: Mark[] = [];
  const manifest = readManifest(disk, manifestFile(folder));
  if (manifest) marks.push({ name: "manifest", ...manifest.head, chainHash: manifest.integrity.chainHash });
  const checkpoint = readLastCheckpoint(disk, folder);
  if (!checkpoint) return marks;
  const { headEntrySeq: entrySeq, headEntryId: entryId, chainHash } = checkpoint;
  return [...marks, { name: "last checkpoint", entrySeq, entryId, chainHash }];
}

/** One reading of the frames after the index. */
export class Replay {
  private readonly container: Container;
  private readonly segments: readonly Segment[];
  private readonly isAsRead: TornTail["isAsRead"];

  constructor(container: Container, segments: readonly Segment[], isAsRead: TornTail["isAsRead"]) {
    this.container = container;
    this.segments = segments;
    this.isAsRead = isAsRead;
  }

  /**
   * Adds the frames after those of the index. A damaged frame with no whole one after it was being written when its
   * writer died; otherwise the whole ones after it are added too, and the session can only be read. `limit`: the last
   * entry to add, because a writer is at work after it.
   */
  run(rest: Rest, limit = Number.POSITIVE_INFINITY): void {
    const { entries, end } = this.container;
    const indexed = end.tail.entrySeq;
    const isKnown = (entryId: string): boolean => entries.nodes.position(entryId) >= 0;
    const salvage = new Salvage(rest.rows, rest.isIntact, end.tail, entries);
    const reason = this.scan(salvage, limit);
    const { found, bad, strangers } = salvage.finish(isKnown);
    let salvaged = 0;
    for (const one of found)
      if (this.addSalvaged(one)) salvaged++;
      else if (one.row) salvage.abandon(one.row);
    end.replayed = end.tail.entrySeq - indexed;
    // Anything else is left to its writer.
    if (limit < Number.POSITIVE_INFINITY) return;
    const lost = salvage.unsettled(isKnown);
    if (salvaged + strangers === 0 && bad.length > 0 && !salvage.hasWholeLines) this.noteTorn(bad, lost);
    else if (reason !== null) {
      end.replayed = 0;
      for (const { segmentSeq, start, end, reason } of bad)
        entries.report("bad_line", start, end - start, `no frame in segment ${segmentSeq}: ${reason}`, false);
      if (bad.length === 0 && lost === 0)
        for (const { segmentSeq, start, length } of found.slice(0, 1))
          entries.report("bad_line", start, length, `in segment ${segmentSeq}, ${reason}`, true);
      this.container.refuseWrites();
    }
    if (end.indexFault !== null)
      entries.report("bad_index", end.indexEnd, 0, `the index is wrong: ${end.indexFault}`, true);
    if (lost > 0) {
      entries.report("lost_entries", 0, 0, `${lost} entries that the index names are in no segment`, false);
      this.container.refuseWrites();
    }
    // A crash during a rotation leaves a segment without frames.
    const last = this.segments.at(-1)?.seq ?? 0;
    if (!end.tornTail && this.container.state.readOnly?.name !== "corrupt" && last > end.tail.segmentSeq)
      end.tornTail = { segmentSeq: end.tail.segmentSeq + 1, start: 0, ours: true, isAsRead: this.isAsRead };
  }

  /** Adds frames until one is not due, and passes the rest to the salvage. Returns why it was refused, or null. */
  private scan(salvage: Salvage, limit: number): string | null {
    const { end, segments } = this.container;
    let reason: string | null = null;
    const from = Math.max(1, end.tail.segmentSeq);
    for (const { seq, size } of this.segments) {
      if (seq < from) continue;
      const start = seq === end.tail.segmentSeq ? end.tail.segmentSize : 0;
      if (size <= start) continue;
      const addFrame = (at: number, b: Uint8Array, first: number, past: number): void => {
        if (reason === null && end.tail.entrySeq >= limit) return;
        try {
          if (reason === null) this.addReplayed(seq, at, b, first, past, salvage);
        } catch (error) {
          if (!(error instanceof Malformed)) throw error;
          reason = error.message;
        }
        if (reason !== null) salvage.line(seq, at, b, first, past, limit);
      };
      const scanned = segments.scan(seq, start, addFrame, (start, past) =>
        salvage.bad(seq, start, past, "it is longer than a frame may be"),
      );
      if (scanned.tail < scanned.size && (reason !== null || end.tail.entrySeq < limit)) {
        reason ??= "it has no line feed";
        salvage.bad(seq, scanned.tail, scanned.size, "it has no line feed");
      }
    }
    return reason;
  }

  /** Reports bytes of a writer that died during a write, and leaves them to the first write. */
  private noteTorn(bad: readonly Bad[], lost: number): void {
    const [{ segmentSeq, start, reason }] = bad;
    this.container.end.tornTail = { segmentSeq, start, ours: false, isAsRead: this.isAsRead };
    let length = 0;
    for (const { start, end } of bad) length += end - start;
    const why = lost > 0 ? `the last frames are damaged: ${reason}` : "the last frame was cut off while it was written";
    this.container.entries.report("torn_tail", start, length, `${why} (segment ${segmentSeq})`, false);
  }

  /** Adds the frame `b[first, end)`, line feed excluded, that begins at `start` if it is due; else throws Malformed. */
  private addReplayed(seq: number, start: number, b: Uint8Array, first: number, end: number, salvage: Salvage): void {
    const frame = decodeFrame(b, first, end);
    const { tail } = this.container.end;
    const isNew = seq !== tail.segmentSeq;
    if (frame.entrySeq !== tail.entrySeq + 1) throw new Malformed(`entry ${tail.entrySeq + 1} was due`);
    if (isNew && seq !== tail.segmentSeq + 1) throw new Malformed(`segment ${tail.segmentSeq + 1} is missing`);
    if (frame.segmentSeq !== seq || frame.frameSeq !== (isNew ? 1 : tail.frameSeq + 1))
      throw new Malformed("its numbers are not those of its place");
    requireBound(this.container.entries, b, frame);
    const crc = crc32c(b, first, end + 1);
    if (!salvage.allows(frame, end - first + 1, crc)) throw new Malformed("its row has another checksum");
    addUnindexed(this.container, frame, start, end - first + 1, first, crc);
  }

  /** Adds a frame that was salvaged; returns false when it no longer matches its entry. */
  private addSalvaged({ segmentSeq, start, length, row, isDamaged }: FoundFrame): boolean {
    const { container } = this;
    const bytes = container.reader.bytes(segmentSeq, start, length);
    // Another program may have written there since.
    const added = readIfSound(() => {
      if (isDamaged && row !== null) {
        const there = { ...row, segmentSeq, byteOffset: start, byteLength: length };
        addDamaged(container, there, bytes, decodeHead(bytes, 0, length));
        return true;
      }
      const frame = decodeFrame(bytes, 0, length - 1, false);
      requireBound(container.entries, bytes, frame);
      addUnindexed(container, { ...frame, segmentSeq }, start, length, 0, crc32c(bytes));
      return true;
    });
    return added !== null;
  }

  /** Drops the last entries if they are an incomplete batch: appended together, but never acknowledged. */
  dropIncompleteBatch(): void {
    const { container, isAsRead } = this;
    const { entries, extents, reader, end } = container;
    if (container.state.readOnly?.name === "corrupt") return;
    const found = reader.incompleteBatch(container.header.id);
    if (!found) return;
    const { first, batch } = found;
    const before = end.batch.find(({ position }) => position === first);
    // The entries up to the manifest or the last checkpoint were acknowledged.
    if (!before || readDurableEnds(container).some(({ entrySeq }) => entrySeq > before.tail.entrySeq)) return;
    const which = `${batch.index + 1} of ${batch.count} entries that belong together`;
    reader.report("incomplete_batch", first, which, false);
    const { segmentSeq, start } = extents.at(first);
    end.tornTail = { segmentSeq, start, ours: end.tornTail?.ours ?? true, isAsRead };
    if (before.indexEnd < end.indexEnd) end.indexFault ??= "its last rows are of entries that were never complete";
    end.goTo({ tail: before.tail, indexEnd: before.indexEnd, lastRow: EMPTY_END.lastRow });
    end.rows.length = before.rows;
    end.replayed = end.rows.length;
    entries.forgetFrom(first);
    if (end.base && end.base.count > first) container.noteBase();
  }

  private chainAt(entrySeq: number): string | null {
    const { chains, tail } = this.container.end;
    if (entrySeq === tail.entrySeq) return tail.chainHash;
    const chain = readChainAt(this.container, entrySeq);
    if (chain !== null) chains.set(entrySeq, chain);
    return chain;
  }

  /** Returns whether the bytes of an entry differ from the written ones. Reads all of them, and reports damage. */
  private hasDamagedEntry(): boolean {
    const { entries, reader } = this.container;
    for (let position = 0; position < entries.nodes.count; position++) reader.read(position);
    return entries.damage.some(({ kind }) => kind === "bad_body");
  }

  /**
   * Compares the entries with the manifest and the last checkpoint, which mark a durable end. Both are written after
   * the entries that they name: where these are missing, acknowledged entries were lost (seed 003, "Recovery").
   */
  compareWithMarks(): void {
    const { state, entries, end } = this.container;
    if (state.readOnly?.name === "corrupt") return;
    for (const { name, entrySeq, entryId, chainHash } of readDurableEnds(this.container)) {
      const missing = entrySeq - end.tail.entrySeq;
      if (missing > 0) {
        if (!entries.damage.some(({ kind }) => kind === "lost_entries"))
          entries.report("lost_entries", 0, 0, `${missing} entries that the ${name} counts are in no segment`, false);
      } else if (entrySeq > 0 && entries.nodes.position(entryId) < 0)
        entries.report("bad_line", 0, 0, `the ${name} ends with the entry ${entryId}, which is not there`, false);
      else if (chainHash !== this.chainAt(entrySeq) && !this.hasDamagedEntry())
        entries.report("bad_line", 0, 0, `the chain of payload hashes is not the one of the ${name}`, false);
      else continue;
      this.container.refuseWrites();
    }
  }
}
