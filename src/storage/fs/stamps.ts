/**
 * Stamps of files: what tells that a file is still as it was when it was looked at. Size and modification time can be
 * set back by whoever changes a file; the change time cannot, but it moves in steps.
 */

import type { Disk, FileInfo } from "./disk.ts";

/**
 * Milliseconds within which two changes may have the same change time. Kernels before Linux 6.13 count it in ticks of
 * their timer, 1 to 10 ms long.
 */
const TICK = 20;

/** Whether two looks saw the same file with the same stamp. */
export function isSameStamp(a: FileInfo, b: FileInfo): boolean {
  return isSameFile(a, b) && a.size === b.size && a.modified === b.modified && a.changed === b.changed;
}

/** Whether two looks saw the same file, whatever happened to its content in between. */
export function isSameFile(
  a: { readonly device: number; readonly inode: number },
  b: { readonly device: number; readonly inode: number },
): boolean {
  return a.device === b.device && a.inode === b.inode;
}

/** Whether a file is still the one that was seen, as it was then. Names and permissions may have changed. */
export function isUnchanged(now: FileInfo, seen: FileInfo): boolean {
  const { device, inode, size, modified } = seen;
  return now.device === device && now.inode === inode && now.size === size && now.modified === modified;
}

/** Returns the time of the clock that the disk's files have theirs from, in milliseconds. */
export function clockOf(disk: Disk): number {
  return disk.clock ? disk.clock() : Date.now();
}

/** Whether a file that had this stamp at a time may have been changed since without that the stamp shows it. */
export function isYoung(info: FileInfo, at: number): boolean {
  return at - Math.max(info.modified, info.changed ?? info.modified) < TICK;
}

/**
 * The stamp of a file whose bytes are known, and whether it can be relied on: it can once a look that was not within a
 * tick of the last change saw it.
 */
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

  /** Takes note of a stamp that the file had when its bytes became known, or later. */
  note(info: FileInfo | undefined): void {
    this.info = info;
    this.reliable = info !== undefined && !isYoung(info, clockOf(this.disk));
  }

  /**
   * Whether bytes that were read after `since` are those that were known before: "same" when nothing can have changed
   * them, "renewed" when that can be said from now on, "unsure" otherwise. Whatever was checked of the bytes before
   * counts with "same" only.
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
