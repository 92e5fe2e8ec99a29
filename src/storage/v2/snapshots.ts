/**
 * The index snapshot of a container: knowledge of its frames, so that opening need not read every row and frame. It is
 * derived: it is used if it fits the index and the segments, and a container opens without it too. It grows by one block
 * with every checkpoint.
 */

import type { Nodes, NodesImage } from "../../core/tree/nodes.ts";
import { indexFile, indexSnapshotFile } from "../fs/container-paths.ts";
import { type Disk, exists, openFile, writeAll } from "../fs/disk.ts";
import { readAt, readIfFile, useFile } from "../fs/files.ts";
import { encodeColumns, readColumns, type SnapshotColumn } from "../log/index-snapshot.ts";
import type { Container } from "./container.ts";
import { crc32c } from "./crc32c.ts";
import { EMPTY_END, type Extents, type StoreEnd, type Tail } from "./extents.ts";
import { decodeRow } from "./frame.ts";
import type { Segment } from "./segments.ts";

/** The part of a container that an index snapshot covers. */
interface Coverage {
  /** Number of entries covered. */
  readonly count: number;
  readonly tail: Tail;
  /** Bytes of the index that hold their rows. */
  readonly indexEnd: number;
  /** Length and checksum of the last of those rows, to compare a block with the index. */
  readonly rowLength: number;
  readonly rowCrc: number;
}

/** Returns the coverage of all entries before an end. */
export function getCoverage({ tail, indexEnd, lastRow }: StoreEnd): Coverage {
  return { count: tail.entrySeq, tail, indexEnd, rowLength: lastRow.length, rowCrc: lastRow.crc };
}

/** Facts of one block of entries, in addition to their columns. */
interface Details extends Coverage {
  readonly from: number;
  /** Names of types by their codes. */
  readonly types: readonly string[];
  /** Ids that are not eight hex digits, by position. */
  readonly odd: readonly (readonly [number, string])[];
  /** Positions of entries whose parents come after them. */
  readonly forward: readonly number[];
}

/** Encodes a block of the entries from `from` on. Every parent must be there, and no id taken twice. */
export function encodeBlock(nodes: Nodes, extents: Extents, from: number, covered: Coverage): Uint8Array {
  const { count } = covered;
  const { ids, parents, types, roles, flags, rest } = nodes.image();
  const all = { ids, parents, types, roles, flags, ...extents.columns(count) };
  const columns = Object.fromEntries(Object.entries(all).map(([name, column]) => [name, column.subarray(from, count)]));
  const within = (position: number): boolean => position >= from && position < count;
  const odd = rest.oddPositions
    .map((position, i) => [position, rest.oddIds[i]] as const)
    .filter(([position]) => within(position));
  const facts: Details = { ...covered, from, types: rest.types, odd, forward: rest.forward.filter(within) };
  return Buffer.concat(encodeColumns({ columns, facts }));
}

/** A whole block of an index snapshot. */
interface SnapshotBlock {
  readonly details: Details;
  readonly columns: Readonly<Record<string, SnapshotColumn>>;
  /** End of the block in the file. */
  readonly end: number;
}

/** Returns the blocks of a snapshot file, up to the first that is torn, damaged or does not continue the one before. */
function readBlocks(disk: Disk, fd: number): SnapshotBlock[] {
  const blocks: SnapshotBlock[] = [];
  for (;;) {
    const { details: { count = 0 } = {}, end: start = 0 } = blocks.at(-1) ?? {};
    const block = readColumns(disk, fd, start, 0, (facts) => (facts as Details).from === count);
    if (block === null) return blocks;
    blocks.push({ ...block, details: block.facts as Details });
  }
}

