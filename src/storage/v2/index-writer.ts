/** Writes the index of a container: appends rows, and cuts off those that must not stay. */

import { join } from "node:path";
import { areSameBytes, toBytes } from "../../core/json/json.ts";
import { indexFile } from "../fs/container-paths.ts";
import { closeQuietly, type FileInfo, writeAll } from "../fs/disk.ts";
import { readAt } from "../fs/files.ts";
import { nameBackup } from "../fs/quarantine.ts";
import { isSameFile, isSameStamp } from "../fs/stamps.ts";
import type { Container } from "./container.ts";
import { crc32c } from "./crc32c.ts";

const NOTHING = new Uint8Array(0);

export class IndexWriter {
  private readonly container: Container;
  private fd = -1;
  /** Rows that were written to the index and are not known to be durable. */
  private attempted: Uint8Array = NOTHING;

  constructor(container: Container) {
    this.container = container;
  }

  private open(): void {
    if (this.fd >= 0) return;
    const { disk, folder, state } = this.container;
    const path = indexFile(folder);
    try {
      // The index is rebuilt from the frames, so anything else that has its name is kept under another.
      if (disk.info(path, true).kind !== "file") disk.rename(path, nameBackup(disk, path, "damaged"));
      this.fd = disk.openAppend(path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      this.fd = disk.create(path);
      state.unsynced.add(join(folder, "index"));
    }
  }

  /** Writes rows after those that the index holds. Throws storage_failed when another program wrote there too. */
  write(rows: readonly string[]): Uint8Array {
    const { disk, end } = this.container;
    const bytes = toBytes(rows.join(""));
    if (bytes.length === 0) return bytes;
    this.open();
    this.cutAttempted();
    this.attempted = bytes;
    writeAll(disk, this.fd, bytes);
    end.seen = this.requireEnd(end.indexEnd + bytes.length);
    return bytes;
  }

  /** Records that rows which were written are durable. Throws storage_failed when another program wrote there too. */
  accept(bytes: Uint8Array, rows: readonly string[]): void {
    if (rows.length === 0) return;
    const { end } = this.container;
    const seen = this.requireEnd(end.indexEnd + bytes.length);
    this.attempted = NOTHING;
    end.rows.splice(0, rows.length);
    end.indexEnd += bytes.length;
    const last = toBytes(rows[rows.length - 1]);
    end.lastRow = { length: last.length, crc: crc32c(last) };
    end.seen = seen;
  }

  sync(): Promise<void> {
    return this.container.disk.sync(this.fd);
  }

  syncNow(): void {
    this.container.disk.syncNow(this.fd);
  }

  /** True if rows are written that are not durable yet. */
  get isWriting(): boolean {
    return this.attempted.length > 0;
  }

  /** True if the index is the last written one, as far as its name and size show. Throws errno errors. */
  get isOurs(): boolean {
    const { seen, indexEnd } = this.container.end;
    const now = this.container.indexInfo();
    return now !== null && seen !== undefined && isSameFile(now, seen) && now.size === indexEnd + this.attempted.length;
  }

  /** Cuts off an earlier write of this log after the index. Throws storage_failed for anything else there. */
  private cutAttempted(): void {
    const { container, attempted } = this;
    const { disk } = container;
    const { indexEnd } = container.end;
    const length = disk.infoOf(this.fd).size - indexEnd;
    if (length > 0) {
      if (length > attempted.length) throw container.changedByAnother();
      const found = readAt(disk, this.fd, indexEnd, length);
      if (!areSameBytes(found, attempted.subarray(0, length))) throw container.changedByAnother();
      disk.truncate(this.fd, indexEnd);
    }
    this.requireEnd(indexEnd);
    this.attempted = NOTHING;
  }

  /** Throws storage_failed unless the index that we write still has its name, and ends where it must. */
  private requireEnd(end: number): FileInfo {
    return this.container.requireEnd(indexFile(this.container.folder), this.fd, end);
  }

  /**
   * Cuts off index rows of entries that were rolled back. When that fails, the next write tries again. Returns whether no
   * row of theirs is there.
   */
  cut(): boolean {
    if (this.fd < 0) return true;
    try {
      this.cutAttempted();
      this.container.end.seen = this.container.disk.infoOf(this.fd);
      return true;
    } catch {
      return !this.isWriting;
    }
  }

  /** Cuts off wrong bytes after the known rows, also those that could not be cut before. Throws storage_failed. */
  cutLeft(): void {
    const { end, state } = this.container;
    if (end.indexFault !== null) this.cutFault();
    // A commit that runs is writing them.
    else if (this.isWriting && !state.isCommitting) this.cutAttempted();
  }

  /** True if rows are written but not durable, and another program wrote behind them. */
  get isFollowed(): boolean {
    return (
      this.isWriting && this.container.disk.infoOf(this.fd).size > this.container.end.indexEnd + this.attempted.length
    );
  }

  /** Leaves the rows that were written to the next reading. */
  leave(): void {
    this.attempted = NOTHING;
  }

  /** Cuts off wrong bytes after the known rows, or makes an index that is missing. */
  private cutFault(): void {
    const { container } = this;
    const { disk, end } = container;
    const { seen } = end;
    this.open();
    const now = disk.infoOf(this.fd);
    if (now.size > end.indexEnd) {
      if (!seen || !isSameStamp(now, seen)) throw container.changedByAnother();
      disk.truncate(this.fd, end.indexEnd);
    }
    end.seen = disk.infoOf(this.fd);
    end.indexFault = null;
  }

  close(): void {
    if (this.fd >= 0) closeQuietly(this.container.disk, this.fd);
    this.fd = -1;
  }
}
