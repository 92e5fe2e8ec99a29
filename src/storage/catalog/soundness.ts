/** Checks that the catalog's file is as it was written, and discards it if it is not. */

import type { CatalogHealth } from "../../core/ports/health.ts";
import type { Disk } from "../fs/disk.ts";
import { getInfo, readIfPresent, useAndClose } from "../fs/files.ts";
import { findSqlite } from "../fs/sqlite.ts";
import type { CatalogOptions } from "./cached-rows.ts";
import { CATALOG_SCHEMA_VERSION, isPassing } from "./database.ts";
import { getDatabasePath, getDatabasePlace, listNumbers, mayBeOurs, removeDatabase } from "./database-files.ts";

type CatalogPlace = Pick<CatalogOptions, "disk" | "env" | "paths" | "sqlite">;

/** Returns the state of the catalog. Reads all of it, and changes nothing. */
export function checkCatalog({ disk, env, paths, sqlite = findSqlite }: CatalogPlace): CatalogHealth {
  const { folder, name } = getDatabasePlace(paths, env);
  const path = (readIfPresent(() => listNumbers(disk, folder, name)) ?? [])
    .sort((a, b) => b - a)
    .map((number) => getDatabasePath(folder, name, number))
    .find((path) => mayBeOurs(disk, path, CATALOG_SCHEMA_VERSION));
  const open = sqlite();
  if (open === undefined) return { state: "unused", path: path ?? null, sizeBytes: 0, reason: "there is no SQLite" };
  if (path === undefined) return { state: "missing", path: null, sizeBytes: 0, reason: null };
  const sizeBytes = sizeOf(disk, path);
  if (sizeBytes === 0) return { state: "missing", path, sizeBytes, reason: null };
  try {
    const found = useAndClose(open(path, true), (db) => db.prepare("PRAGMA quick_check(1)").get()) as
      | { quick_check?: unknown }
      | undefined;
    const answer = String(found?.quick_check);
    if (answer === "ok") return { state: "sound", path, sizeBytes, reason: null };
    return { state: "damaged", path, sizeBytes, reason: answer };
  } catch (error) {
    return { state: isPassing(error) ? "busy" : "damaged", path, sizeBytes, reason: (error as Error).message };
  }
}

/** Returns the bytes of a database and of the files that SQLite has written next to it. */
function sizeOf(disk: Disk, path: string): number {
  return [path, `${path}-wal`].reduce((sum, file) => sum + (getInfo(disk, file)?.size ?? 0), 0);
}

/** Gives a damaged catalog up. The next list or search builds another, which has another name. */
export function discardCatalog({ disk, env, paths }: CatalogPlace, damaged: string): void {
  const { folder, name } = getDatabasePlace(paths, env);
  // SQLite removes the other files of a database by their names; another process may still have that one open.
  const next = 1 + Math.max(...listNumbers(disk, folder, name));
  disk.close(disk.create(getDatabasePath(folder, name, next)));
  removeDatabase(disk, damaged);
}
