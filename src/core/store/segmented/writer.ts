/**
 * The files of a container as they are written: frames behind the tail, index rows behind those that are there, and
 * whatever is not to stay there cut off again.
 */

import { join } from "node:path";
import type { SessionHeader } from "../../entry.ts";
import type { Env } from "../../env.ts";
import { Failure } from "../../failure.ts";
import { bytesOf, concat } from "../../json.ts";
import { keepAside } from "../aside.ts";
import { closeQuietly, type Disk, readAll, writeAll } from "../disk.ts";
import type { Durability } from "../jsonl/log.ts";
import type { Locks } from "../lock.ts";
import { LooseFolders } from "../loose-folders.ts";
import type { NextFrame } from "./builder.ts";
import { indexFile, segmentFile, segmentFolder, type Tail } from "./places.ts";
import { type ReaderOptions, SegmentedReader } from "./reader.ts";

export interface SegmentedOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly locks: Locks;
  readonly durability: Durability;
  readonly readOnly?: boolean;
  /** Where bytes go that are taken out of a session. */
  readonly quarantine: string;
  /** Where a new session's container goes. */
  readonly containerFor: (header: SessionHeader) => string;
  /** Bytes beyond which a segment is not written. */
  readonly segmentBytes: number;
  /** A checkpoint is made when so much was appended since the last. */
  readonly checkpointEvery: { readonly entries: number; readonly bytes: number };
  /** See ReaderOptions. */
  readonly spines?: ReaderOptions["spines"];
}

export abstract class SegmentedWriter extends SegmentedReader {
  protected readonly options: SegmentedOptions;
  protected readonly looseFolders: LooseFolders;
  protected writer: { readonly segmentSeq: number; readonly fd: number } | null = null;
  /** Segments before the one that is written, which are not on the medium yet. */
  protected sealed: number[] = [];
  protected indexFd = -1;

  constructor(options: SegmentedOptions, file: string, folder?: string) {
    super(options, file, folder);
    this.options = options;
    this.looseFolders = new LooseFolders(options.disk);
  }

  /** Writes frames behind the tail, one write for each segment they come to stand in. */
  protected writeFrames(frames: readonly NextFrame[]): void {
    const { disk } = this;
    try {
      for (let from = 0; from < frames.length; ) {
        let past = from + 1;
        while (past < frames.length && !frames[past].isNew) past++;
        const { place, isNew } = frames[from];
        const fd = this.writerOf(place.segmentSeq, isNew);
        if (!isNew && disk.infoOf(fd).size !== place.start)
          throw new Failure("storage_failed", "Another program wrote into the session's files. Ask again.");
        writeAll(disk, fd, concat(frames.slice(from, past).map(({ bytes }) => bytes)));
        from = past;
      }
    } catch (error) {
      if (!(error instanceof Failure)) this.cutTo(this.tail);
      throw error;
    }
  }

  private writerOf(segmentSeq: number, isNew: boolean): number {
    const { disk } = this;
    if (this.writer?.segmentSeq === segmentSeq) return this.writer.fd;
    const path = segmentFile(this.folder, segmentSeq);
    const fd = isNew ? disk.create(path) : disk.openAppend(path);
    if (this.writer) this.sealed.push(this.writer.fd);
    this.writer = { segmentSeq, fd };
    if (isNew) this.looseFolders.add(segmentFolder(this.folder));
    return fd;
  }

  /** Of the segments that are there now: while one becomes durable, an append may begin the next. */
  protected async syncFrames(): Promise<void> {
    const sealed = [...this.sealed];
    const { writer } = this;
    for (const fd of writer ? [...sealed, writer.fd] : sealed) await this.disk.sync(fd);
    for (const fd of sealed) closeQuietly(this.disk, fd);
    this.sealed = this.sealed.filter((fd) => !sealed.includes(fd));
  }

