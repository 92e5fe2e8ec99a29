/** Temporary files and folders for building containers, and the removal of those that dead processes left. */

import { basename, dirname, join } from "node:path";
import { isErrno } from "../../core/errno.ts";
import { indexFile, segmentFolder } from "./container-paths.ts";
import { type Disk, makeUniqueSuffix, removeQuietly } from "./disk.ts";
import { getInfo } from "./files.ts";
import { removeAll } from "./folders.ts";
import { isSameProcess } from "./processes.ts";

/** Returns a temporary name next to a container. No scanner recognizes it as a session. */
export function makeStagingName(container: string): string {
  return join(dirname(container), `.${basename(container)}.staging.${makeUniqueSuffix()}`);
}

/** Removes a folder with its content, as far as the disk permits. Links are removed and not followed. */
export function removeTree(disk: Disk, folder: string): void {
  removeAll(disk, folder, "folder", (step) => {
    try {
      step();
    } catch {
      // Staging names are never listed as sessions.
    }
  });
}

/** Milliseconds without a change after which no process still writes to a temporary file or folder. */
const OLD = 24 * 3600_000;
/** The same if no process has the pid of a container's builder, which may still run in another pid namespace. */
const ORPHANED = 10 * 60_000;
/** Patterns of the names that `makeTemporaryName` and `makeStagingName` make. */
const TEMPORARY_NAME = /^\.(?<for>.+)\.(?<pid>\d+)-\d+\.tmp$/s;
const STAGING_NAME = /^\.(?<for>.+\.v2)\.staging\.(?<pid>\d+)-\d+$/s;
const swept = new WeakMap<Disk, Set<string>>();

/** Returns the final name of a temporary file or folder; undefined for any other name. */
export function getFinalName(name: string): string | undefined {
  return (STAGING_NAME.exec(name) ?? TEMPORARY_NAME.exec(name))?.groups?.for;
}

/** Returns whether a temporary file or folder was abandoned, because its process crashed. */
export function isAbandoned(disk: Disk, path: string, now: number, pattern?: RegExp): boolean {
  const name = basename(path);
  const pid = (pattern ? pattern.exec(name) : (STAGING_NAME.exec(name) ?? TEMPORARY_NAME.exec(name)))?.groups?.pid;
  if (pid === undefined) return false;
  // Its builder writes to the segments and the index.
  const parts = [path, segmentFolder(path), indexFile(path)];
  const idle = now - Math.max(...parts.map((part) => getInfo(disk, part)?.modified ?? 0));
  return idle > OLD || (idle > ORPHANED && !isSameProcess(disk, Number(pid), undefined));
}

/** Removes old temporary files and abandoned containers from a folder. Does so once for each folder. */
export function sweepTemporaryFiles(disk: Disk, folder: string, now: number): void {
  const folders = swept.get(disk) ?? new Set();
  if (folders.has(folder)) return;
  swept.set(disk, folders.add(folder));
  try {
    for (const name of disk.names(folder)) {
      // All our temporary names begin with it, and few others.
      if (!name.startsWith(".")) continue;
      const path = join(folder, name);
      if (isAbandoned(disk, path, now, STAGING_NAME)) removeTree(disk, path);
      const info = TEMPORARY_NAME.test(name) ? getInfo(disk, path, true) : null;
      if (info?.kind === "file" && now - info.modified >= OLD) removeQuietly(disk, path);
    }
  } catch (error) {
    // Harmless: another process tries again.
    if (!isErrno(error)) throw error;
  }
}
