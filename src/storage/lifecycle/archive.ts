/**
 * Archiving: moves sessions to our state folder, where agents do not look, and back. The folders there are the same as
 * the session folders, so that the path of an archived session shows where it came from.
 */

import { basename, dirname, join, relative } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { MovedSession } from "../../core/ports/lifecycle.ts";
import { isBelow, knownPath } from "../fs/confined-disk.ts";
import { type Disk, exists } from "../fs/disk.ts";
import { archiveFolder, type StoragePaths } from "../fs/paths.ts";
import { keepLeaf, type LifecycleDeps, type LockedSession } from "./exclusive.ts";
import { alreadyThere, belongings, isInTheWay, moveWith } from "./move.ts";

/** Archives a session. Throws path_outside_root when it lies in no session folder, and already_exists. */
export function archiveSession(deps: LifecycleDeps, locked: LockedSession): Promise<MovedSession> {
  return moveSession(deps, locked, homeOf(deps.paths), archiveFolder(deps.paths));
}

/** Moves a session back from the archive. Throws path_outside_root when it is not archived, and already_exists. */
export function unarchiveSession(deps: LifecycleDeps, locked: LockedSession): Promise<MovedSession> {
  return moveSession(deps, locked, archiveFolder(deps.paths), homeOf(deps.paths));
}

function homeOf({ flat, root }: StoragePaths): string {
  return flat ?? (root as string);
}

function counterpart(disk: Disk, file: string, from: string, to: string): string {
  const [folder, path] = [knownPath(disk, from), knownPath(disk, file)];
  if (!isBelow(folder, path))
    throw new Failure(
      "path_outside_root",
      `${file} is not in ${from}; only sessions that list_sessions lists can be moved.`,
      { path: file },
    );
  return join(to, relative(folder, path));
}

async function moveSession(
  deps: LifecycleDeps,
  locked: LockedSession,
  home: string,
  target: string,
): Promise<MovedSession> {
  const { disk } = deps;
  const { file, sessionId, leafId } = locked;
  const to = counterpart(disk, file, home, target);
  const others = belongings(disk, file, sessionId);
  const folder = dirname(to);
  for (const name of [basename(file), ...others]) {
    const target = join(folder, name);
    if (exists(disk, target) && (await isInTheWay(disk, join(dirname(file), name), target))) throw alreadyThere(target);
  }
  disk.makeFolder(folder);
  await moveWith(
    disk,
    [file, to],
    others.map((name) => [join(dirname(file), name), join(folder, name)]),
  );
  if (leafId !== undefined) {
    locked.forgetLeaf();
    await keepLeaf(deps, to, leafId);
  }
  return { sessionId, sessionPath: file, movedTo: to };
}
