/** Writes the segments of a container: appends frames, and cuts off bytes that must not stay after them. */

import { isErrno, toNotUndoneFailure, toUncertainFailure } from "../../core/errno.ts";
import { concat } from "../../core/json/json.ts";
import { segmentFile, segmentFolder } from "../fs/container-paths.ts";
import { closeQuietly, writeAll } from "../fs/disk.ts";
import { getInfo, hasNoName, readAt, useFile } from "../fs/files.ts";
import { quarantine } from "../fs/quarantine.ts";
import { isSameFile } from "../fs/stamps.ts";
import type { NextFrame } from "./builder.ts";
import type { Container } from "./container.ts";
import type { Tail, TornTail } from "./extents.ts";
import type { Segment } from "./segments.ts";

/** A write to a segment, where it begins, and its first frame. */
interface Attempt {
  readonly start: number;
  readonly bytes: Uint8Array;
  readonly first: Uint8Array;
}

export class SegmentWriter {
  private readonly container: Container;
  private writer: { readonly segmentSeq: number; readonly fd: number } | null = null;
  /** Open segments before the one that is written, which are not fsynced yet. */
  private sealed: number[] = [];
  /** The first of the segments in which another process left frames, which may not be on the medium; else null. */
  private found: number | null = null;

  constructor(container: Container) {
    this.container = container;
  }

  /**
   * Writes frames after the tail, with one write for each segment. Throws storage_failed if another program wrote there too.
   * After any failure, the written part is cut off again.
   */
  write(frames: readonly NextFrame[]): void {
    const { container } = this;
    const { segments } = container;
    /** Bytes that each segment is to hold, and where they begin. */
    const attempted = new Map<number, Attempt>();
    let isWritten = false;
    try {
      for (let from = 0; from < frames.length; ) {
        let past = from + 1;
        while (past < frames.length && !frames[past].isNew) past++;
        const { extent: place, isNew } = frames[from];
        const { segmentSeq, start } = place;
        const path = segmentFile(container.folder, segmentSeq);
        const fd = this.writerOf(segmentSeq, isNew);
        const bytes = concat(frames.slice(from, past).map(({ bytes }) => bytes));
        attempted.set(segmentSeq, { start, bytes, first: frames[from].bytes });
        segments.compare(segmentSeq, container.requireEnd(path, fd, start));
        isWritten = true;
        writeAll(container.disk, fd, bytes);
        const { size } = container.disk.infoOf(fd);
        // Bytes of another program behind the last of them are found by the commit, which keeps both and reports it.
        const isFollowed =
          past === frames.length && size > start + bytes.length && segments.holds(segmentSeq, start, bytes);
        segments.note(segmentSeq, container.requireEnd(path, fd, isFollowed ? size : start + bytes.length));
        from = past;
      }
    } catch (error) {
      for (const [seq, { start, bytes }] of attempted) this.cutBehind(seq, start, bytes);
      const isOurs = ({ seq, size }: Segment, start: number): boolean => {
        const tried = attempted.get(seq);
        if (!tried || tried.start !== start || size - start > tried.bytes.length) return false;
        return segments.holds(seq, start, tried.bytes.subarray(0, size - start));
      };
      this.cutTo(container.end.tail, isOurs);
      if (!isWritten) throw error;
      if (this.leavesAny(attempted, isOurs)) throw toNotUndoneFailure(error);
      throw this.isElsewhere || (container.end.tornTail && this.holdsWhole(attempted))
        ? toUncertainFailure(error)
        : error;
    }
  }

  /**
   * Returns whether a whole frame of a failed write is left, and stays: bytes that are only ours, and could not be cut off,
   * are cut off by the next write. Returns true if that cannot be read.
   */
  private leavesAny(attempted: ReadonlyMap<number, Attempt>, isOurs: TornTail["isAsRead"]): boolean {
    if (attempted.size === 0 || !this.container.end.tornTail) return false;
    try {
      return this.others(isOurs).length > 0 && this.holdsWhole(attempted);
    } catch {
      return true;
    }
  }

