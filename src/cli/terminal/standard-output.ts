/** Standard output that is a file or a device: what it takes is counted, because Node drops what a write leaves over. */

import { isErrno } from "../../core/errno.ts";
import { type Disk, writeAll } from "../../storage/fs/disk.ts";

/** Writes to standard output. Returns the sentence for the person if the disk does not take all of it. */
export function writeStandardOutput(disk: Disk, bytes: Uint8Array): string | undefined {
  try {
    writeAll(disk, 1, bytes);
    return undefined;
  } catch (error) {
    if (!isErrno(error)) throw error;
    const { code } = error;
    const isFull = code === "ENOSPC" || code === "EDQUOT";
    const why = isFull ? `the disk has no room for it (${code})` : `the disk refuses it (${code})`;
    return `The output is cut off: ${why}. What the command changed stays changed. ${isFull ? "Make room, or print" : "Print"} to another disk.`;
  }
}
