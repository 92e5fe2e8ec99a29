/** Writes the files of a container: appends frames and index rows, and cuts off what must not stay there. */

import { join } from "node:path";
import type { Failure } from "../../core/failure.ts";
import type { SessionHeader } from "../../core/format/entry.ts";
import { bytesOf, concat, sameBytes } from "../../core/json/json.ts";
import type { Env } from "../../core/ports/env.ts";
import { indexFile, segmentFile, segmentFolder } from "../fs/container-paths.ts";
import { closeQuietly, type Disk, type FileInfo, readAll, writeAll } from "../fs/disk.ts";
import { backupName, keepAside } from "../fs/quarantine.ts";
import { isSameFile } from "../fs/stamps.ts";
import { LooseFolders } from "../fs/unsynced-folders.ts";
import type { Locks } from "../locks/locks.ts";
import type { Durability } from "../log/file-log.ts";
import type { NextFrame } from "./builder.ts";
import type { Tail } from "./places.ts";
import { type Remains, SegmentedReader, type SegmentedReaderOptions } from "./reader.ts";

const NOTHING = new Uint8Array(0);

export interface SegmentedOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly locks: Locks;
  readonly durability: Durability;
  readonly readOnly?: boolean;
  /** Folder for bytes that are taken out of a session. */
  readonly quarantine: string;
  /** Returns the path of a new session's container. */
  readonly containerFor: (header: SessionHeader) => string;
  /** Largest size of a segment in bytes. */
  readonly segmentBytes: number;
  /** Amounts appended since the last checkpoint; either makes the next one due. */
  readonly checkpointEvery: { readonly entries: number; readonly bytes: number };
  /** See ReaderOptions. */
  readonly spines?: SegmentedReaderOptions["spines"];
}

export abstract class SegmentedWriter extends SegmentedReader {
  protected readonly options: SegmentedOptions;
  protected readonly looseFolders: LooseFolders;
  protected writer: { readonly segmentSeq: number; readonly fd: number } | null = null;
  /** Open segments before the one that is written, which are not fsynced yet. */
  protected sealed: number[] = [];
  protected indexFd = -1;
  /** Rows that were written to the index and are not known to be durable. */
  protected attempted: Uint8Array = NOTHING;

  constructor(options: SegmentedOptions, file: string, folder?: string) {
    super(options, file, folder);
    this.options = options;
    this.looseFolders = new LooseFolders(options.disk);
  }

  /**
   * Writes frames after the tail, with one write for each segment. Throws storage_failed when another program wrote
   * there too. After any failure, what was written of them is cut off again.
   */
  protected writeFrames(frames: readonly NextFrame[]): void {
    const { disk } = this;
    /** Bytes that each segment is to hold, and where they begin. */
    const attempted = new Map<number, { readonly start: number; readonly bytes: Uint8Array }>();
    try {
      for (let from = 0; from < frames.length; ) {
        let past = from + 1;
        while (past < frames.length && !frames[past].isNew) past++;
        const { place, isNew } = frames[from];
        const { segmentSeq, start } = place;
        const fd = this.writerOf(segmentSeq, isNew);
        const bytes = concat(frames.slice(from, past).map(({ bytes }) => bytes));
        attempted.set(segmentSeq, { start, bytes });
        this.demandEnd(segmentFile(this.folder, segmentSeq), fd, start);
        writeAll(disk, fd, bytes);
        this.noteSegment(segmentSeq, this.demandEnd(segmentFile(this.folder, segmentSeq), fd, start + bytes.length));
        from = past;
      }
    } catch (error) {
      this.cutTo(this.tail, ({ seq, size }, start) => {
        const tried = attempted.get(seq);
        if (!tried || tried.start !== start || size - start > tried.bytes.length) return false;
        return this.holds(seq, start, tried.bytes.subarray(0, size - start));
      });
      throw error;
    }
  }

  /** Throws storage_failed unless a file that we write still has its name, and ends where it must. */
  private demandEnd(path: string, fd: number, end: number): FileInfo {
    const info = this.disk.infoOf(fd);
    const named = this.infoOrNull(path);
    if (info.size !== end || !named || !isSameFile(info, named)) throw this.changedByOthers();
    return info;
  }

  /**
   * Returns the failure for files that another program changed. What was known may no longer hold, so the next refresh
   * compares.
   */
  protected abstract changedByOthers(): Failure;

  /** Whether a segment holds these bytes at `start`. */
  protected holds(segmentSeq: number, start: number, bytes: Uint8Array): boolean {
    const found = Buffer.allocUnsafe(bytes.length);
    readAll(this.disk, this.segmentFd(segmentSeq), found, start);
    return sameBytes(found, bytes);
  }

