/**
 * Reads a container: finds its entries through the index snapshot, the index and later frames, skips and reports damage, and
 * follows other writers. Nothing here writes: the state after a crash is recovered in memory, and on the disk by the first
 * write.
 */

import { isMissing } from "../../core/errno.ts";
import type { Damage } from "../../core/format/damage.ts";
import type { Change } from "../../core/ports/store.ts";
import { headerFile, indexFile, segmentFile } from "../fs/container-paths.ts";
import { type FileInfo, isAbsent, isCutOff } from "../fs/disk.ts";
import { useFile } from "../fs/files.ts";
import { isSameFile, isSameStamp } from "../fs/stamps.ts";
import { CHECKED_LINE, type Container } from "./container.ts";
import type { Base, TornTail } from "./extents.ts";
import { IndexRows, readRowMark } from "./index-rows.ts";
import { Replay, readDurableEnds } from "./replay.ts";
import type { Segment } from "./segments.ts";
import type { Snapshots } from "./snapshots.ts";

/** Number of last frames whose bytes are checked at opening. */
const CHECKED_TAIL = 64;

export class ContainerReader {
  private readonly container: Container;
  private readonly snapshots: Snapshots;
  /** Damage that was reported in the part after the base. */
  private judgements: Damage[] = [];
  /** True if that part is the reason that nothing may be written. */
  private refusedByJudgement = false;
  private isAsRead: TornTail["isAsRead"] = () => false;

  constructor(container: Container, snapshots: Snapshots) {
    this.container = container;
    this.snapshots = snapshots;
  }

  /**
   * Reads the container. While another process writes to it, entries that the index does not hold yet are left to that
   * process. Throws not_a_session, or an errno error.
   */
  open(isLive: (key: FileInfo) => boolean): void {
    const { container, snapshots } = this;
    const { entries, reader } = container;
    container.requireNoLinks();
    container.readHeader();
    const live = isLive(container.key as FileInfo);
    // Read before the sizes of the segments: a row that is added meanwhile names a frame that is not in them.
    const seen = container.indexInfo() ?? undefined;
    const segments = container.segments.list();
    const forgetRecalled = snapshots.load(segments) ? () => snapshots.forget() : null;
    this.replaySegments(segments, live, seen, forgetRecalled);
    for (const position of entries.nodes.cutCycles())
      reader.report("cycle", position, "parents form a cycle; it is cut here", true);
    for (const [position, parentId] of entries.nodes.missingParent)
      reader.reportOrphan(position, parentId, `the parent ${parentId} is not in the session; the path ends here`);
    for (let p = Math.max(0, entries.nodes.count - CHECKED_TAIL); p < entries.nodes.count; p++)
      if (container.extents.lengths.values[p] <= CHECKED_LINE) reader.read(p);
  }

  /** Reads the entries after the known part. While another process is the writer, only the indexed ones. */
  private replaySegments(
    segments: readonly Segment[],
    live: boolean,
    seen: FileInfo | undefined,
    forgetRecalled: (() => void) | null,
  ): void {
    const { container } = this;
    const { entries, end, headerFault } = container;
    const known = entries.damage.length;
    // A damaged header does not influence the result.
    if (container.state.readOnly === headerFault) container.state.readOnly = null;
    const { readOnly } = container.state;
    // While another process is the writer, nothing is compared with its marks.
    if (!live) for (const { entrySeq } of readDurableEnds(container)) end.awaited.add(entrySeq);
    const rest = new IndexRows(container, segments).read(live, forgetRecalled);
    end.seen = seen;
    container.noteBase();
    const isAsRead: TornTail["isAsRead"] = ({ seq, info }) => {
      const match = segments.find((segment) => segment.seq === seq);
      return match !== undefined && isSameStamp(match.info, info);
    };
    const replay = new Replay(container, segments, isAsRead);
    // When the index is wrong, the entries that later rows name are there all the same.
    if (live && end.indexFault !== null) replay.run(rest, rest.promised);
    if (!live) {
      replay.run(rest);
      this.isAsRead = isAsRead;
      replay.dropIncompleteBatch();
      replay.compareWithMarks();
    }
    end.batch = [];
    end.awaited.clear();
    this.judgements = entries.damage.slice(known);
    this.refusedByJudgement = readOnly === null && container.state.readOnly !== null;
    container.state.readOnly ??= headerFault;
  }

