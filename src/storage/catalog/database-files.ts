/**
 * The files of one catalog. A database that has to be rebuilt gets the next number: SQLite removes the files next to a
 * database by name when it closes it, and another process may still have the damaged one open.
 */

import { join } from "node:path";
import type { Env } from "../../core/ports/env.ts";
import { type Disk, removeQuietly } from "../fs/disk.ts";
import { readBeginning } from "../fs/files.ts";
import type { StoragePaths } from "../fs/paths.ts";

/** Thrown when something in a database is not as it was written. */
export class CatalogDamaged extends Error {}

export function getDatabasePath(folder: string, name: string, number: number): string {
  return join(folder, number === 0 ? `${name}.sqlite` : `${name}.${number}.sqlite`);
}

/** Returns the folder of the catalogs, and the name of the one for these session folders. */
export function getDatabasePlace({ flat, root, state }: StoragePaths, env: Env): { folder: string; name: string } {
  const name = env.sha256(Buffer.from(flat ?? (root as string))).slice(0, 16);
  return { folder: join(state, "catalog"), name };
}

const ENDING = /^(?:\.(\d{1,9}))?\.sqlite$/;

export function listNumbers(disk: Disk, folder: string, name: string): number[] {
  const endings = disk
    .names(folder)
    .map((found) => (found.startsWith(name) ? ENDING.exec(found.slice(name.length)) : null));
  return endings.filter((ending) => ending !== null).map(([, number = 0]) => Number(number));
}

const MAGIC = "SQLite format 3\0";

/**
 * Returns whether a database is of our version or an older one, or is incomplete or damaged. It goes by the first
 * bytes, which may be older than the files next to the database.
 */
export function mayBeOurs(disk: Disk, path: string, schemaVersion: number): boolean {
  try {
    const bytes = readBeginning(disk, path, 64);
    if (!bytes) return false;
    const head = Buffer.from(bytes);
    if (head.length < 64) return true;
    const version = head.readUInt32BE(60);
    return head.toString("latin1", 0, MAGIC.length) !== MAGIC || version <= schemaVersion || version > 1 << 16;
  } catch {
    return false;
  }
}

/** Removes a database with the files that SQLite puts next to it. */
export function removeDatabase(disk: Disk, path: string): void {
  for (const name of [path, `${path}-journal`, `${path}-wal`, `${path}-shm`, getTurnPath(path)])
    removeQuietly(disk, name);
}

/** Returns the path of the empty file that the process locks that builds the database. */
export function getTurnPath(path: string): string {
  return `${path}-turn`;
}
