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
import { type Hold, type Keeping, keepLeaf } from "./exclusive.ts";
import { alreadyThere, belongings, isInTheWay, moveWith } from "./moving.ts";

/** Archives a session. Throws path_outside_root when it lies in no session folder, and already_exists. */
export function archiveSession(keeping: Keeping, held: Hold): Promise<MovedSession> {
  return moveSession(keeping, held, homeOf(keeping.places), archiveFolder(keeping.places));
}

/** Moves a session back from the archive. Throws path_outside_root when it is not archived, and already_exists. */
export function unarchiveSession(keeping: Keeping, held: Hold): Promise<MovedSession> {
  return moveSession(keeping, held, archiveFolder(keeping.places), homeOf(keeping.places));
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

async function moveSession(keeping: Keeping, held: Hold, home: string, target: string): Promise<MovedSession> {
  const { disk } = keeping;
  const { file, sessionId, leafId } = held;
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
    held.forgetLeaf();
    await keepLeaf(keeping, to, leafId);
  }
  return { sessionId, sessionPath: file, movedTo: to };
}