/** Fills empty nodes and extents from blocks. Returns false if these were made with other known types. */
function loadBlocks(blocks: readonly SnapshotBlock[], nodes: Nodes, extents: Extents): boolean {
  const { count, types } = blocks[blocks.length - 1].details;
  // Spare capacity, so that the first append need not copy the columns.
  const capacity = count + Math.max(1024, count >> 4);
  const columns: Record<string, SnapshotColumn> = {};
  for (const [name, { constructor: Column }] of Object.entries(blocks[0].columns)) {
    columns[name] = new (Column as new (length: number) => SnapshotColumn)(capacity);
    for (const block of blocks) columns[name].set(block.columns[name], block.details.from);
  }
  const odd = blocks.flatMap(({ details }) => details.odd);
  const forward = blocks.flatMap(({ details }) => details.forward);
  const ofIds = { oddPositions: odd.map(([position]) => position), oddIds: odd.map(([, id]) => id) };
  const none = { aliases: 0, losses: 0, tabled: 0, awaited: [], missingParent: [], bridged: [] };
  const image: Partial<NodesImage> = { ...columns, count, table: new Uint32Array(0) };
  if (!nodes.adopt({ ...image, rest: { ...none, ...ofIds, types, forward } } as NodesImage)) return false;
  extents.load(columns);
  return true;
}

export class Snapshots {
  private readonly container: Container;
  /** Number of entries in the snapshot, and bytes of it that are valid. */
  count = 0;
  private end = 0;

  constructor(container: Container) {
    this.container = container;
  }

  /** Loads the index snapshot, if it fits the index and the segments. Returns whether it did. */
  load(segments: readonly Segment[]): boolean {
    const { disk, folder } = this.container;
    const index = readIfFile(() => openFile(disk, indexFile(folder)));
    if (index === null) return false;
    return useFile(disk, index, () => {
      const { size } = disk.infoOf(index);
      return this.read((covered) => this.fits(covered, index, size, segments));
    });
  }

  /** Loads the last block that fits and those before it. Returns whether there was one. */
  private read(fits: (covered: Coverage) => boolean): boolean {
    const { disk, folder, entries, extents, end: storeEnd } = this.container;
    const file = readIfFile(() => openFile(disk, indexSnapshotFile(folder)));
    if (file === null) return false;
    const blocks = useFile(disk, file, () => readBlocks(disk, file));
    for (let last = blocks.at(-1); last; blocks.pop(), last = blocks.at(-1)) {
      const { details, end } = last;
      if (!fits(details)) continue;
      if (!loadBlocks(blocks, entries.nodes, extents)) return false;
      for (const { details } of blocks) storeEnd.chains.set(details.count, details.tail.chainHash);
      const { count, tail, indexEnd, rowLength, rowCrc } = details;
      entries.checked.set(count, 0);
      storeEnd.goTo({ tail, indexEnd, lastRow: { length: rowLength, crc: rowCrc } });
      this.end = end;
      this.count = count;
      return true;
    }
    return false;
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

  /** Forgets the content of the index snapshot, because the segments have changed. */
  forget(): void {
    const { entries, end } = this.container;
    entries.forgetFrom(0);
    entries.nodes.aliases = 0;
    this.container.reader.doubt();
    end.goTo(EMPTY_END);
    end.chains.clear();
    Object.assign(this, { end: 0, count: 0 });
  }

  /** Adds the durable entries that the snapshot lacks, if the tree has no more than their frames. Best effort. */
  grow(): void {
    const { disk, folder, entries, extents, end } = this.container;
    const { nodes } = entries;
    const covered = getCoverage(end.durable);
    if (nodes.aliases > 0 || nodes.missingParent.size > 0 || nodes.losses > 0 || covered.rowLength === 0) return;
    if (covered.count <= this.count) return;
    for (const position of nodes.forward) if (nodes.parent(position) >= covered.count) return;
    const path = indexSnapshotFile(folder);
    try {
      useFile(disk, exists(disk, path) ? disk.openAppend(path) : disk.create(path), (fd) => {
        const { size } = disk.infoOf(fd);
        if (size < this.end) Object.assign(this, { end: 0, count: 0 });
        if (size !== this.end) disk.truncate(fd, this.end);
        const block = encodeBlock(nodes, extents, this.count, covered);
        writeAll(disk, fd, block);
        this.end += block.length;
        this.count = covered.count;
      });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }
}
