/** Removes orphan temporary files of crashed processes. They are recognized by their names and never listed. */

import { join } from "node:path";
import { isErrno } from "../../core/errno.ts";
import { type Disk, removeQuietly } from "./disk.ts";
import { infoOrNull } from "./files.ts";
import { isAbandoned, removeTree } from "./staging.ts";

/** Pattern of the names that `temporaryName` makes. */
const TEMPORARY_NAME = /^\..+\.\d+-\d+\.tmp$/;
/** Milliseconds without a change after which no process is writing to one any more. */
const OLD = 24 * 3600_000;
const swept = new WeakMap<Disk, Set<string>>();

/** Removes old temporary files and abandoned containers from a folder. Does so once for each folder. */
export function sweepTemporaryFiles(disk: Disk, folder: string, now: number): void {
  const folders = swept.get(disk) ?? new Set();
  if (folders.has(folder)) return;
  swept.set(disk, folders.add(folder));
  try {
    for (const name of disk.names(folder)) {
      const path = join(folder, name);
      if (isAbandoned(disk, path, now)) removeTree(disk, path);
      const info = TEMPORARY_NAME.test(name) ? infoOrNull(disk, path, true) : null;
      if (info?.kind === "file" && now - info.modified >= OLD) removeQuietly(disk, path);
    }
  } catch (error) {
    // Harmless; another process tries again.
    if (!isErrno(error)) throw error;
  }
}
