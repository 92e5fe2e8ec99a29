/**
 * What is known of the lines of a new file by whoever writes them: those that are copied have the nodes that they have
 * where they come from, and only the others are read. So a session that was just published is opened without a scan.
 */

import { HEAD_BYTES, HeadReader } from "../../core/format/head.ts";
import type { Content, CopiedLines, Log } from "../../core/ports/store.ts";
import { Column, Nodes } from "../../core/tree/nodes.ts";
import type { FileInfo } from "../fs/disk.ts";
import { isUnchanged } from "../fs/stamps.ts";
import type { ScannedFile } from "./index-cache.ts";

export class WrittenLines {
  private readonly nodes = new Nodes();
  private readonly heads = new HeadReader(this.nodes);
  private readonly starts: Column<Float64Array> = new Column(new Float64Array(16));
  private readonly lengths: Column<Uint32Array> = new Column(new Uint32Array(16));
  private readonly sources = new Set<Log>();
  private size: number;
  /** Something was written whose nodes only a scan tells. */
  private unknown = false;
  private info: FileInfo | undefined;

  constructor(headerLine: Uint8Array) {
    this.size = headerLine.length + 1;
  }

  /** The bytes of what is written next, each piece good until the next is asked for. */
  *follow(content: Content): Iterable<Uint8Array> {
    for (const part of content)
      if (part instanceof Uint8Array) {
        this.takeLine(part);
        yield part;
      } else {
        this.takeCopies(part);
        yield* part.log.copy(part.positions, true);
      }
  }

  /** The file is written, and this is what it looks like. */
  end(info: FileInfo): void {
    this.info = info;
    // What was changed while it was copied may be anything.
    for (const log of this.sources) this.unknown ||= !log.isPlain;
    this.unknown ||= this.size !== info.size || this.nodes.count === 0 || this.nodes.aliases > 0;
  }

  /** Fills `nodes`, which are empty, with those of the file, if it is still as it was written; else null. */
  recall(info: FileInfo, nodes: Nodes): Omit<ScannedFile, "info"> | null {
    if (this.unknown || !this.info || !isUnchanged(info, this.info) || !nodes.adopt(this.nodes.image())) return null;
    return {
      size: this.size,
      lines: nodes.count + 1,
      starts: this.starts.values,
      lengths: this.lengths.values,
    };
  }

  /** A line with its line feed, if it is of the usual kind. */
  private takeLine(bytes: Uint8Array): void {
    const { heads } = this;
    const length = bytes.indexOf(0x0a);
    const isLine = length > 0 && length === bytes.length - 1 && bytes[length - 1] === 0x7d;
    this.unknown ||= !isLine || !heads.read(bytes, 0, Math.min(length, HEAD_BYTES));
    if (!this.unknown) this.place(this.nodes.add(heads), length);
  }

  private takeCopies({ log, positions }: CopiedLines): void {
    if (!this.sources.has(log)) {
      this.sources.add(log);
      this.nodes.expect(log.nodes.count);
    }
    if (this.unknown) return;
    for (let i = 0; i < positions.length; i++)
      this.place(this.nodes.addLike(log.nodes, positions[i]), log.length(positions[i]));
  }

  private place(position: number, length: number): void {
    this.starts.room(position)[position] = this.size;
    this.lengths.room(position)[position] = length;
    this.size += length + 1;
  }
}
