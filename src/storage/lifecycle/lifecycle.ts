/**
 * Combines the lifecycle operations of sessions. Archiving is one of them: it moves sessions to our state folder, where
 * agents do not look, and back. The folders there are the same as the session folders, so that the path of an archived
 * session shows where it came from.
 */

import { basename, join, relative } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import type { EmptiedTrash, LifeCycle, MoveOptions, RecordedMove, Trashed } from "../../core/ports/lifecycle.ts";
import { DID } from "../../core/session/history.ts";
import { getKnownPath, isBelow } from "../fs/confined-disk.ts";
import { exists } from "../fs/disk.ts";
import { guardErrno } from "../fs/files.ts";
import { getKind, listNames, removeAll } from "../fs/folders.ts";
import { getArchiveFolder, getTrashFolder } from "../fs/paths.ts";
import { deleteEmptyFile, isEmptyFile } from "./empty-files.ts";
import {
  findSessionFile,
  type LifecycleDeps,
  type LockedSession,
  requireAsSeen,
  requireWritable,
  runExclusively,
} from "./exclusive.ts";
import { importAny } from "./import.ts";
import { FOR_GOOD, makeLeftovers, makeOperation } from "./prune.ts";
import { describeSession, getTitleFacts, hasHappened, isLost, isRestored, runRecorded } from "./recorded.ts";
import { relocateSession } from "./relocate.ts";
import { deleteSession, isAllowed, listTrashed, restoreSession } from "./trash.ts";
import { moveSession, undoOperation } from "./undo-steps.ts";

export function makeLifeCycle(deps: LifecycleDeps): LifeCycle {
  const { flat, root } = deps.paths;
  const home = flat ?? (root as string);
  const archive = getArchiveFolder(deps.paths);
  return {
    locate: (where, purpose) => guardErrno("looking for the session", () => findSessionFile(deps, where, purpose)),
    delete: async (file, permanent, options = {}) => {
      if (isEmptyFile(deps.disk, file)) return deleteEmptyFile(deps, file, permanent, options);
      return runExclusively(deps, file, "deleting the session", (locked) =>
        deleteSession(deps, locked, permanent, options),
      );
    },
    // Emptying, restoring and the undo of a deletion exclude each other, so that no item disappears during another.
    restore: (where, requireFit = async () => {}) =>
      alone(deps, () => guardErrno("restoring the session", () => restoreSession(deps, where, requireFit))),
    archive: (file, options = {}) =>
      runExclusively(deps, file, "archiving the session", (locked) =>
        moveBetween(deps, locked, home, archive, { ...options, kind: "archive" }),
      ),
    unarchive: (file, options = {}) =>
      runExclusively(deps, file, "bringing the session back", (locked) =>
        moveBetween(deps, locked, archive, home, { ...options, kind: "unarchive" }),
      ),
    relocate: (file, cwd, allowMissing = false, options = {}) =>
      runExclusively(deps, file, "relocating the session", (locked) =>
        relocateSession(deps, locked, cwd, allowMissing, options),
      ),
    import: (path, progress, group) => importAny(deps, path, progress, group),
    leftovers: makeLeftovers(deps),
    emptyTrash: (isMeant, progress) =>
      alone(deps, () => guardErrno("emptying the trash", () => emptyTrash(deps, isMeant, progress))),
    trash: () => guardErrno("looking into the trash", () => listTrashed(deps)),
    usesDesktopTrash: deps.desktopTrash !== undefined,
    isAllowed: (path) => isAllowed(deps, path),
    stepOf: (operation) => hasHappened(deps, operation),
    isBack: (operation) => isRestored(deps, operation),
    isLost: (operation) => isLost(deps, operation),
    takeBack: (operation, as) => undoOperation(deps, operation, as),
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
  { kind, ...options }: MoveOptions & { readonly kind: "archive" | "unarchive" },
): Promise<RecordedMove> {
  const { disk } = deps;
  const { file } = locked;
  const [folder, path] = [getKnownPath(disk, from), getKnownPath(disk, file)];
  if (!isBelow(folder, path))
    throw new Failure(
      "path_outside_root",
      `${file} is not in ${from}; only sessions that list_sessions lists can be moved.`,
      { path: file },
    );
  requireAsSeen(deps, locked, options);
  const movedTo = join(to, relative(folder, path));
  const facts = getTitleFacts(locked.log);
  const step = { do: "move" as const, from: file, to: movedTo };
  const text = `${DID[kind]} ${facts.title}.`;
  const operation = { kind, group: options.group, ...describeSession(locked, facts), text, step };
  return runRecorded(
    deps,
    operation,
    async ({ id: operationId }) => ({ operationId, ...(await moveSession(deps, locked, movedTo)) }),
    () => ({}),
  );
}

// --- emptying the trash ---------------------------------------------------------------------------------------------

/** Ending of an item's name during its removal. */
const EMPTIED = ".emptied";

/** Removes items for good. Each loses its name first, so that no item is ever incomplete. */
async function emptyTrash(
  deps: LifecycleDeps,
  isMeant: (item: Trashed) => boolean = () => true,
  progress?: Progress,
): Promise<EmptiedTrash> {
  requireWritable(deps);
  const trash = getTrashFolder(deps.paths);
  const items = listTrashed(deps).filter(isMeant);
  sweepEmptied(deps, trash);
  if (items.length === 0) return { operationId: null, removed: [], kept: [] };
  const kept: { item: Trashed; reason: string }[] = [];
  let operationId: string | null = null;
  const run = async ({ id }: { id: string }): Promise<Trashed[]> => {
    operationId = id;
    const removed: Trashed[] = [];
    for (const [done, item] of items.entries()) {
      try {
        await guardErrno("emptying the trash", () => emptyOne(deps, trash, item));
        removed.push(item);
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        kept.push({ item, reason: error.message });
      }
      progress?.(done + 1, items.length);
    }
    sweepEmptied(deps, trash);
    return removed;
  };
  const textOf = (count: number): string => `Removed ${count} ${count === 1 ? "item" : "items"} of the trash for good.`;
  const operation = makeOperation(trash, { text: textOf(items.length), final: FOR_GOOD });
  const removed = await runRecorded(deps, operation, run, (gone) =>
    gone.length === 0 ? null : { text: textOf(gone.length) },
  );
  return { operationId: removed.length === 0 ? null : operationId, removed, kept };
}

async function emptyOne({ disk }: LifecycleDeps, trash: string, { itemPath }: Trashed): Promise<void> {
  const name = join(trash, `.${basename(itemPath)}${EMPTIED}`);
  if (exists(disk, name)) removeAll(disk, name);
  disk.rename(itemPath, name);
  await disk.syncFolder(trash);
}

/** Removes the items without their names. Refusals of the disk are left to the next time. */
function sweepEmptied({ disk }: LifecycleDeps, trash: string): void {
  for (const name of listNames(disk, trash))
    if (name.startsWith(".") && name.endsWith(EMPTIED))
      try {
        if (getKind(disk, join(trash, name)) === "folder") removeAll(disk, join(trash, name));
      } catch {
        // It is no item any more, and only takes space.
      }
}
