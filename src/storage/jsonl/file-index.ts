/** The index snapshot of one session file: recalled when the file is opened, and kept when it is closed. */

import type { FileInfo } from "../fs/disk.ts";
import type { IndexCache, ScannedFile } from "./index-cache.ts";
import type { LineScanner, ScannedParts } from "./scan.ts";
import type { WrittenLines } from "./written-lines.ts";

/** Most bytes before the first entry of a file that gets an index snapshot. */
const INDEXED_HEADER = 1 << 16;

export class FileIndex {
  /** Bytes of the file that the index snapshot covers. */
  covered = 0;
  private readonly parts: ScannedParts;
  private readonly scanner: LineScanner;
  private readonly cache: IndexCache | undefined;

  constructor(parts: ScannedParts, scanner: LineScanner, cache: IndexCache | undefined) {
    this.parts = parts;
    this.scanner = scanner;
    this.cache = cache;
  }

  /** Restores what is known of the file from its writer or from the cache. Returns how many bytes that covers. */
  recall(info: FileInfo, written?: WrittenLines): number {
    const { nodes } = this.parts.entries;
    const known = written?.recall(info, nodes);
    if (known) return this.restore(known);
    const kept = this.cache?.load(this.parts.file.fd, info, nodes);
    if (!kept) return 0;
    this.covered = kept.size;
    return this.restore(kept);
  }

  /** Restores the extents of known lines, whose nodes are there already. Returns how many bytes they cover. */
  private restore({ starts, lengths, lines, size }: Omit<ScannedFile, "info">): number {
    const { file, entries, records, end } = this.parts;
    records.starts.values = starts;
    records.lengths.values = lengths;
    entries.checked.values = new Uint8Array(starts.length);
    const header = Buffer.allocUnsafe(starts[0]);
    file.read(header, 0);
    this.scanner.addLine(1, 0, header, 0, header.length - 1);
    end.lines = lines;
    return size;
  }

  /** Saves what is known of a file for the next opening. The caller knows that it follows from the lines alone. */
  keep(): void {
    const { file, entries, records, end } = this.parts;
    const { count } = entries.nodes;
    const { seen } = file;
    if (!this.cache || !seen || this.covered === end.size || count === 0) return;
    const first = records.starts.values[0];
    if (first > INDEXED_HEADER) return;
    try {
      const before = Buffer.allocUnsafe(first);
      file.read(before, 0);
      if (before.indexOf(0x0a) !== before.length - 1) return;
      this.cache.store(file.fd, entries.nodes, {
        info: seen,
        size: end.size,
        lines: end.lines,
        starts: records.starts.values.subarray(0, count),
        lengths: records.lengths.values.subarray(0, count),
      });
      this.covered = end.size;
    } catch {
      // The file cannot be read any more; its next opening reports that.
    }
  }
}