  /** Returns whether a segment holds a whole frame of a write that failed, or may. */
  private holdsWhole(attempted: ReadonlyMap<number, Attempt>): boolean {
    try {
      return this.container.segments.list().some((segment) => this.holdsAny(segment, attempted.get(segment.seq)));
    } catch {
      return true;
    }
  }

  /** Returns the segments behind the tail that contain bytes that are not ours. */
  private others(isOurs: TornTail["isAsRead"]): Segment[] {
    const { segmentSeq, segmentSize } = this.container.end.tail;
    const behind = this.container.segments.list().filter(({ seq }) => seq >= segmentSeq);
    return behind.filter((segment) => !isOurs(segment, segment.seq === segmentSeq ? segmentSize : 0));
  }

  /** Returns whether a segment holds a whole frame of a failed write, between the writes of other programs. */
  private holdsAny({ seq, size }: Segment, attempt: Attempt | undefined): boolean {
    if (!attempt || size <= attempt.start) return false;
    const bytes = readAt(this.container.disk, this.container.segments.fd(seq), attempt.start, size - attempt.start);
    return Buffer.from(bytes).includes(Buffer.from(attempt.first));
  }

  /**
   * Cuts off a write of ours that is the last one, behind another program's write at the same time: a reader of both finds
   * two frames of one number. Best effort: if it is not possible, the second is reported as damage.
   */
  private cutBehind(seq: number, start: number, bytes: Uint8Array): void {
    const { disk, folder, segments } = this.container;
    const path = segmentFile(folder, seq);
    try {
      segments.forget(seq);
      const from = disk.info(path).size - bytes.length;
      if (from <= start || !segments.holds(seq, from, bytes)) return;
      useFile(disk, disk.openAppend(path), (fd) => disk.truncate(fd, from));
      segments.forget(seq);
    } catch {
      // The disk refuses.
    }
  }

  private writerOf(segmentSeq: number, isNew: boolean): number {
    if (this.writer?.segmentSeq === segmentSeq) return this.writer.fd;
    const { disk, folder, segments, state } = this.container;
    const path = segmentFile(folder, segmentSeq);
    // A segment of this name that is open for reading was removed by another writer.
    if (isNew) segments.forget(segmentSeq);
    const fd = isNew ? disk.create(path) : disk.openAppend(path);
    if (this.writer) this.sealed.push(this.writer.fd);
    this.writer = { segmentSeq, fd };
    if (isNew) state.unsynced.add(segmentFolder(folder));
    return fd;
  }

  /**
   * Notes that another process left frames from this segment on that no row names: it may have died before they, and the
   * names of new segments, were on the medium. They are brought there before rows are written that name them.
   */
  noteFound(first: number): void {
    const { folder, state } = this.container;
    this.found = Math.min(first, this.found ?? first);
    state.unsynced.add(segmentFolder(folder));
  }

  /** Fsyncs the segments that are open for writing now; meanwhile an append may begin the next. */
  async sync(): Promise<void> {
    const { disk } = this.container;
    this.syncFound();
    const sealed = [...this.sealed];
    const { writer } = this;
    for (const fd of writer ? [...sealed, writer.fd] : sealed) await disk.sync(fd);
    for (const fd of sealed) closeQuietly(disk, fd);
    this.sealed = this.sealed.filter((fd) => !sealed.includes(fd));
  }

  /** Fsyncs them synchronously if `sync` is set. `keepOpen`: a commit that runs still has to fsync these files. */
  commitNow(sync: boolean, keepOpen: boolean): void {
    const { disk } = this.container;
    if (sync) this.syncFound();
    for (const fd of this.sealed) if (sync) disk.syncNow(fd);
    if (!keepOpen) for (const fd of this.sealed.splice(0)) closeQuietly(disk, fd);
    if (sync && this.writer) disk.syncNow(this.writer.fd);
  }

