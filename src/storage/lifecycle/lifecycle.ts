/**
 * Puts the lifecycle operations of sessions together. Archiving is one of them: it moves sessions to our state folder,
 * where agents do not look, and back. The folders there are the same as the session folders, so that the path of an
 * archived session shows where it came from.
 */

import { basename, dirname, join, relative } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { LifeCycle, MovedSession } from "../../core/ports/lifecycle.ts";
import { isBelow, knownPath } from "../fs/confined-disk.ts";
import { guarded } from "../fs/files.ts";
import { archiveFolder } from "../fs/paths.ts";
import { keepLeaf } from "../log/leaf-store.ts";
import { exclusively, type LifecycleDeps, type LockedSession, locate } from "./exclusive.ts";
import { importSession } from "./import.ts";
import { belongings, moveWith, type PathChange, requireWayFree } from "./move.ts";
import { relocateSession } from "./relocate.ts";
import { deleteSession, restoreSession } from "./trash.ts";

export function makeLifeCycle(deps: LifecycleDeps): LifeCycle {
  const { flat, root } = deps.paths;
  const home = flat ?? (root as string);
  const archive = archiveFolder(deps.paths);
  return {
    locate: (where, purpose) => guarded("looking for the session", () => locate(deps, where, purpose)),
    delete: (file, permanent) =>
      exclusively(deps, file, "deleting the session", (locked) => deleteSession(deps, locked, permanent)),
    restore: (where) => guarded("restoring the session", () => restoreSession(deps, where)),
    archive: (file) =>
      exclusively(deps, file, "archiving the session", (locked) => moveBetween(deps, locked, home, archive)),
    unarchive: (file) =>
      exclusively(deps, file, "bringing the session back", (locked) => moveBetween(deps, locked, archive, home)),
    relocate: (file, cwd, allowMissing = false) =>
      exclusively(deps, file, "relocating the session", (locked) => relocateSession(deps, locked, cwd, allowMissing)),
    import: (path, progress) => importSession(deps, path, progress),
  };
}

/** Moves a session to the same place below another folder. Throws path_outside_root when it is not in `from`. */
async function moveBetween(
  { disk, leaves, open }: LifecycleDeps,
  { file, sessionId, leafId, forgetLeaf }: LockedSession,
  from: string,
  to: string,
): Promise<MovedSession> {
  const [folder, path] = [knownPath(disk, from), knownPath(disk, file)];
  if (!isBelow(folder, path))
    throw new Failure(
      "path_outside_root",
      `${file} is not in ${from}; only sessions that list_sessions lists can be moved.`,
      { path: file },
    );
  const movedTo = join(to, relative(folder, path));
  const others = belongings(disk, file, sessionId);
  const change = (other: string): PathChange => [other, join(dirname(movedTo), basename(other))];
  const changes: PathChange[] = [[file, movedTo], ...others.map(change)];
  await requireWayFree(disk, changes);
  disk.makeFolder(dirname(movedTo));
  await moveWith(disk, changes);
  if (leafId !== undefined) forgetLeaf();
  await keepLeaf(leaves, leafId, () => open(movedTo));
  return { sessionId, sessionPath: file, movedTo };
}
