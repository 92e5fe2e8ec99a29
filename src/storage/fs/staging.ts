/** Folders of ours that are no session yet, or no more. */

import { basename, dirname, join } from "node:path";
import { indexFile, segmentFolder } from "./container-paths.ts";
import { type Disk, exists, type Named, removeQuietly, uniqueSuffix } from "./disk.ts";
import { isSameProcess } from "./processes.ts";

/** A name beside a container under which it is built, that nobody takes for a session. */
export function stagingName(container: string): string {
  return join(dirname(container), `.${basename(container)}.staging.${uniqueSuffix()}`);
}

/** The pid of the process that gave such a name; null for any other name. */
function makerOf(name: string): number | null {
  const [, pid] = /^\..+\.v2\.staging\.(\d+)-\d+$/.exec(name) ?? [];
  return pid === undefined ? null : Number(pid);
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

/** Milliseconds without a change after which what was being built is no longer being built by anybody. */
const ABANDONED = 24 * 3600 * 1000;
/** The same where no process of its maker's pid is there; another pid namespace may have one. */
const ORPHANED = 10 * 60 * 1000;

/** Removes what processes that died left of containers in a folder that were no sessions yet, or no more. */
export function sweep(disk: Disk, folder: string, now: number): void {
  try {
    for (const name of disk.names(folder)) {
      const pid = makerOf(name);
      if (pid === null) continue;
      const path = join(folder, name);
      const idle = now - lastChange(disk, path);
      if (idle > ABANDONED || (idle > ORPHANED && !isSameProcess(disk, pid, undefined))) removeTree(disk, path);
    }
  } catch {
    // It is of no consequence: nothing takes them for sessions.
  }
}

/** When something in a folder changed last; whoever builds a container writes to its segments and its index. */
function lastChange(disk: Disk, folder: string): number {
  let last = 0;
  for (const path of [folder, segmentFolder(folder), indexFile(folder)])
    if (exists(disk, path)) last = Math.max(last, disk.info(path).modified);
  return last;
}