  /**
   * Reads the entries after the base again, as the only writer: their writer may have continued since. Returns "replaced" if
   * an entry is missing or is a different one.
   */
  replayAgain(): Change {
    const { container } = this;
    const { entries, extents, end } = container;
    const { nodes, damage } = entries;
    const { base } = end;
    if (!base || !this.isThere(base)) return { kind: "replaced" };
    const { count } = nodes;
    const crcs = extents.crcs.values.slice(base.count, count);
    const restore = this.image(base.count);
    try {
      entries.forgetFrom(base.count);
      nodes.aliases = base.aliases;
      end.restart(base);
      if (this.refusedByJudgement) container.state.readOnly = null;
      for (const judgement of this.judgements) {
        const index = damage.indexOf(judgement);
        if (index >= 0) damage.splice(index, 1);
      }
      const before = container.indexInfo() ?? undefined;
      this.replaySegments(container.segments.list(), false, before, null);
    } catch (error) {
      restore();
      throw error;
    }
    if (nodes.count < count || crcs.some((crc, i) => crc !== extents.crcs.values[base.count + i])) {
      // This log keeps its state until another log replaces it.
      restore();
      return { kind: "replaced" };
    }
    return nodes.count === count ? { kind: "none" } : { kind: "grown", first: count };
  }

  /** Returns a function that restores the present state from a position on. */
  private image(from: number): () => void {
    const { container, judgements, refusedByJudgement } = this;
    const restore = container.image(from);
    return () => {
      restore();
      Object.assign(this, { judgements, refusedByJudgement });
    };
  }

  /** Returns whether the last row and the last frame of a known part lie where they were. */
  private isThere({ count, indexEnd, lastRow, lastFrame, tail }: Base): boolean {
    const { container } = this;
    const { disk, folder } = container;
    try {
      if (!container.hasItsHeader()) return false;
      if (count === 0) return true;
      if (lastRow.length > 0) {
        const fd = disk.openRead(indexFile(folder));
        const found = useFile(disk, fd, () => readRowMark(disk, fd, indexEnd, lastRow.length));
        if (found.crc !== lastRow.crc) return false;
      }
      // The name may belong to another file now than the one that is open.
      container.segments.forget(tail.segmentSeq);
      const { size } = disk.info(segmentFile(folder, tail.segmentSeq));
      return size >= tail.segmentSize && (lastFrame === null || container.lastFrameOf(count) === lastFrame);
    } catch (error) {
      if (isMissing(error) || isCutOff(error)) return false;
      throw error;
    }
  }

  /** Returns whether writes are refused because of a reading that the writes of other processes may have disturbed. */
  isDoubtful(isLive: boolean): boolean {
    if (!this.refusedByJudgement) return false;
    const { container } = this;
    const { seen } = container.end;
    try {
      const index = container.indexInfo();
      const isSame = index && seen ? isSameStamp(index, seen) : !index && !seen;
      return isLive || !isSame || container.segments.list().some((segment) => !this.isAsRead(segment, 0));
    } catch {
      return true;
    }
  }

  /** Adds the entries of rows that other processes added to the index. Throws errno errors. */
  refresh(): Change {
    const { container } = this;
    const { disk, folder, end, entries } = container;
    const first = entries.nodes.count;
    const { seen } = end;
    const now = container.indexInfo();
    if (!now && isAbsent(disk, headerFile(folder))) return { kind: "gone" };
    if (!now) return { kind: seen ? "replaced" : "none" };
    if (!seen || !isSameFile(now, seen)) return { kind: "replaced" };
    if (isSameStamp(now, seen)) return { kind: "none" };
    if (now.size < end.indexEnd) return { kind: "replaced" };
    const restore = this.image(first);
    let isExtended = false;
    try {
      isExtended = useFile(disk, disk.openRead(indexFile(folder)), (fd) => {
        // Rows that are added from here on are for the next refresh: they name frames that are not in these segments.
        const before = disk.infoOf(fd);
        const { fault, known } = new IndexRows(container, container.segments.list()).addRows(fd, before.size);
        end.seen = before;
        end.batch = [];
        return fault === null && known;
      });
    } finally {
      // This log keeps its state until another log replaces it.
      if (!isExtended) restore();
    }
    if (!isExtended) return { kind: "replaced" };
    container.noteBase();
    return entries.nodes.count === first ? { kind: "none" } : { kind: "grown", first };
  }
}