  private writerOf(segmentSeq: number, isNew: boolean): number {
    const { disk } = this;
    if (this.writer?.segmentSeq === segmentSeq) return this.writer.fd;
    const path = segmentFile(this.folder, segmentSeq);
    // A segment of this name that is open for reading was removed by another writer.
    if (isNew) this.forgetSegment(segmentSeq);
    const fd = isNew ? disk.create(path) : disk.openAppend(path);
    if (this.writer) this.sealed.push(this.writer.fd);
    this.writer = { segmentSeq, fd };
    if (isNew) this.looseFolders.add(segmentFolder(this.folder));
    return fd;
  }

  /** Fsyncs the segments that are open for writing now; meanwhile an append may begin the next. */
  protected async syncFrames(): Promise<void> {
    const sealed = [...this.sealed];
    const { writer } = this;
    for (const fd of writer ? [...sealed, writer.fd] : sealed) await this.disk.sync(fd);
    for (const fd of sealed) closeQuietly(this.disk, fd);
    this.sealed = this.sealed.filter((fd) => !sealed.includes(fd));
  }

  /** Cuts off what comes after a tail, if all of it was written by us. When that fails, the next write tries again. */
  protected cutTo(tail: Tail, isOurs: Remains["isAsJudged"]): void {
    this.remains = {
      segmentSeq: Math.max(1, tail.segmentSeq),
      start: tail.segmentSize,
      ours: true,
      isAsJudged: isOurs,
    };
    try {
      this.cutRemains();
    } catch {
      // It stays until the next write.
    }
  }

  /**
   * Cuts off what a crash or a failed write left after the frames. Throws storage_failed, having cut nothing, when the
   * bytes are not those that were examined.
   */
  protected cutRemains(): void {
    const { disk, remains } = this;
    if (!remains) return;
    const cuts: { readonly seq: number; readonly start: number; readonly size: number }[] = [];
    for (const segment of this.segments().reverse()) {
      const { seq, size } = segment;
      if (seq < remains.segmentSeq) break;
      const start = seq === remains.segmentSeq ? remains.start : 0;
      if (size <= start && start > 0) continue;
      this.forgetSegment(seq);
      if (!remains.isAsJudged(segment, start)) throw this.changedByOthers();
      cuts.push({ seq, start, size });
    }
    for (const { seq, start, size } of cuts) {
      const path = segmentFile(this.folder, seq);
      if (!remains.ours && size > start) this.keepRemains(seq, start, size);
      if (this.writer?.segmentSeq === seq && start === 0) this.dropWriter();
      this.forgetSegment(seq);
      if (start === 0) disk.remove(path);
      else {
        const fd = disk.openAppend(path);
        try {
          disk.truncate(fd, start);
          this.noteSegment(seq, disk.infoOf(fd));
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

  protected openIndex(): void {
    if (this.indexFd >= 0) return;
    const { disk } = this;
    const path = indexFile(this.folder);
    try {
      // The index is rebuilt from the frames, so anything else that has its name is kept under another.
      if (disk.info(path, true).kind !== "file") disk.rename(path, backupName(disk, path, "damaged"));
      this.indexFd = disk.openAppend(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      this.indexFd = disk.create(path);
      this.looseFolders.add(join(this.folder, "index"));
    }
  }

  /** Writes rows after those that the index holds. Throws storage_failed when another program wrote there too. */
  protected writeRows(rows: readonly string[]): Uint8Array {
    const bytes = bytesOf(rows.join(""));
    if (bytes.length === 0) return bytes;
    this.openIndex();
    this.cutAttempted();
    this.attempted = bytes;
    writeAll(this.disk, this.indexFd, bytes);
    this.seen = this.demandIndexEnd(this.indexEnd + bytes.length);
    return bytes;
  }

  /**
   * Cuts off what an earlier write of this log left after the index. Throws storage_failed when anything else is there.
   */
  private cutAttempted(): void {
    const { disk, attempted, indexEnd } = this;
    const length = disk.infoOf(this.indexFd).size - indexEnd;
    if (length > 0) {
      if (length > attempted.length) throw this.changedByOthers();
      const found = Buffer.allocUnsafe(length);
      readAll(disk, this.indexFd, found, indexEnd);
      if (!sameBytes(found, attempted.subarray(0, length))) throw this.changedByOthers();
      disk.truncate(this.indexFd, indexEnd);
    }
    this.demandIndexEnd(indexEnd);
    this.attempted = NOTHING;
  }

  /** Throws storage_failed unless the index that we write still has its name, and ends where it must. */
  protected demandIndexEnd(end: number): FileInfo {
    return this.demandEnd(indexFile(this.folder), this.indexFd, end);
  }

  /** Cuts off index rows of entries that were rolled back. When that fails, the next write tries again. */
  protected cutIndex(): void {
    if (this.indexFd < 0) return;
    try {
      this.cutAttempted();
      this.seen = this.disk.infoOf(this.indexFd);
    } catch {
      // They stay until the next write.
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
