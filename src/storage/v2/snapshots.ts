/**
 * The index snapshots of a container: knowledge of its frames, so that opening need not read every row and frame. One lies
 * in the container, and the state folder keeps another. Both are derived: either is used if it fits the index and the
 * segments, and a container opens without them too. The container's own grows by one block with every checkpoint.
 */

import type { Nodes, NodesImage } from "../../core/tree/nodes.ts";
import { indexFile, indexSnapshotFile } from "../fs/container-paths.ts";
import { type Disk, exists, openFile, writeAll } from "../fs/disk.ts";
import { readAt, readIfFile, useFile } from "../fs/files.ts";
import { encodeColumns, readColumns, type SnapshotCache, type SnapshotColumn } from "../log/snapshot-cache.ts";
import type { Container } from "./container.ts";
import { crc32c } from "./crc32c.ts";
import { EMPTY_END, type Extents, type StoreEnd, type Tail } from "./extents.ts";
import { decodeRow } from "./frame.ts";
import type { Segment } from "./segments.ts";

/** Number of latest entries whose hash chain is kept: marks name some of them. */
const KEPT_CHAINS = 64;

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
  const image: Partial<NodesImage> = { ...columns, count, table: new Uint32Array(0), counterColumns: null };
  if (!nodes.adopt({ ...image, rest: { ...none, ...ofIds, types, forward } } as NodesImage)) return false;
  extents.load(columns);
  return true;
}

/** Facts of a container that the state folder keeps, in addition to the columns. */
interface KeptContainer extends Coverage {
  /** Id of the session. */
  readonly id: string;
  /** Bytes of the container's own index snapshot that were valid, and the number of entries in them. */
  readonly spineEnd: number;
  readonly spineCount: number;
  /** The hash chain at some of the entries. */
  readonly chains: readonly (readonly [number, string])[];
}

export class Snapshots {
  private readonly container: Container;
  private readonly kept: SnapshotCache | undefined;
  /** Number of entries in the index snapshot that the state folder keeps. */
  private keptCount = 0;
  /** Number of entries in the container's own, and bytes of it that are valid. */
  count = 0;
  private ownEnd = 0;

  constructor(container: Container, kept: SnapshotCache | undefined) {
    this.container = container;
    this.kept = kept;
  }

  /** Loads an index snapshot, if one fits the index and the segments. Returns whether one did. */
  load(segments: readonly Segment[]): boolean {
    const { disk, folder } = this.container;
    const index = readIfFile(() => openFile(disk, indexFile(folder)));
    if (index === null) return false;
    return useFile(disk, index, () => {
      const { size } = disk.infoOf(index);
      const fits = (covered: Coverage): boolean => this.fits(covered, index, size, segments);
      return this.recall(fits) || this.readOwn(fits);
    });
  }

  /** Loads the index snapshot that the state folder keeps. Returns whether there was one that fits. */
  private recall(fits: (covered: Coverage) => boolean): boolean {
    const { key, header, entries } = this.container;
    const isOurs = ({ id, chains, ...covered }: KeptContainer): boolean =>
      id === header.id && Array.isArray(chains) && fits(covered);
    const kept = key && this.kept?.load(key, entries.nodes, (facts) => isOurs(facts as KeptContainer));
    if (!kept) return false;
    this.container.extents.load(kept.columns);
    const { spineEnd: snapshotEnd, spineCount: snapshotCount, chains, ...covered } = kept.facts as KeptContainer;
    this.resumeAt(covered, snapshotEnd, snapshotCount, chains);
    this.keptCount = covered.count;
    return true;
  }

  /** Loads the container's own index snapshot. Returns whether there was one that fits. */
  private readOwn(fits: (covered: Coverage) => boolean): boolean {
    const { disk, folder, entries, extents } = this.container;
    const file = readIfFile(() => openFile(disk, indexSnapshotFile(folder)));
    if (file === null) return false;
    const blocks = useFile(disk, file, () => readBlocks(disk, file));
    for (let last = blocks.pop(); last; last = blocks.pop()) {
      const { details, end } = last;
      if (!fits(details)) continue;
      if (!loadBlocks([...blocks, last], entries.nodes, extents)) return false;
      const chains = blocks.map(({ details }) => [details.count, details.tail.chainHash] as const);
      this.resumeAt(details, end, details.count, chains);
      return true;
    }
    return false;
  }

  private resumeAt(
    { count, tail, indexEnd, rowLength, rowCrc }: Coverage,
    ownEnd: number,
    ownCount: number,
    chains: KeptContainer["chains"],
  ): void {
    for (const [entrySeq, chain] of [...chains, [count, tail.chainHash] as const])
      this.container.end.chains.set(entrySeq, chain);
    this.container.entries.checked.set(count, 0);
    this.container.end.goTo({ tail, indexEnd, lastRow: { length: rowLength, crc: rowCrc } });
    this.ownEnd = ownEnd;
    this.count = ownCount;
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
    Object.assign(this, { ownEnd: 0, count: 0, keptCount: 0 });
  }

  /** Keeps an index snapshot of a closed log for the next opening, if it has no more than the frames. */
  keep(): void {
    const { entries, extents, end, key, state, header } = this.container;
    const { nodes, damage, overrides } = entries;
    const { count } = nodes;
    const plain = damage.length === 0 && overrides.size === 0 && end.rows.length === 0 && end.indexFault === null;
    if (!this.kept || !key || !plain || state.readOnly || end.tornTail || nodes.aliases > 0) return;
    if (count === this.keptCount || count !== end.tail.entrySeq || end.tail.bytesTotal < this.kept.minBytes) return;
    const own = { spineEnd: this.ownEnd, spineCount: this.count };
    const chains = [...end.chains].slice(-KEPT_CHAINS);
    const facts: KeptContainer = { ...getCoverage(end), id: header.id, ...own, chains };
    this.kept.store(key, nodes, { columns: extents.columns(count), facts }, true);
    this.keptCount = count;
  }

  /** Adds the durable entries that the own snapshot lacks, if the tree has no more than their frames. Best effort. */
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
        if (size < this.ownEnd) Object.assign(this, { ownEnd: 0, count: 0 });
        if (size !== this.ownEnd) disk.truncate(fd, this.ownEnd);
        const block = encodeBlock(nodes, extents, this.count, covered);
        writeAll(disk, fd, block);
        this.ownEnd += block.length;
        this.count = covered.count;
      });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    }
  }
}
