/** Knowledge of a session file from writing it, so that a session that was just published is opened without a scan. */

import { HeadReader } from "../../core/format/node-reader.ts";
import type { Content, CopiedLines, Log } from "../../core/ports/store.ts";
import { Column, Nodes } from "../../core/tree/nodes.ts";
import type { FileInfo } from "../fs/disk.ts";
import { isUnchanged } from "../fs/stamps.ts";

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
 * their source, and only the others are parsed.
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