  /** Fsyncs the segments in which another process left frames. */
  syncFound(): void {
    const { found } = this;
    if (found === null) return;
    const { disk, folder, segments } = this.container;
    // Windows syncs only files that are open for writing.
    for (const { seq } of segments.list())
      if (seq >= found) useFile(disk, disk.openAppend(segmentFile(folder, seq)), (fd) => disk.syncNow(fd));
    this.found = null;
  }

  /**
   * Cuts off what comes after a tail, if all of it was written by us. When that fails, or with `later`, the next write
   * does so.
   */
  cutTo({ segmentSeq, segmentSize: start }: Tail, isAsRead: TornTail["isAsRead"], later = false): void {
    this.container.end.tornTail = { segmentSeq: Math.max(1, segmentSeq), start, ours: true, isAsRead };
    if (later) return;
    try {
      this.cutTornTail();
    } catch {
      // It stays until the next write.
    }
  }

  /**
   * Cuts off the bytes of a crash or a failed write. Throws storage_failed, having cut nothing, unless they are as examined.
   */
  cutTornTail(): void {
    const { container } = this;
    const { disk, folder, segments } = container;
    const { tornTail } = container.end;
    if (!tornTail) return;
    const cuts: { readonly seq: number; readonly start: number; readonly size: number }[] = [];
    for (const segment of segments.list().reverse()) {
      const { seq, size } = segment;
      if (seq < tornTail.segmentSeq) break;
      const start = seq === tornTail.segmentSeq ? tornTail.start : 0;
      if (size <= start && start > 0) continue;
      segments.forget(seq);
      if (!tornTail.isAsRead(segment, start)) throw container.changedByAnother();
      cuts.push({ seq, start, size });
    }
    for (const { seq, start, size } of cuts) {
      const path = segmentFile(folder, seq);
      if (!tornTail.ours && size > start) this.quarantineTornTail(seq, start, size);
      if (this.writer?.segmentSeq === seq && start === 0) this.dropWriter();
      segments.forget(seq);
      if (start === 0) disk.remove(path);
      else
        useFile(disk, disk.openAppend(path), (fd) => {
          disk.truncate(fd, start);
          segments.note(seq, disk.infoOf(fd));
        });
      container.state.unsynced.add(segmentFolder(folder));
    }
    container.end.tornTail = null;
  }

  private quarantineTornTail(segmentSeq: number, start: number, size: number): void {
    const { disk, options, header, segments, entries, state } = this.container;
    const bytes = readAt(disk, segments.fd(segmentSeq), start, size - start);
    const name = `${header.id}-${segmentSeq}-${start}`;
    const keptAt = quarantine(disk, options.quarantine, name, bytes, state.isSynced);
    const { damage } = entries;
    const index = damage.findIndex(({ kind, keptAt }) => kind === "torn_tail" && keptAt === undefined);
    if (index >= 0) damage[index] = { ...damage[index], keptAt };
  }

  /** True if the segment that is written exists under another name, or the disk does not answer that. */
  get isElsewhere(): boolean {
    const { disk, folder } = this.container;
    try {
      if (!this.writer || this.isDeleted) return false;
      const named = getInfo(disk, segmentFile(folder, this.writer.segmentSeq));
      return named === null || !isSameFile(named, disk.infoOf(this.writer.fd));
    } catch (error) {
      if (!isErrno(error)) throw error;
      return true;
    }
  }

  /** True if the disk says that the segment that is written has no name any more. */
  get isDeleted(): boolean {
    try {
      return this.writer !== null && hasNoName(this.container.disk, this.writer.fd);
    } catch (error) {
      if (!isErrno(error)) throw error;
      return false;
    }
  }

  private dropWriter(): void {
    if (this.writer) closeQuietly(this.container.disk, this.writer.fd);
    this.writer = null;
  }

  close(): void {
    this.dropWriter();
    for (const fd of this.sealed) closeQuietly(this.container.disk, fd);
    this.sealed = [];
    this.found = null;
  }
}
