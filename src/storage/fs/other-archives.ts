/** Archived sessions of other session folders, which no list of this one shows. */

import { basename, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { UnreadFile } from "../../core/ports/catalog.ts";
import { isContainerName } from "./container-paths.ts";
import { type Disk, exists } from "./disk.ts";
import { findAllowed } from "./files.ts";
import { listFolder, listNames } from "./folders.ts";
import { getArchiveFolder, isSessionName, type StoragePaths } from "./paths.ts";

/** Returns the archives of other session folders in our state folder, with the step that brings one to this folder. */
export function findOtherArchives({
  disk,
  paths,
}: {
  readonly disk: Disk;
  readonly paths: StoragePaths;
}): UnreadFile[] {
  const own = getArchiveFolder(paths);
  const all = join(paths.state, "archive");
  const others = (findAllowed(() => listNames(disk, all)) ?? []).filter((name) => name !== basename(own));
  return others.flatMap((name) => {
    const path = join(all, name);
    const root = findAllowed(() => decodeURIComponent(name)) ?? name;
    const count = isHidden(disk, root) ? 0 : (findAllowed(() => countSessions(disk, path)) ?? 0);
    if (count === 0) return [];
    const what = `${count === 1 ? "An archived session is" : `${count} archived sessions are`} of the session folder ${root}`;
    const here = `here it is ${paths.flat ?? paths.root}`;
    const way = exists(disk, own) ? `import '${path}'` : `mv '${path}' '${own}'`;
    return [{ path, text: `${what}, and ${here}. If the one became the other: ${way}`, isDamaged: false }];
  });
}

/** Returns whether a confined server may not name a folder. */
function isHidden(disk: Disk, folder: string): boolean {
  try {
    disk.info(folder);
    return false;
  } catch (error) {
    return error instanceof Failure;
  }
}

function countSessions(disk: Disk, folder: string): number {
  const isSession = (name: string): boolean => isSessionName(name) || isContainerName(name);
  return listFolder(disk, folder)
    .map(({ name, kind }) =>
      isSession(name) ? 1 : kind === "folder" ? listNames(disk, join(folder, name)).filter(isSession).length : 0,
    )
    .reduce((sum, count) => sum + count, 0);
}
