/** Folders of ours that are no session yet, or no more. */

import { basename, dirname, join } from "node:path";
import { type Disk, type Named, removeQuietly } from "../disk.ts";

let stagings = 0;

/** A name beside a container under which it is built, that nobody takes for a session. */
export function stagingName(container: string): string {
  return join(dirname(container), `.${basename(container)}.staging.${process.pid}-${++stagings}`);
}

/** Whether a name is one of those. */
export function isStagingName(name: string): boolean {
  return /^\..+\.v2\.staging\.\d+-\d+$/.test(name);
}

/** Removes a folder with all that is in it, as far as the disk lets us; links are removed and not followed. */
export function removeTree(disk: Disk, folder: string): void {
  let found: Named[];
  try {
    found = kindsIn(disk, folder);
  } catch {
    return;
  }
  for (const { name, kind } of found) {
    const path = join(folder, name);
    if (kind === "folder") removeTree(disk, path);
    else removeQuietly(disk, path);
  }
  try {
    disk.removeFolder(folder);
  } catch {
    // It is not empty, or not there; a name of ours for what is being built is never listed.
  }
}

/** What stands in a folder, links told from what they lead to where the disk can. */
function kindsIn(disk: Disk, folder: string): Named[] {
  if (disk.list) return disk.list(folder);
  return disk.names(folder).map((name) => ({ name, kind: disk.info(join(folder, name)).kind }));
}

/** Milliseconds after which what was being built is no longer being built by anybody. */
const ABANDONED = 24 * 3600 * 1000;

/** Removes what processes that died left while they were building a container in a folder. */
export function sweep(disk: Disk, folder: string, now: number): void {
  try {
    for (const name of disk.names(folder))
      if (isStagingName(name) && now - disk.info(join(folder, name), true).modified > ABANDONED)
        removeTree(disk, join(folder, name));
  } catch {
    // It is of no consequence: nothing takes them for sessions.
  }
}
