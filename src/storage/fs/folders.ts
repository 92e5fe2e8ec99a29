/** Folders: the names in them, and their removal. */

import { basename, dirname, join } from "node:path";
import { isMissing } from "../../core/errno.ts";
import type { Disk, Named } from "./disk.ts";

/** Returns the entries of a folder; none when it is missing. Links are links where the disk can list kinds. */
export function entriesIn(disk: Disk, folder: string): Named[] {
  try {
    if (disk.list) return disk.list(folder);
    return disk.names(folder).map((name) => ({ name, kind: disk.info(join(folder, name)).kind }));
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/** Returns the sorted names in a folder; none when the folder is missing. */
export function namesIn(disk: Disk, folder: string): string[] {
  return entriesIn(disk, folder)
    .map(({ name }) => name)
    .sort();
}

/** Returns the kind of a path itself, not that of a link's target; undefined when nothing has the path. */
export function kindOf(disk: Disk, path: string): Named["kind"] | undefined {
  return entriesIn(disk, dirname(path)).find(({ name }) => name === basename(path))?.kind;
}

/** Removes a file or a folder with its content, and follows no link. `attempt` may ignore what the disk refuses. */
export function removeAll(
  disk: Disk,
  path: string,
  kind = kindOf(disk, path),
  attempt: (step: () => void) => void = (step) => step(),
): void {
  if (kind !== "folder") {
    attempt(() => disk.remove(path));
    return;
  }
  attempt(() => {
    for (const entry of entriesIn(disk, path)) removeAll(disk, join(path, entry.name), entry.kind, attempt);
  });
  attempt(() => disk.removeFolder(path));
}
