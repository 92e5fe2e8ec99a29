/**
 * Knowledge of a session file without a scan: from writing it, or by the index snapshot of a large one. A snapshot is used
 * only if the file confirms it: it must be the same file, with the same times if it has not grown, and with the same bytes
 * at both ends of the scanned part and at samples all over it. Bytes after that part are scanned as usual. Only sessions in
 * which nothing was damaged, migrated or renamed have one, so it is complete.
 */

import { crc32 } from "node:zlib";
import { HeadReader } from "../../core/format/node-reader.ts";
import type { Content, CopiedLines, FileStamp, Log } from "../../core/ports/store.ts";
import { Column, Nodes } from "../../core/tree/nodes.ts";
import { type FileInfo, readAll } from "../fs/disk.ts";
import { isUnchanged } from "../fs/stamps.ts";
import type { SnapshotCache } from "../log/snapshot-cache.ts";
import type { LineScanner, ScannedParts } from "./scan.ts";

/** Most bytes before the first entry of a file that gets an index snapshot. */
const INDEXED_HEADER = 1 << 16;
/** Bytes that are compared at each end of the scanned part; most samples in between; bytes of a sample. */
const EDGE = 4096;
const SAMPLES = 256;
const SAMPLE = 160;

interface SnapshotFacts extends FileStamp {
  readonly changed: number | null;
  readonly lines: number;
  /** Offsets of the sampled entries. */
  readonly sampled: readonly number[];
  readonly sum: number;
}

export class FileIndex {
  /** Bytes of the file that the index snapshot covers. */
  covered = 0;
  private readonly parts: ScannedParts;
  private readonly scanner: LineScanner;
  private readonly cache: SnapshotCache | undefined;

  constructor(parts: ScannedParts, scanner: LineScanner, cache: SnapshotCache | undefined) {
    this.parts = parts;
    this.scanner = scanner;
    this.cache = cache;
  }

  /** Restores the known part of the file from its writer or from the cache. Returns its length in bytes. */
  recall(info: FileInfo, written?: WrittenLines): number {
    const known = written?.recall(info, this.parts.entries.nodes);
    if (known) return this.restore(known);
    const kept = this.load(info);
    if (!kept) return 0;
    this.covered = kept.size;
    return this.restore(kept);
  }

  /** Restores the extents of known lines, whose nodes are there already. Returns how many bytes they cover. */
  private restore({ starts, lengths, lines, size }: KnownLines): number {
    const { file, entries, records, end } = this.parts;
    records.starts.values = starts;
    records.lengths.values = lengths;
    entries.checked.values = new Uint8Array(starts.length);
    const header = file.read(0, starts[0]);
    this.scanner.addLine(1, 0, header, 0, header.length - 1);
    end.lines = lines;
    return size;
  }

  /** Fills the empty nodes from the snapshot of the file. Returns null if it is missing or does not hold. */
  private load(info: FileInfo): KnownLines | null {
    const { cache } = this;
    if (!cache || info.size < cache.minBytes) return null;
    const holds = (facts: unknown): boolean => this.isOf(facts as SnapshotFacts, info);
    const snapshot = cache.load(info, this.parts.entries.nodes, holds);
    if (!snapshot) return null;
    const { size, lines } = snapshot.facts as SnapshotFacts;
    const { starts, lengths } = snapshot.columns as { starts: Float64Array; lengths: Uint32Array };
    return { size, lines, starts, lengths };
  }

  private isOf(facts: SnapshotFacts, info: FileInfo): boolean {
    if (facts.device !== info.device || facts.inode !== info.inode || facts.size > info.size) return false;
    const untouched = facts.modified === info.modified && facts.changed === (info.changed ?? null);
    if (facts.size === info.size && !untouched) return false;
    return facts.sum === this.sumOf(facts.size, facts.sampled);
  }

  /** Returns the CRC of the bytes at both ends of the scanned part and at the samples. A hash would take 3 ms to load. */
  private sumOf(size: number, sampled: readonly number[]): number {
    const { disk, fd } = this.parts.file;
    const edge = Math.min(EDGE, size);
    const bytes = new Uint8Array(2 * edge + sampled.length * SAMPLE);
    readAll(disk, fd, bytes.subarray(0, edge), 0);
    readAll(disk, fd, bytes.subarray(edge, 2 * edge), size - edge);
    for (const [index, start] of sampled.entries()) {
      const at = 2 * edge + index * SAMPLE;
      // A sample includes the line feed before its line.
      const from = Math.max(0, start - 1);
      readAll(disk, fd, bytes.subarray(at, at + Math.min(SAMPLE, size - from)), from);
    }
    return crc32(bytes);
  }

