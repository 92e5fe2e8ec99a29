/**
 * The index snapshots of a container: the one that lies in it, and the one that the state folder keeps. Either lets an
 * opening skip what lies before its end, if it fits the index and the segments.
 */

import { indexFile, indexSnapshotFile } from "../fs/container-paths.ts";
import { exists, openFile, readWhole, writeAll } from "../fs/disk.ts";
import { readAt, withFile } from "../fs/files.ts";
import type { SnapshotCache } from "../log/snapshot-cache.ts";
import type { Container } from "./container.ts";
import { EMPTY_END } from "./extents.ts";
import { crc32c, decodeRow } from "./frame.ts";
import { ifFile, type Segment } from "./segments.ts";
import { type Coverage, coverageOf, encodeBlock, loadBlocks, readBlocks } from "./snapshot.ts";

/** Facts of a container that the state folder keeps, in addition to the columns. */
interface KeptContainer extends Coverage {
  /** Id of the session. */
  readonly id: string;
  /** Bytes of the container's own index snapshot that were valid, and the number of entries in them. */
  readonly spineEnd: number;
  readonly spineCount: number;
}

export class Snapshots {
  private readonly container: Container;
  private readonly kept: SnapshotCache | undefined;
  /** Number of entries in the index snapshot that the state folder keeps. */
  private keptCount = 0;
  /** Bytes of the container's own that are valid, and the number of entries in them. */
  private ownEnd = 0;
  private ownCount = 0;

  constructor(container: Container, kept: SnapshotCache | undefined) {
    this.container = container;
    this.kept = kept;
  }

  /** Number of entries in the container's own index snapshot. */
  get count(): number {
    return this.ownCount;
  }

  /** Loads an index snapshot, if one fits the index and the segments. Returns whether one did. */
  load(segments: readonly Segment[]): boolean {
    const { disk, folder } = this.container;
    const index = ifFile(() => openFile(disk, indexFile(folder)));
    if (index === null) return false;
    return withFile(disk, index, () => {
      const { size } = disk.infoOf(index);
      const fits = (covered: Coverage): boolean => this.fits(covered, index, size, segments);
      return this.recall(fits) || this.readOwn(fits);
    });
  }

  /** Loads the index snapshot that the state folder keeps. Returns whether there was one that fits. */
  private recall(fits: (covered: Coverage) => boolean): boolean {
    const { key, header, entries } = this.container;
    const isOurs = ({ id, ...covered }: KeptContainer): boolean => id === header.id && fits(covered);
    const kept = key && this.kept?.load(key, entries.nodes, (facts) => isOurs(facts as KeptContainer));
    if (!kept) return false;
    this.container.extents.load(kept.columns);
    const { spineEnd: snapshotEnd, spineCount: snapshotCount, ...covered } = kept.facts as KeptContainer;
    this.resumeAt(covered, snapshotEnd, snapshotCount);
    this.keptCount = covered.count;
    return true;
  }

  /** Loads the container's own index snapshot. Returns whether there was one that fits. */
  private readOwn(fits: (covered: Coverage) => boolean): boolean {
    const { disk, folder, entries, extents } = this.container;
    const bytes = ifFile(() => readWhole(disk, indexSnapshotFile(folder)));
    if (bytes === null) return false;
    const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const blocks = readBlocks(file);
    for (let last = blocks.pop(); last; last = blocks.pop()) {
      const { details, end } = last;
      if (!fits(details)) continue;
      if (!loadBlocks(file, [...blocks, last], entries.nodes, extents)) return false;
      this.resumeAt(details, end, details.count);
      return true;
    }
    return false;
  }

  private resumeAt({ count, tail, indexEnd, rowLength, rowCrc }: Coverage, ownEnd: number, ownCount: number): void {
    this.container.entries.checked.set(count, 0);
    this.container.end.goTo({ tail, indexEnd, lastRow: { length: rowLength, crc: rowCrc } });
    this.ownEnd = ownEnd;
    this.ownCount = ownCount;
  }

  private fits(
    { tail, indexEnd, rowLength, rowCrc, count }: Coverage,
    index: number,
    indexSize: number,
    segments: readonly Segment[],
  ): boolean {
    if (indexEnd > indexSize || rowLength > indexEnd || tail.entrySeq !== count) return false;
    const upTo = segments.filter(({ seq }) => seq <= tail.segmentSeq);
    let sealed = 0;
    for (const { seq, size } of upTo) if (seq < tail.segmentSeq) sealed += size;
    if (upTo.length !== tail.segmentCount || sealed + tail.segmentSize !== tail.bytesTotal) return false;
    if ((upTo.at(-1)?.size ?? 0) < tail.segmentSize) return false;
    const row = readAt(this.container.disk, index, indexEnd - rowLength, rowLength);
    if (crc32c(row) !== rowCrc) return false;
    try {
      return decodeRow(row, 0, row.length - 1).entrySeq === count;
    } catch {
      return false;
    }
  }

  /** Forgets everything that an index snapshot said, because the segments are not what they were. */
  forget(): void {
    const { entries, end } = this.container;
    entries.forgetFrom(0);
    entries.nodes.aliases = 0;
    this.container.reader.doubt();
    end.goTo(EMPTY_END);
    Object.assign(this, { ownEnd: 0, ownCount: 0, keptCount: 0 });
  }

  /** Keeps an index snapshot in the state folder for the next opening, if it says no more than the frames do. */
  keep(): void {
    const { entries, extents, end, key, state, header } = this.container;
    const { nodes, damage, overrides } = entries;
    const { count } = nodes;
    const plain = damage.length === 0 && overrides.size === 0 && end.rows.length === 0 && end.indexFault === null;
    if (!this.kept || !key || !plain || state.readOnly || end.tornTail || nodes.aliases > 0) return;
    if (count === this.keptCount || count !== end.tail.entrySeq || end.tail.bytesTotal < this.kept.minBytes) return;
    const own = { spineEnd: this.ownEnd, spineCount: this.ownCount };
    const facts: KeptContainer = { ...coverageOf(end), id: header.id, ...own };
    this.kept.store(key, nodes, { columns: extents.columns(count), facts });
    this.keptCount = count;
  }

  /**
   * Adds the durable entries that the container's own lacks, if the tree says no more than their frames do. Best
   * effort.
   */
  grow(): void {
    const { disk, folder, entries, extents, end } = this.container;
    const { nodes } = entries;
    const covered = coverageOf(end.durable);
    if (nodes.aliases > 0 || nodes.missingParent.size > 0 || nodes.losses > 0 || covered.rowLength === 0) return;
    if (covered.count <= this.ownCount) return;
    for (const position of nodes.forward) if (nodes.parent(position) >= covered.count) return;
    const path = indexSnapshotFile(folder);
    try {
      withFile(disk, exists(disk, path) ? disk.openAppend(path) : disk.create(path), (fd) => {
        const { size } = disk.infoOf(fd);
        if (size < this.ownEnd) Object.assign(this, { ownEnd: 0, ownCount: 0 });
        if (size !== this.ownEnd) disk.truncate(fd, this.ownEnd);
        const block = encodeBlock(nodes, extents, this.ownCount, covered);
        writeAll(disk, fd, block);
        this.ownEnd += block.length;
        this.ownCount = covered.count;
      });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }
}
