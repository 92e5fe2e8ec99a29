/** The segments of a container: the files, their bytes, and whether those may have changed since they were read. */

import { join } from "node:path";
import { areSameBytes } from "../../core/json/json.ts";
import { parseNumberedName, segmentFile, segmentFolder } from "../fs/container-paths.ts";
import { closeQuietly, type Disk, type FileInfo, readAll } from "../fs/disk.ts";
import { readAt, readIfPresent } from "../fs/files.ts";
import { isSameFile, isSameStamp, Watched } from "../fs/stamps.ts";
import { CHUNK, type Scanned, scanLines } from "../log/lines.ts";
import { crc32c } from "./crc32c.ts";
import { FRAME_BYTES } from "./frame.ts";

/** Number of segments that are kept open for reading. */
const OPEN_SEGMENTS = 16;

/** Buffer that lines are read into. No line outlives the call for it, and no scan begins within another. */
let scratch: Buffer | undefined;

export function getScratchBuffer(): Buffer {
  scratch ??= Buffer.allocUnsafe(CHUNK);
  return scratch;
}

export interface Segment {
  readonly seq: number;
  readonly size: number;
  readonly info: FileInfo;
}

export class Segments {
  private readonly disk: Disk;
  private readonly container: { readonly folder: string };
  private readonly forgetChecks: () => void;
  private readonly fds = new Map<number, number>();
  /** Stamps of the segments that were read. */
  private readonly watched = new Map<number, Watched>();

  /** `forgetChecks` is called when bytes may be others than those that were checked. */
  constructor(disk: Disk, container: { readonly folder: string }, forgetChecks: () => void) {
    this.disk = disk;
    this.container = container;
    this.forgetChecks = forgetChecks;
  }

  /** Returns the existing segments, in order. Closes those whose name now belongs to another file. */
  list(): Segment[] {
    const folder = segmentFolder(this.container.folder);
    const found: Segment[] = [];
    // Copies may leave out empty folders.
    for (const name of readIfPresent(() => this.disk.names(folder)) ?? []) {
      const seq = parseNumberedName(name, "seg");
      if (seq === 0) continue;
      const info = this.disk.info(join(folder, name));
      if (info.kind !== "file") continue;
      const open = this.fds.has(seq) && this.watched.get(seq)?.seen;
      // A process that cuts off a dead writer's bytes removes a segment that has nothing else, and creates it again.
      if (open && !isSameFile(open, info)) this.forget(seq);
      found.push({ seq, size: info.size, info });
    }
    return found.sort((a, b) => a.seq - b.seq);
  }

  fd(seq: number): number {
    const known = this.fds.get(seq);
    if (known !== undefined) return known;
    if (this.fds.size >= OPEN_SEGMENTS) {
      const [oldest] = this.fds.keys();
      this.forget(oldest);
    }
    const fd = this.disk.openRead(segmentFile(this.container.folder, seq));
    this.fds.set(seq, fd);
    this.restartWatch(this.watchedSegment(seq), fd);
    return fd;
  }

  /** Compares a read after `since` with the bytes known by now, as {@link Watched} does. */
  since(seq: number, since: number): "same" | "renewed" | "unsure" {
    const fd = this.fd(seq);
    const watched = this.watchedSegment(seq);
    const found = watched.since(fd, since);
    if (found === "unsure") this.restartWatch(watched, fd);
    return found;
  }

  /** Returns the checksum of bytes as they are. Throws errno errors. */
  crc(seq: number, start: number, length: number): number {
    return crc32c(readAt(this.disk, this.fd(seq), start, length));
  }

  /** Returns whether a segment holds these bytes at `start`. */
  holds(seq: number, start: number, bytes: Uint8Array): boolean {
    return areSameBytes(readAt(this.disk, this.fd(seq), start, bytes.length), bytes);
  }

  /**
   * Visits, with all its bytes, every line from `start` on that may be a frame. `skipped`: called with the bytes of a
   * longer line that belong to no frame even if it ends with one.
   */
  scan(
    seq: number,
    start: number,
    visit: (at: number, b: Uint8Array, first: number, end: number) => void,
    skipped?: (start: number, end: number) => void,
    chunk = getScratchBuffer(),
  ): Scanned {
    const visitor = {
      line: (_number: number, at: number, b: Uint8Array, first: number, end: number) => visit(at, b, first, end),
      long: (_number: number, at: number, length: number) => {
        const over = Math.max(0, length - FRAME_BYTES);
        if (over > 0) skipped?.(at, at + over);
        const line = Buffer.allocUnsafe(length - over + 1);
        readAll(this.disk, this.fd(seq), line, at + over);
        visit(at + over, line, 0, length - over);
      },
    };
    return scanLines(this.disk, this.fd(seq), start, 0, visitor, chunk);
  }

  private watchedSegment(seq: number): Watched {
    let watched = this.watched.get(seq);
    if (!watched) {
      watched = new Watched(this.disk);
      this.watched.set(seq, watched);
    }
    return watched;
  }

  /** Records the present stamp of a segment if it is another than before, and forgets earlier checks of its bytes. */
  private restartWatch(watched: Watched, fd: number): void {
    const now = this.disk.infoOf(fd);
    if (watched.seen && isSameStamp(now, watched.seen)) return;
    if (watched.seen) this.forgetChecks();
    watched.note(now);
  }

  /**
   * Forgets earlier checks if a segment is not as it was seen, before a write of ours gives it another stamp. A segment
   * with entries that nothing has read or written here was never seen.
   */
  compare(seq: number, info: FileInfo): void {
    const { seen } = this.watchedSegment(seq);
    if (info.size > 0 && !(seen && isSameStamp(info, seen))) this.forgetChecks();
  }

  /** Records the stamp that our own write gave to a segment. */
  note(seq: number, info: FileInfo): void {
    this.watchedSegment(seq).note(info);
  }

  /** Closes a segment, which is opened again when it is read next. */
  forget(seq: number): void {
    const fd = this.fds.get(seq);
    if (fd !== undefined) closeQuietly(this.disk, fd);
    this.fds.delete(seq);
  }

  forgetAll(): void {
    for (const seq of [...this.fds.keys()]) this.forget(seq);
  }
}
