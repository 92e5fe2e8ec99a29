/** The session of a folder that was changed last, found without opening any. */

import { basename, join } from "node:path";
import { parseTime } from "../core/search/listing.ts";
import { isContainerName } from "./fs/container-paths.ts";
import { type Disk, exists } from "./fs/disk.ts";
import { readHeader, type StoredHeader } from "./fs/header.ts";
import { isSessionName } from "./fs/paths.ts";
import { getChangeTime } from "./v2/container-files.ts";
import { isActive } from "./v2/pointer.ts";

/** Returns whether a name in a folder belongs to a session. Throws errno errors. */
export function isSessionIn(disk: Disk, folder: string, name: string): boolean {
  return isSessionName(name) || (isContainerName(name) && isActive(disk, join(folder, name)));
}

/**
 * Returns the most recently changed session of a folder whose header fits, or undefined. Of two that were changed
 * within one tick of the file system's clock, returns the one that was created later.
 */
export function findLatest(
  disk: Disk,
  folder: string,
  fits: (header: StoredHeader, file: string) => boolean,
): string | undefined {
  if (!exists(disk, folder)) return undefined;
  const candidates = disk
    .names(folder)
    .filter((name) => isSessionName(name) || isContainerName(name))
    // Joining thousands of names takes as long as looking at the files.
    .map((name) => `${folder}/${name}`)
    .map((file) => ({ file, changed: getChangeTime(disk, file) ?? Number.NEGATIVE_INFINITY }))
    .sort((a, b) => b.changed - a.changed || (a.file < b.file ? 1 : -1));
  let latest: { file: string; changed: number; begun: number } | undefined;
  for (const { file, changed } of candidates) {
    // Only the headers of the newest are read: a folder may contain thousands.
    if (latest !== undefined && changed < latest.changed) break;
    const header = readHeader(disk, file);
    if (header === undefined || !fits(header, file)) continue;
    try {
      if (!isSessionIn(disk, folder, basename(file))) continue;
    } catch {
      // It was removed after the listing, or may not be read.
      continue;
    }
    const begun = parseTime(header.timestamp) ?? Number.NEGATIVE_INFINITY;
    if (latest === undefined || begun > latest.begun) latest = { file, changed, begun };
  }
  return latest?.file;
}
