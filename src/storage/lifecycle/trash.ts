/** Deletes and restores sessions and their leftovers. */

import { basename, dirname, join } from "node:path";
import { toDoneFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { SESSION_ID } from "../../core/format/entry.ts";
import type { Deleted, FoundInTrash, MovedSession, MoveOptions, Trashed, Where } from "../../core/ports/lifecycle.ts";
import type { BegunOperation } from "../../core/ports/operations.ts";
import { DID, SHORTEST_ID } from "../../core/session/history.ts";
import { getKnownPath, isBelow } from "../fs/confined-disk.ts";
import { getPointerFile, isContainerName } from "../fs/container-paths.ts";
import { type Disk, exists } from "../fs/disk.ts";
import { useAndClose } from "../fs/files.ts";
import { getKind, removeAll } from "../fs/folders.ts";
import { makeStagingName } from "../fs/staging.ts";
import { isOneFile, isUnchanged } from "../fs/stamps.ts";
import { keepLeaf } from "../log/leaf-store.ts";
import { type LifecycleDeps, type LockedSession, requireAsSeen, requireWritable } from "./exclusive.ts";
import { findBelongings, moveTogether, type PathChange, requireFreePaths } from "./move.ts";
import { describeSession, getTitleFacts, makeTitle, runRecorded, type TitleFacts } from "./recorded.ts";
import {
  discardEmpty,
  getLeftoverPath,
  isInTrash,
  listContent,
  listItems,
  makeItem,
  measureFolder,
  type TrashItem,
  type TrashRecord,
  writeRecord,
} from "./trash-items.ts";

const DELETING = "deleting the session";

/** Maximum sessions that a failure lists. */
const MOST_LISTED = 3;

/** The operation that moves files to the trash; without an id, if another program deleted them. */
type Deletion = Pick<BegunOperation, "at"> & Partial<BegunOperation>;

/** Deletes a session. Throws session_locked, storage_full, storage_failed. */
export async function deleteSession(
  deps: LifecycleDeps,
  locked: LockedSession,
  permanent: boolean,
  options: MoveOptions,
): Promise<Deleted> {
  requireAsSeen(deps, locked, options);
  const facts = getTitleFacts(locked.log);
  const { stamp } = locked.log;
  /** Throws content_modified unless the file is the one to be deleted. */
  const requireUnchanged = (): void => {
    const { file } = locked;
    if (stamp === null || isContainerName(file) || isUnchanged(deps.disk.info(file), stamp)) return;
    throw new Failure("content_modified", "Another program wrote to the session meanwhile. Nothing was deleted.");
  };
  const operation = {
    kind: "delete" as const,
    group: options.group,
    ...describeSession(locked, facts),
    text: `${DID.delete} ${facts.title}${permanent ? " for good" : ""}.`,
    step: { do: "trash" as const, from: locked.file },
    ...(permanent ? { final: "It was deleted for good, and nothing is left of it to bring back." } : {}),
  };
  return runRecorded(
    deps,
    operation,
    (begun) => {
      if (permanent) requireUnchanged();
      return remove(deps, locked, facts, begun, permanent);
    },
    ({ trash, movedTo }) => {
      if (trash === "own") return { step: { ...operation.step, item: dirname(movedTo as string) } };
      return trash === "desktop" ? { final: "The trash command took it. Restore it from the desktop's trash." } : {};
    },
  );
}

async function remove(
  deps: LifecycleDeps,
  locked: LockedSession,
  facts: TitleFacts,
  begun: BegunOperation,
  permanent: boolean,
): Promise<Deleted> {
  const { disk } = deps;
  const { file, sessionId } = locked;
  const deleted = { operationId: begun.id, sessionId, sessionPath: file };
  if (permanent) {
    await unlink(disk, file, findBelongings(disk, file, sessionId), locked);
    return { ...deleted, trash: "none" };
  }
  if (deps.desktopTrash) {
    const others = findBelongings(disk, file, sessionId);
    const movedTo = await deps.desktopTrash([file, ...others]);
    if (getKind(disk, file) === undefined) {
      locked.forgetLeaf();
      try {
        // Remaining files would appear next to the next session of that name.
        const left = others.filter((path) => getKind(disk, path) !== undefined);
        if (left.length > 0) await toItem(deps, locked, facts, begun, left);
        await disk.syncFolder(dirname(file));
      } catch (error) {
        throw toDoneFailure(error, DELETING, `The session is deleted: the trash command took it. ${MAY_REMAIN}`);
      }
      return { ...deleted, movedTo, trash: "desktop" };
    }
  }
  const item = await moveToOwnTrash(deps, locked, facts, begun);
  return { ...deleted, movedTo: join(item, basename(file)), trash: "own" };
}

/** Moves a session with all that belongs to it to our own trash, and returns the item. */
export async function moveToOwnTrash(
  deps: LifecycleDeps,
  locked: LockedSession,
  facts: TitleFacts,
  begun: Deletion,
): Promise<string> {
  const { file, sessionId } = locked;
  const item = await toItem(deps, locked, facts, begun, [file, ...findBelongings(deps.disk, file, sessionId)]);
  locked.forgetLeaf();
  return item;
}

const MAY_REMAIN = "Some of what belonged to it may still be where it was.";

/** Removes a session for good: first its file, or the name that marks a container for scanners, in one step. */
async function unlink(disk: Disk, file: string, others: readonly string[], locked: LockedSession): Promise<void> {
  locked.forgetLeaf();
  let rest = others;
  if (getKind(disk, file) === "folder") {
    const [container, pointer] = [makeStagingName(file), getPointerFile(file)];
    // The pointer goes after it: a container without one may be a session too.
    disk.rename(file, container);
    rest = [...others.filter((path) => path === pointer), container, ...others.filter((path) => path !== pointer)];
  } else disk.remove(file);
  const left: string[] = [];
  for (const path of rest)
    try {
      removeAll(disk, path);
    } catch {
      left.push(basename(path));
    }
  const remainder =
    left.length > 0 ? `, but the disk refused to remove what belonged to it: ${left.join(", ")}` : undefined;
  try {
    await disk.syncFolder(dirname(file));
  } catch (error) {
    throw toDoneFailure(
      error,
      DELETING,
      `The session is deleted${remainder ?? ", though a loss of power may bring it back"}.`,
    );
  }
  if (remainder !== undefined)
    throw new Failure("storage_failed", `The session is deleted${remainder}.`, { left }, { retryable: false });
}

/** Moves files to a folder of the trash, and returns the folder. The first of them moves last. */
async function toItem(
  deps: LifecycleDeps,
  locked: LockedSession,
  { name, firstMessage, messageCount }: TitleFacts,
  { id, at }: Deletion,
  paths: readonly string[],
): Promise<string> {
  const { disk } = deps;
  const { sessionId, file: path, leafId } = locked;
  const said = { name, firstMessage, messageCount };
  const record: TrashRecord = { sessionId, path, deletedAt: at, leafId, operationId: id, ...said };
  const begun = begunItem(deps, locked);
  if (begun !== undefined) await writeRecord(disk, deps.paths, begun, record);
  const item = begun ?? (await makeItem(disk, deps.paths, SESSION_ID.test(sessionId) ? sessionId : "session", record));
  try {
    const changes = paths.map((path): PathChange => [path, join(item, basename(path))]);
    await moveTogether(disk, changes);
  } catch (error) {
    discardEmpty(disk, item);
    throw error;
  }
  return item;
}

/** Returns the trash folder that an interrupted deletion of the same file left. */
function begunItem(deps: LifecycleDeps, { file, sessionId }: LockedSession): string | undefined {
  const { disk } = deps;
  for (const { item, file: there, record } of listItems(deps))
    if (record.sessionId === sessionId && record.path === file && record.files === undefined)
      if (!exists(disk, there) || isOneFile(disk, file, there)) return item;
  return undefined;
}

// --- restoring -----------------------------------------------------------------------------------------------------

/** Restores a session. Throws session_not_found, already_exists, path_outside_root, storage_full, storage_failed. */
export async function restoreSession(
  deps: LifecycleDeps,
  where: Where,
  requireFit: (found: FoundInTrash) => Promise<void>,
): Promise<MovedSession> {
  requireWritable(deps);
  const found = findItem(deps, where);
  if (!found)
    throw new Failure(
      "session_not_found",
      "The server's own trash has no such session. Restore what the trash command took from the desktop's trash. A session that was deleted for good is only in a backup; import_session takes a file from there.",
      { ...where },
    );
  requireOwn(deps, found);
  const { sessionId, path, name = null, firstMessage = null } = found.record;
  await requireFit({ sessionId, file: found.file });
  const operation = {
    kind: "restore" as const,
    sessionId,
    sessionPath: path,
    name,
    text: `Restored ${makeTitle(name ?? firstMessage, sessionId)}.`,
    step: { do: "appear" as const, to: path, item: found.item },
    // Undoing that would remove a file that existed before.
    ...(isAlreadyRestored(deps, found)
      ? { final: "The session was in its place already, with the same content." }
      : {}),
  };
  return runRecorded(
    deps,
    operation,
    () => restoreItem(deps, found),
    ({ movedTo }) => ({ step: { ...operation.step, count: countEntries(deps, movedTo) } }),
  );
}

/** Throws path_outside_root for an item of another state folder, whose copy this one is: it would go to the original. */
function requireOwn({ disk, paths }: LifecycleDeps, { item, file, record: { path, state } }: TrashItem): void {
  const home = getKnownPath(disk, paths.state);
  if (state === home) return;
  const root = getKnownPath(disk, paths.flat ?? (paths.root as string));
  if (state === undefined && isBelow(root, getKnownPath(disk, path))) return;
  throw new Failure(
    "path_outside_root",
    {
      what: `The session was deleted at ${path}, by the state folder at ${state ?? "another place"}; this one is at ${home}.`,
      state: "Nothing was changed.",
      advice: `import_session of ${file} brings it in here.`,
    },
    { itemPath: item, path: file },
  );
}

/** Returns whether the former path of a session has another file, not a second name left by an interrupted move. */
export function isAlreadyRestored(deps: LifecycleDeps, { file, record }: TrashItem): boolean {
  const to = deps.allowed(record.path);
  return exists(deps.disk, to) && !isOneFile(deps.disk, file, to);
}

/** Moves the session of an item back to its former path. */
export async function restoreItem(deps: LifecycleDeps, { item, file, record }: TrashItem): Promise<MovedSession> {
  const { disk } = deps;
  const to = deps.allowed(record.path);
  const others = listContent(disk, item).filter((name) => name !== basename(to));
  const changes = [basename(to), ...others].map((name): PathChange => [join(item, name), join(dirname(to), name)]);
  await requireFreePaths(disk, changes, { sessionId: record.sessionId });
  disk.makeFolder(dirname(to));
  await moveTogether(disk, changes);
  await keepLeaf(deps.leaves, record.leafId, () => deps.open(to));
  discardEmpty(disk, item);
  return { sessionId: record.sessionId, sessionPath: file, movedTo: to };
}

/** Returns the number of entries of a session; undefined if it cannot be opened. */
export function countEntries(deps: LifecycleDeps, path: string): number | undefined {
  try {
    return useAndClose(deps.open(path), ({ nodes }) => nodes.count);
  } catch {
    return undefined;
  }
}

/** Returns the most recently deleted session that matches. Throws ambiguous_id. */
function findItem(deps: LifecycleDeps, { sessionPath, sessionId }: Where): TrashItem | undefined {
  const path = sessionPath === undefined ? undefined : deps.absolute(sessionPath);
  const there = [...listItems(deps)].filter(
    ({ file, record }) => record.files === undefined && exists(deps.disk, file),
  );
  const fits = ({ item, file, record }: TrashItem): boolean =>
    path === undefined ? record.sessionId === sessionId : [record.path, file, item].includes(path);
  const exact = newestOf(there.filter(fits));
  return exact ?? (sessionId === undefined ? undefined : beginningWith(deps, there, sessionId));
}

function newestOf(items: readonly TrashItem[]): TrashItem | undefined {
  let newest: TrashItem | undefined;
  for (const item of items) if (newest === undefined || item.record.deletedAt >= newest.record.deletedAt) newest = item;
  return newest;
}

/** Returns the newest item of the one session whose id begins so. Throws ambiguous_id. */
function beginningWith(deps: LifecycleDeps, there: readonly TrashItem[], id: string): TrashItem | undefined {
  const found = there.filter(({ record }) => record.sessionId.startsWith(id) && isAllowed(deps, record.path));
  const byId = new Map(found.map((item) => [item.record.sessionId, item]));
  if (byId.size === 0) return undefined;
  if (id.length < SHORTEST_ID)
    throw new Failure("ambiguous_id", `Give at least ${SHORTEST_ID} characters of the id.`, {
      sessionId: id,
      matches: byId.size,
    });
  if (byId.size === 1) return newestOf(found);
  const listed = [...byId.values()]
    .slice(0, MOST_LISTED)
    .map(({ record: { sessionId, name = null, firstMessage = null } }) => {
      return `${sessionId} (${makeTitle(name ?? firstMessage, sessionId)})`;
    });
  const more = byId.size > MOST_LISTED ? ` and ${byId.size - MOST_LISTED} more` : "";
  const sentence = `Several sessions in the trash have ids that begin with this: ${listed.join(", ")}${more}. Give more of it.`;
  throw new Failure("ambiguous_id", sentence, { sessionId: id, matches: byId.size });
}

export function isAllowed(deps: LifecycleDeps, path: string): boolean {
  try {
    deps.allowed(path);
    return true;
  } catch {
    return false;
  }
}

// --- listing the trash -----------------------------------------------------------------------------------------------

/** Returns the restorable content of our trash, the newest first. */
export function listTrashed(deps: LifecycleDeps): Trashed[] {
  const { disk } = deps;
  const found: Trashed[] = [];
  for (const { item, record } of listItems(deps)) {
    const { sessionId, path, deletedAt, files, name = null, firstMessage = null, messageCount = null } = record;
    if (!isInTrash(disk, item) || ![path, ...(files ?? [])].every((file) => isAllowed(deps, file))) continue;
    found.push({
      itemPath: item,
      sessionPath: path,
      sessionId: files === undefined ? sessionId : null,
      deletedAt,
      sizeBytes: measureFolder(disk, item),
      files: files ?? null,
      name,
      firstMessage,
      messageCount,
    });
  }
  return found.sort((a, b) => (a.deletedAt < b.deletedAt ? 1 : a.deletedAt > b.deletedAt ? -1 : 0));
}

// --- leftovers -------------------------------------------------------------------------------------------------------

/** Moves files of any folders to a new item, all or none. */
export async function moveToPruned(
  deps: LifecycleDeps,
  files: readonly string[],
  { id, at }: BegunOperation,
): Promise<string> {
  const { disk } = deps;
  const record: TrashRecord = { sessionId: "", path: files[0], deletedAt: at, operationId: id, files };
  const item = await makeItem(disk, deps.paths, "leftovers", record);
  try {
    await moveTogether(
      disk,
      files.map((file, n): PathChange => [file, getLeftoverPath({ item, record }, n)]),
    );
  } catch (error) {
    discardEmpty(disk, item);
    throw error;
  }
  return item;
}

/** Moves the leftovers of an item back to their former paths, all or none. */
export async function restoreLeftovers(deps: LifecycleDeps, found: TrashItem): Promise<readonly string[]> {
  const { disk } = deps;
  const { item, record } = found;
  const changes = (record.files ?? [])
    .map((file, n): PathChange => [getLeftoverPath(found, n), deps.allowed(file)])
    .filter(([from]) => getKind(disk, from) !== undefined);
  await requireFreePaths(disk, changes);
  for (const folder of new Set(changes.map(([, to]) => dirname(to)))) disk.makeFolder(folder);
  if (changes.length > 0) await moveTogether(disk, changes);
  discardEmpty(disk, item);
  return changes.map(([, to]) => to);
}
