/** The kernel's list of file locks. It shows locks of other network namespaces, but not of other pid namespaces. */

import { type Disk, type FileInfo, readUnsized } from "../fs/disk.ts";

/** Whether the kernel lists a lock of these kinds on a file; false where there is no list. */
export function isListed(
  disk: Disk,
  { device, inode }: FileInfo,
  kinds: readonly string[] = ["POSIX", "FLOCK"],
): boolean {
  let list: string;
  try {
    list = Buffer.from(readUnsized(disk, "/proc/locks")).toString("latin1");
  } catch {
    return false;
  }
  const name = `${hex(major(device))}:${hex(minor(device))}:${inode}`;
  // A process that waits for a lock is listed with an arrow instead of the kind.
  return list.split("\n").some((line) => {
    const [, kind, , , , file] = line.split(/\s+/);
    return file === name && kinds.includes(kind);
  });
}

/** Returns the major part of a device number, as the C library does. */
function major(device: number): number {
  return Number(((BigInt(device) >> 8n) & 0xfffn) | ((BigInt(device) >> 32n) & 0xfffff000n));
}

function minor(device: number): number {
  return Number((BigInt(device) & 0xffn) | ((BigInt(device) >> 12n) & 0xffffff00n));
}

function hex(number: number): string {
  return number.toString(16).padStart(2, "0");
}