  /**
   * Saves the index of a file for the next opening. The caller knows that it follows from the lines alone. `isLast`: the log
   * is closed, so that this may be written later.
   */
  keep(isLast: boolean): void {
    const { cache } = this;
    const { file, entries, records, end } = this.parts;
    const { nodes } = entries;
    const { count } = nodes;
    const info = file.seen;
    const { size, lines } = end;
    if (!cache || !info || this.covered === size || count === 0) return;
    if (size < cache.minBytes || info.size !== size || records.starts.values[0] > INDEXED_HEADER) return;
    const starts = records.starts.values.subarray(0, count);
    const lengths = records.lengths.values.subarray(0, count);
    try {
      // The header must be the only line before the entries.
      if (file.read(0, starts[0]).indexOf(0x0a) !== starts[0] - 1) return;
      const step = Math.max(1, count / SAMPLES);
      const sampled = Array.from({ length: Math.min(SAMPLES, count) }, (_, n) => starts[Math.floor(n * step)]);
      const { device, inode, modified, changed = null } = info;
      const sum = this.sumOf(size, sampled);
      const facts: SnapshotFacts = { device, inode, size, modified, changed, lines, sampled, sum };
      cache.store(info, nodes, { columns: { starts, lengths }, facts }, isLast);
      this.covered = size;
    } catch {
      // The file cannot be read any more; its next opening reports that.
    }
  }
}

/** Lines of a file whose nodes are known. */
interface KnownLines {
  /** Bytes of the file that hold them; the last of them is a line feed. */
  readonly size: number;
  readonly lines: number;
  /** Offset of each entry's line, and its length in bytes. */
  readonly starts: Float64Array;
  readonly lengths: Uint32Array;
}

/**
 * Collects the nodes of a new file while its lines are written: copied lines take over the nodes that they have in
 * their source, and only the others are parsed. So a session that was just published is opened without a scan.
 */
export class WrittenLines {
  private readonly nodes = new Nodes();
  private readonly heads = new HeadReader(this.nodes);
  private readonly starts: Column<Float64Array> = new Column(new Float64Array(16));
  private readonly lengths: Column<Uint32Array> = new Column(new Uint32Array(16));
  private readonly sources = new Set<Log>();
  private size: number;
  /** True if something was written whose nodes only a scan can find. */
  private unknown = false;
  private info: FileInfo | undefined;

  constructor(headerLine: Uint8Array) {
    this.size = headerLine.length + 1;
  }

  /** Yields the bytes to write and records their lines. Each piece is valid until the next is asked for. */
  *record(content: Content): Iterable<Uint8Array> {
    for (const part of content)
      if (part instanceof Uint8Array) {
        this.recordLines(part);
        yield part;
      } else {
        this.recordCopies(part);
        yield* part.log.copy(part.positions, true);
      }
  }

  /** Records the properties of the file once it is written. */
  end(info: FileInfo): void {
    this.info = info;
    // A source that changed while it was copied may have yielded anything.
    for (const log of this.sources) this.unknown ||= !log.isPlain;
    this.unknown ||= this.size !== info.size || this.nodes.count === 0 || this.nodes.aliases > 0;
  }

  /** Fills the empty `nodes` with those of the file, if it is still as it was written. Returns null otherwise. */
  recall(info: FileInfo, nodes: Nodes): KnownLines | null {
    if (this.unknown || !this.info || !isUnchanged(info, this.info) || !nodes.adopt(this.nodes.image())) return null;
    return { size: this.size, lines: nodes.count + 1, starts: this.starts.values, lengths: this.lengths.values };
  }

  /** Records lines with their line feeds. Sets `unknown` if one is not of the usual kind. */
  private recordLines(bytes: Uint8Array): void {
    const { heads } = this;
    for (let at = 0; at < bytes.length && !this.unknown; ) {
      const end = bytes.indexOf(0x0a, at);
      const isLine = end > at && bytes[end - 1] === 0x7d;
      this.unknown = !isLine || !heads.readFast(bytes, at, end);
      if (!this.unknown) this.recordExtent(this.nodes.add(heads), end - at);
      at = end + 1;
    }
  }

  private recordCopies({ log, positions }: CopiedLines): void {
    if (!this.sources.has(log)) {
      this.sources.add(log);
      this.nodes.expect(log.nodes.count);
    }
    if (this.unknown) return;
    for (let i = 0; i < positions.length; i++)
      this.recordExtent(this.nodes.addLike(log.nodes, positions[i]), log.length(positions[i]));
  }

  private recordExtent(position: number, length: number): void {
    this.starts.reserve(position)[position] = this.size;
    this.lengths.reserve(position)[position] = length;
    this.size += length + 1;
  }
}