  /** Takes away what stands behind a tail, if that can be done; the next write tries again. */
  protected cutTo(tail: Tail): void {
    const { disk } = this;
    this.remains = { segmentSeq: Math.max(1, tail.segmentSeq), start: tail.segmentSize, ours: true };
    try {
      if (this.writer && this.writer.segmentSeq > tail.segmentSeq) this.dropWriter();
      if (this.writer) {
        const { size } = disk.infoOf(this.writer.fd);
        if (size !== tail.segmentSize) disk.truncate(this.writer.fd, tail.segmentSize);
        this.removeSegmentsBehind(tail.segmentSeq);
        this.remains = null;
      } else this.cutRemains();
    } catch {
      // Then it remains.
    }
  }

  protected cutRemains(): void {
    const { disk, remains } = this;
    if (!remains) return;
    for (const { seq, size } of this.segments().reverse()) {
      if (seq < remains.segmentSeq) break;
      const start = seq === remains.segmentSeq ? remains.start : 0;
      if (size <= start && start > 0) continue;
      const path = segmentFile(this.folder, seq);
      if (!remains.ours && size > start) this.keepRemains(seq, start, size);
      if (this.writer?.segmentSeq === seq && start === 0) this.dropWriter();
      this.forgetSegment(seq);
      if (start === 0) disk.remove(path);
      else {
        const fd = disk.openAppend(path);
        try {
          disk.truncate(fd, start);
        } finally {
          closeQuietly(disk, fd);
        }
      }
      this.looseFolders.add(segmentFolder(this.folder));
    }
    this.remains = null;
  }

  private keepRemains(segmentSeq: number, start: number, size: number): void {
    const { disk } = this;
    const bytes = Buffer.allocUnsafe(size - start);
    readAll(disk, this.segmentFd(segmentSeq), bytes, start);
    const keptAt = keepAside(disk, this.options.quarantine, `${this.header.id}-${segmentSeq}-${start}`, bytes);
    const index = this.damage.findIndex(({ kind, keptAt }) => kind === "torn_tail" && keptAt === undefined);
    if (index >= 0) this.damage[index] = { ...this.damage[index], keptAt };
  }

  private removeSegmentsBehind(segmentSeq: number): void {
    for (const { seq } of this.segments()) {
      if (seq <= segmentSeq) continue;
      this.forgetSegment(seq);
      this.disk.remove(segmentFile(this.folder, seq));
    }
  }

  protected openIndex(): void {
    if (this.indexFd >= 0) return;
    const path = indexFile(this.folder);
    try {
      this.indexFd = this.disk.openAppend(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      this.indexFd = this.disk.create(path);
      this.looseFolders.add(join(this.folder, "index"));
    }
  }

  /** Writes rows behind those that the index holds. */
  protected writeRows(rows: readonly string[]): Uint8Array {
    const bytes = bytesOf(rows.join(""));
    if (bytes.length === 0) return bytes;
    this.openIndex();
    const { size } = this.disk.infoOf(this.indexFd);
    if (size !== this.indexEnd) this.disk.truncate(this.indexFd, this.indexEnd);
    writeAll(this.disk, this.indexFd, bytes);
    return bytes;
  }

  protected cutIndex(): void {
    if (this.indexFd < 0) return;
    try {
      if (this.disk.infoOf(this.indexFd).size > this.indexEnd) this.disk.truncate(this.indexFd, this.indexEnd);
      this.seen = this.disk.infoOf(this.indexFd);
    } catch {
      this.indexFault = "it holds rows of entries that were given up";
    }
  }

  private dropWriter(): void {
    if (this.writer) closeQuietly(this.disk, this.writer.fd);
    this.writer = null;
  }

  protected closeFiles(): void {
    this.dropWriter();
    for (const fd of this.sealed) closeQuietly(this.disk, fd);
    this.sealed = [];
    if (this.indexFd >= 0) closeQuietly(this.disk, this.indexFd);
    this.indexFd = -1;
    this.closeSegments();
  }
}
