/** Folders of containers that are being built or removed, and the removal of those that crashed processes left. */

import { basename, dirname, join } from "node:path";
import { indexFile, segmentFolder } from "./container-paths.ts";
import { type Disk, uniqueSuffix } from "./disk.ts";
import { infoOrNull } from "./files.ts";
import { removeAll } from "./folders.ts";
import { isSameProcess } from "./processes.ts";

/** Returns a name next to a container, under which it is built. No scanner recognizes it as a session. */
export function stagingName(container: string): string {
  return join(dirname(container), `.${basename(container)}.staging.${uniqueSuffix()}`);
}

/** Returns the pid of the process that made a staging name; null for any other name. */
function makerOf(name: string): number | null {
  const [, pid] = /^\..+\.v2\.staging\.(\d+)-\d+$/.exec(name) ?? [];
  return pid === undefined ? null : Number(pid);
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

/** Milliseconds without a change after which a container that was being built is abandoned. */
const ABANDONED = 24 * 3600 * 1000;
/** Milliseconds when no process has the builder's pid. The builder may still run in another pid namespace. */
const ORPHANED = 10 * 60 * 1000;

/** Whether a path is that of a container whose building was abandoned, because its process crashed. */
export function isAbandoned(disk: Disk, path: string, now: number): boolean {
  const pid = makerOf(basename(path));
  if (pid === null) return false;
  const idle = now - lastChange(disk, path);
  return idle > ABANDONED || (idle > ORPHANED && !isSameProcess(disk, pid, undefined));
}

/** Returns the time of the last change in a container's folder. Its builder writes to the segments and the index. */
function lastChange(disk: Disk, folder: string): number {
  let last = 0;
  for (const path of [folder, segmentFolder(folder), indexFile(folder)])
    last = Math.max(last, infoOrNull(disk, path)?.modified ?? 0);
  return last;
}
