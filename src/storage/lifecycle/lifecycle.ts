/**
 * Combines the lifecycle operations of sessions. Archiving is one of them: it moves sessions to our state folder, where
 * agents do not look, and back. The folders there are the same as the session folders, so that the path of an archived
 * session shows where it came from.
 */

import { join, relative } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { LifeCycle, MoveWishes, RecordedMove } from "../../core/ports/lifecycle.ts";
import { DID } from "../../core/session/history.ts";
import { isBelow, knownPath } from "../fs/confined-disk.ts";
import { guarded } from "../fs/files.ts";
import { archiveFolder } from "../fs/paths.ts";
import { emptyTrash } from "./empty-trash.ts";
import {
  exclusively,
  type LifecycleDeps,
  type LockedSession,
  locate,
  requireAsSeen,
  requireWritable,
} from "./exclusive.ts";
import { importAny } from "./import-foreign.ts";
import { makeLeftovers } from "./prune.ts";
import { about, factsOf, hasHappened, isBack, recorded } from "./recorded.ts";
import { relocateSession } from "./relocate.ts";
import { moveTo, takeBack } from "./take-back.ts";
import { deleteSession, isAllowed, restoreSession, trashed } from "./trash.ts";

export function makeLifeCycle(deps: LifecycleDeps): LifeCycle {
  const { flat, root } = deps.paths;
  const home = flat ?? (root as string);
  const archive = archiveFolder(deps.paths);
  return {
    locate: (where, purpose) => guarded("looking for the session", () => locate(deps, where, purpose)),
    delete: (file, permanent, wishes = {}) =>
      exclusively(deps, file, "deleting the session", (locked) => deleteSession(deps, locked, permanent, wishes)),
    // Emptying, restoring and the undo of a deletion exclude each other, so that no item disappears during another.
    restore: (where, requireFit = async () => {}) =>
      alone(deps, () => guarded("restoring the session", () => restoreSession(deps, where, requireFit))),
    archive: (file, wishes = {}) =>
      exclusively(deps, file, "archiving the session", (locked) =>
        moveBetween(deps, locked, home, archive, { ...wishes, kind: "archive" }),
      ),
    unarchive: (file, wishes = {}) =>
      exclusively(deps, file, "bringing the session back", (locked) =>
        moveBetween(deps, locked, archive, home, { ...wishes, kind: "unarchive" }),
      ),
    relocate: (file, cwd, allowMissing = false) =>
      exclusively(deps, file, "relocating the session", (locked) => relocateSession(deps, locked, cwd, allowMissing)),
    import: (path, progress) => importAny(deps, path, progress),
    leftovers: makeLeftovers(deps),
    emptyTrash: (before, progress) =>
      alone(deps, () => guarded("emptying the trash", () => emptyTrash(deps, before, progress))),
    trash: () => guarded("looking into the trash", () => trashed(deps)),
    usesDesktopTrash: deps.desktopTrash !== undefined,
    isAllowed: (path) => isAllowed(deps, path),
    stepOf: (operation) => hasHappened(deps, operation),
    isBack: (operation) => isBack(deps, operation),
    takeBack: (operation, as) => takeBack(deps, operation, as),
  };
}

/** Runs `run` while no other process restores, empties the trash, or undoes. Throws read_only, session_locked. */
function alone<T>(deps: LifecycleDeps, run: () => Promise<T>): Promise<T> {
  requireWritable(deps);
  return deps.operations.alone(run);
}

/** Moves a session to the same place below another folder. Throws path_outside_root unless it is in `from`. */
async function moveBetween(
  deps: LifecycleDeps,
  locked: LockedSession,
  from: string,
  to: string,
  { kind, ...wishes }: MoveWishes & { readonly kind: "archive" | "unarchive" },
): Promise<RecordedMove> {
  const { disk } = deps;
  const { file } = locked;
  const [folder, path] = [knownPath(disk, from), knownPath(disk, file)];
  if (!isBelow(folder, path))
    throw new Failure(
      "path_outside_root",
      `${file} is not in ${from}; only sessions that list_sessions lists can be moved.`,
      { path: file },
    );
  requireAsSeen(deps, locked, wishes);
  const movedTo = join(to, relative(folder, path));
  const facts = factsOf(locked.log);
  const step = { do: "move" as const, from: file, to: movedTo };
  const text = `${DID[kind]} ${facts.title}.`;
  const operation = { kind, group: wishes.group, ...about(locked, facts), text, step };
  return recorded(
    deps,
    operation,
    async ({ id: operationId }) => ({ operationId, ...(await moveTo(deps, locked, movedTo)) }),
    () => ({}),
  );
}
