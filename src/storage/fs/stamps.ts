/**
 * File stamps: evidence that a file has not changed since it was last checked. Another program that changes a file can
 * set its size and modification time back; it cannot set the change time back, but that advances in steps.
 */

import type { FileStamp } from "../../core/ports/store.ts";
import type { Disk, FileInfo } from "./disk.ts";

/** Milliseconds in which two changes may have one time: the ticks of kernels before Linux 6.13 take 1 to 10. */
const TICK = 20;

/** The facts about a file that change with its content. */
export type Stamp = Pick<FileInfo, "device" | "inode" | "size" | "modified" | "changed">;
/** A stamp with a change time, 0 where the disk has none. */
export type FoundStamp = Required<Stamp>;

/** Returns the stamp of a file. */
export function toFoundStamp({ device, inode, size, modified, changed = 0 }: FileInfo): FoundStamp {
  return { device, inode, size, modified, changed };
}

/** Returns whether two checks saw the same file with the same stamp. */
export function isSameStamp(a: Stamp, b: Stamp): boolean {
  return isSameFile(a, b) && a.size === b.size && a.modified === b.modified && a.changed === b.changed;
}

/** Returns whether two checks saw the same file, whatever happened to its content in between. */
export function isSameFile(a: Pick<FileInfo, "device" | "inode">, b: Pick<FileInfo, "device" | "inode">): boolean {
  return a.device === b.device && a.inode === b.inode;
}

/** Returns whether two paths name one file. Throws errno errors. */
export function isOneFile(disk: Disk, a: string, b: string): boolean {
  return isSameFile(disk.info(a), disk.info(b));
}

/** Returns whether a file is still the one seen, with the same content. Its names and permissions may differ. */
export function isUnchanged(now: FileStamp, seen: FileStamp): boolean {
  return isSameFile(now, seen) && now.size === seen.size && now.modified === seen.modified;
}

/** Returns the time of the clock that stamps files on this disk, in milliseconds. */
export function readDiskClock(disk: Disk): number {
  return disk.clock ? disk.clock() : Date.now();
}

/** Returns whether a file that had this stamp at `at` may have changed afterwards without a change of its stamp. */
export function isYoung(info: FileInfo, at: number): boolean {
  return at - Math.max(info.modified, info.changed ?? info.modified) < TICK;
}

/** The stamp of a file whose bytes are known. It is reliable once seen more than a tick after the last change. */
export class Watched {
  private readonly disk: Disk;
  private info: FileInfo | undefined;
  private reliable = false;

  constructor(disk: Disk) {
    this.disk = disk;
  }

  get seen(): FileInfo | undefined {
    return this.info;
  }

  /** Records a stamp that the file had when its bytes became known, or later. */
  note(info: FileInfo | undefined): void {
    this.info = info;
    this.reliable = info !== undefined && !isYoung(info, readDiskClock(this.disk));
  }

  /** Records the stamp of our own last write, which is known to be young without a clock. */
  wrote(info: FileInfo): void {
    this.info = info;
    this.reliable = false;
  }

  /**
   * Compares bytes read after `since` with bytes known before. Returns "same" if nothing can have changed them,
   * "renewed" if that is certain only from now on, "unsure" otherwise. Earlier checks of the bytes remain valid only
   * with "same".
   */
  since(fd: number, since: number): "same" | "renewed" | "unsure" {
    const now = this.disk.infoOf(fd);
    if (!this.info || !isSameStamp(now, this.info)) return "unsure";
    if (this.reliable) return "same";
    if (isYoung(now, since)) return "unsure";
    this.reliable = true;
    return "renewed";
  }
}
