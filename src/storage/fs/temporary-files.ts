/** What a process that died left of files it was about to publish. They are known by their names and never listed. */

import { join } from "node:path";
import { isErrno } from "../../core/errno.ts";
import { type Disk, removeQuietly } from "./disk.ts";
import { sweep } from "./staging.ts";

/** As `temporaryName` makes them. */
const STRAY = /^\..+\.\d+-\d+\.tmp$/;
/** Milliseconds after which nobody is still writing to one. */
const OLD = 24 * 3600_000;
const swept = new WeakMap<Disk, Set<string>>();

/** Removes the old ones from a folder, and containers that were being made, once for each folder. */
export function sweepStrays(disk: Disk, folder: string, now: number): void {
  const folders = swept.get(disk) ?? new Set();
  if (folders.has(folder)) return;
  swept.set(disk, folders.add(folder));
  try {
    sweep(disk, folder, now);
    for (const name of disk.names(folder)) {
      if (!STRAY.test(name)) continue;
      const { kind, modified } = disk.info(join(folder, name), true);
      if (kind === "file" && now - modified >= OLD) removeQuietly(disk, join(folder, name));
    }
  } catch (error) {
    // They do no harm; another process tries again.
    if (!isErrno(error)) throw error;
  }
}
