/**
 * The files of one catalog. One that has to be made anew gets the next number: SQLite removes the files beside a
 * database by their names when it closes it, and another process may have the damaged one open still.
 *
 * Beside a database that nobody has open stands its seal: size and time as they were when the last one closed it. It
 * tells what was written by anything else meanwhile, which could make a search miss what is there.
 */

import { join } from "node:path";
import { bytesOf, textOf } from "../../core/json/json.ts";
import { type Disk, exists, readWhole, removeQuietly, writeAll } from "../fs/disk.ts";

export function pathOf(folder: string, name: string, number: number): string {
  return join(folder, number === 0 ? `${name}.sqlite` : `${name}.${number}.sqlite`);
}

/** The numbers of the files there are. */
export function numbersOf(disk: Disk, folder: string, name: string): number[] {
  const numbers: number[] = [];
  for (const found of disk.names(folder)) {
    if (!found.startsWith(`${name}.`) || !found.endsWith(".sqlite")) continue;
    const number = found.slice(name.length + 1, -".sqlite".length);
    if (found === `${name}.sqlite`) numbers.push(0);
    else if (/^\d{1,9}$/.test(number)) numbers.push(Number(number));
  }
  return numbers;
}

const MAGIC = "SQLite format 3\0";

/** By its first bytes, which may lag behind what stands beside it: ours, or not made whole yet. */
export function mayBeOurs(disk: Disk, path: string, schemaVersion: number): boolean {
  let fd: number;
  try {
    fd = disk.openRead(path);
  } catch {
    return false;
  }
  try {
    const head = Buffer.alloc(64);
    if (disk.read(fd, head, 0, head.length, 0) < head.length) return true;
    const version = head.readUInt32BE(60);
    return head.toString("latin1", 0, MAGIC.length) !== MAGIC || version <= schemaVersion || version > 1 << 16;
  } catch {
    return false;
  } finally {
    disk.close(fd);
  }
}

export function removeDatabase(disk: Disk, path: string): void {
  for (const name of [path, `${path}-wal`, `${path}-shm`, sealOf(path)])
    if (exists(disk, name)) removeQuietly(disk, name);
}

function sealOf(path: string): string {
  return `${path}-seal`;
}

/** Whether a database that nobody has open is not as it was when it was closed. A missing seal says nothing. */
export function isUnsealed(disk: Disk, path: string): boolean {
  if (!exists(disk, sealOf(path)) || isUnderWay(disk, path)) return false;
  try {
    return textOf(readWhole(disk, sealOf(path))) !== sealText(disk, path);
  } catch {
    // Somebody opened it just now.
    return false;
  }
}

/** Whether something was written to it that is not in the database itself: somebody has it open, or left it so. */
function isUnderWay(disk: Disk, path: string): boolean {
  try {
    return disk.info(`${path}-wal`).size > 0;
  } catch {
    return false;
  }
}

/** To be called before anything is written to it. */
export function breakSeal(disk: Disk, path: string): void {
  if (exists(disk, sealOf(path))) removeQuietly(disk, sealOf(path));
}

/** To be called after closing it. */
export function seal(disk: Disk, path: string): void {
  if (isUnderWay(disk, path)) return;
  try {
    breakSeal(disk, path);
    const fd = disk.create(sealOf(path));
    try {
      writeAll(disk, fd, bytesOf(sealText(disk, path)));
    } finally {
      disk.close(fd);
    }
  } catch {
    // No room, or another process was faster: it stays without.
    breakSeal(disk, path);
  }
}

function sealText(disk: Disk, path: string): string {
  const { size, modified } = disk.info(path);
  return `${size} ${modified}\n`;
}
