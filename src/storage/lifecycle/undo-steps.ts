/** Undoes operations on whole sessions: each step has an inverse step, which can be undone in the same way. */

import { basename, dirname, join } from "node:path";
import { toDoneFailure } from "../../core/errno.ts";
import { describeUnchanged, Failure } from "../../core/failure.ts";
import type { MovedSession, TakingBack } from "../../core/ports/lifecycle.ts";
import type { BegunOperation, NewOperation, Operation, OperationStep, StepOf } from "../../core/ports/operations.ts";
import type { Log } from "../../core/ports/store.ts";
import { getPathAfter, toConflictFailure } from "../../core/session/history.ts";
import { keepAs } from "../fs/chunked-io.ts";
import { isContainerName } from "../fs/container-paths.ts";
import { exists, removeQuietly } from "../fs/disk.ts";
import { guardErrno } from "../fs/files.ts";
import { getTrashFolder } from "../fs/paths.ts";
import { nameBackup, nameNextBackup, swapFolders } from "../fs/quarantine.ts";
import { isUnchanged } from "../fs/stamps.ts";
import { keepLeaf } from "../log/leaf-store.ts";
import { isEmptyFile } from "./empty-files.ts";
import { type LifecycleDeps, type LockedSession, requireWritable, runExclusively } from "./exclusive.ts";
import { getPreviousCwd, readHeaderText } from "./header-lines.ts";
import { isLeftover, lockOwners } from "./leftovers.ts";
import { findBelongings, moveTogether, type PathChange, requireFreePaths } from "./move.ts";
import { findContainerFolder, findInode, getTitleFacts, runRecorded } from "./recorded.ts";
import { relocateAgain, returnSession } from "./relocate.ts";
import {
  countEntries,
  isAlreadyRestored,
  moveToOwnTrash,
  moveToPruned,
  restoreItem,
  restoreLeftovers,
} from "./trash.ts";
import { findItemFrom, getLeftoverPath, isInTrash, readItem, type TrashItem } from "./trash-items.ts";

const TAKING_BACK = "taking the operation back";
const IS_SWAPPED =
  "It is done all the same, but a loss of power may still undo that. Asked for again, another operation would be taken back.";

/** The disk's refusal after a step was done, which is recorded nevertheless. */
class RefusedAfter extends Error {
  readonly step: OperationStep;
  readonly failure: Failure;

  constructor(step: OperationStep, failure: Failure) {
    super(failure.message, { cause: failure });
    this.step = step;
    this.failure = failure;
  }
}

/** See LifeCycle.takeBack. */
export async function undoOperation(
  deps: LifecycleDeps,
  operation: Operation,
  as: TakingBack,
): Promise<{ operationId: string; sessionPath: string | undefined }> {
  requireWritable(deps);
  const { step, sessionId, name } = operation;
  const reversal: StepReversal<OperationStep> | null | undefined = step && REVERSALS[step.do];
  if (!step || !reversal) throw new Failure("cannot_undo", undefined, { operationId: operation.id });
  const planned = reversal.plan(deps, step);
  const taking: NewOperation = { ...as, sessionId, sessionPath: operation.sessionPath, name, step: planned };
  let operationId = "";
  let refused: Failure | undefined;
  const run = async (begun: BegunOperation): Promise<OperationStep> => {
    operationId = begun.id;
    try {
      return await guardErrno(TAKING_BACK, () => reversal.run({ deps, operation, begun }, step));
    } catch (error) {
      if (!(error instanceof RefusedAfter)) throw error;
      refused = error.failure;
      return error.step;
    }
  };
  try {
    const done = await runRecorded(deps, taking, run, (found) => ({ step: found }));
    if (refused !== undefined) throw refused;
    return { operationId, sessionPath: getPathAfter(done) };
  } catch (error) {
    throw asMoved(error);
  }
}

/** Failures that show another session at the place of a step. */
const MOVED: readonly string[] = ["session_not_found", "already_exists", "not_a_session"];

function asMoved(error: unknown): unknown {
  if (!(error instanceof Failure) || !MOVED.includes(error.name)) return error;
  return toConflictFailure(error.message, { ...error.details, found: error.name });
}

/** An undo that has begun. */
interface BegunUndo {
  readonly deps: LifecycleDeps;
  readonly operation: Operation;
  readonly begun: BegunOperation;
}

/** The way back of a kind of step. */
interface StepReversal<S extends OperationStep> {
  /** Returns the inverse step, as far as it is known before. */
  plan(deps: LifecycleDeps, step: S): OperationStep;
  run(undo: BegunUndo, step: S): Promise<OperationStep>;
}

/** Null for steps that are taken back in the session, or by the opposite migration. */
const REVERSALS: { readonly [K in OperationStep["do"]]: StepReversal<StepOf<K>> | null } = {
  change: null,
  convert: null,
  move: {
    plan: (_, { from, to }) => ({ do: "move", from: to, to: from }),
    run: whileLocked(async ({ deps }, locked, step) => {
      const { movedTo } = await moveSession(deps, locked, deps.allowed(step.from));
      return { do: "move", from: locked.file, to: movedTo };
    }),
  },
  trash: {
    plan: (_, { from, item }) => ({ do: "appear", to: from, item }),
    run: ({ deps, operation }, step) => fromTrash(deps, operation, step),
  },
  appear: {
    plan: (_, { to }) => ({ do: "trash", from: to }),
    run: whileLocked(async ({ deps, begun }, locked, step) => {
      requireNotContinued(locked.log, step.count);
      const item = await moveToOwnTrash(deps, locked, getTitleFacts(locked.log), begun);
      return { do: "trash", from: locked.file, item };
    }),
  },
  relocate: {
    plan: (_, { from, to, cwd }) => ({ do: "return", from: to, to: from, cwd }),
    run: whileLocked(({ deps }, locked, step) => {
      const { cwd } = locked.log.header;
      // An interrupted undo has rewritten the header back, and not moved the file yet.
      if (cwd !== step.cwd && cwd !== getPreviousCwd(step))
        throw toConflictFailure(`Its working directory is ${cwd ?? "not named"} now.`, { cwd: cwd ?? null });
      return returnSession(deps, locked, step);
    }),
  },
  return: {
    plan: (deps, { from, to, cwd }) => ({ do: "relocate", from: to, to: from, cwd, header: readHeaderText(deps, to) }),
    run: whileLocked(({ deps }, locked, step) => relocateAgain(deps, locked, step.cwd)),
  },
  swap: {
    plan: (deps, { path }) => ({ do: "swap", path, inode: findInode(deps, path) ?? 0 }),
    run: whileLocked(({ deps }, locked, step) => swapBack(deps, locked, step)),
  },
  prune: {
    plan: (_, { files, item }) => ({ do: "unprune", files, item }),
    run: ({ deps }, step) => unprune(deps, step),
  },
  unprune: {
    plan: (_, { files }) => ({ do: "prune", files }),
    run({ deps, begun }, step) {
      const files = step.files.map((file) => deps.allowed(file));
      requireLeftovers(deps, files, files);
      return lockOwners(deps, files, async () => ({
        do: "prune",
        files,
        item: await moveToPruned(deps, files, begun),
      }));
    },
  },
};

/** Returns the undo of a step for which the session's lock is needed. */
function whileLocked<S extends OperationStep>(
  run: (undo: BegunUndo, locked: LockedSession, step: S) => Promise<OperationStep>,
): StepReversal<S>["run"] {
  return (undo, step) => {
    const path = placeOf(undo.deps, step);
    return runExclusively(undo.deps, path, TAKING_BACK, (locked) => {
      requireSame(undo.operation, locked, path);
      return run(undo, locked, step);
    });
  };
}

/** Returns the path of a step's session. Throws session_not_found if it is missing. */
function placeOf(deps: LifecycleDeps, step: OperationStep): string {
  const { disk } = deps;
  const path = deps.allowed(getPathAfter(step) as string);
  if (exists(disk, path) || (step.do === "swap" && findContainerFolder(deps, path) !== path)) return path;
  // An interrupted relocation has rewritten the header, and has not moved the file.
  if (step.do === "relocate" && exists(disk, deps.allowed(step.from))) return step.from;
  throw toConflictFailure(`There is nothing at ${path} any more.`, { path });
}

function requireSame({ sessionId }: Operation, locked: LockedSession, path: string): void {
  if (locked.sessionId !== sessionId)
    throw toConflictFailure(`${path} is another session now, with the id ${locked.sessionId}.`, { path });
  if (locked.file !== path) throw toConflictFailure(`The session is ${locked.file} now.`, { path: locked.file });
}

/** Entries that name, label and mark places: those are left in the file after the undo of operations. */
const NO_CONVERSATION: ReadonlySet<string> = new Set(["label", "session_info", "branch_summary"]);

/** Throws ground_moved if a session, whose lock we have, was continued since it had `count` entries. */
function requireNotContinued(log: Log, count: number | undefined): void {
  // It was read before we had the lock.
  const { kind } = log.refresh();
  if (kind === "replaced" || kind === "gone") throw writtenMeanwhile(log);
  const { nodes } = log;
  let added = 0;
  for (let p = count ?? nodes.count; p < nodes.count; p++)
    if (!nodes.isMarker(p) && !NO_CONVERSATION.has(nodes.type(p))) added++;
  if (added === 0) return;
  const entries = added === 1 ? "1 entry was" : `${added} entries were`;
  throw toConflictFailure(`${entries} added to the session since.`, { added });
}

/** Moves a session, with all that belongs to it, to another path. Throws already_exists. */
export async function moveSession(
  { disk, leaves, open }: LifecycleDeps,
  { file, sessionId, leafId, forgetLeaf }: LockedSession,
  movedTo: string,
): Promise<MovedSession> {
  const others = findBelongings(disk, file, sessionId);
  const change = (other: string): PathChange => [other, join(dirname(movedTo), basename(other))];
  const changes: PathChange[] = [[file, movedTo], ...others.map(change)];
  await requireFreePaths(disk, changes);
  disk.makeFolder(dirname(movedTo));
  await moveTogether(disk, changes);
  if (leafId !== undefined) forgetLeaf();
  await keepLeaf(leaves, leafId, () => open(movedTo));
  return { sessionId, sessionPath: file, movedTo };
}

/** Returns the item of a step, which must be in our trash and have the content that it was made for. */
function itemOf(deps: LifecycleDeps, item: string | undefined): TrashItem {
  const { disk, paths } = deps;
  const found =
    item !== undefined && dirname(item) === getTrashFolder(paths) && isInTrash(disk, item) && readItem(disk, item);
  if (!found) throw toConflictFailure("The trash does not have it any more.", { itemPath: item ?? null });
  return found;
}

async function fromTrash(deps: LifecycleDeps, operation: Operation, step: StepOf<"trash">): Promise<OperationStep> {
  // A restoration that was undone has put it into another item.
  const isThere = step.item !== undefined && isInTrash(deps.disk, step.item);
  const item = itemOf(deps, isThere ? step.item : findItemFrom(deps, step.from, operation.sessionId));
  const { sessionId, path } = item.record;
  if (sessionId !== operation.sessionId || path !== step.from)
    throw toConflictFailure("The trash has another session in its place.", { itemPath: item.item });
  if (isAlreadyRestored(deps, item)) throw toConflictFailure(`Something exists at ${path} already.`, { path });
  const { movedTo } = await restoreItem(deps, item);
  return { do: "appear", to: movedTo, count: countEntries(deps, movedTo) };
}

async function unprune(deps: LifecycleDeps, step: StepOf<"prune">): Promise<OperationStep> {
  const item = itemOf(deps, step.item);
  const { files = [] } = item.record;
  const places = files.map((_, n) => getLeftoverPath(item, n));
  requireLeftovers(deps, files, places);
  await restoreLeftovers(deps, item);
  return { do: "unprune", files: step.files };
}

/** Throws ground_moved unless all files are leftovers, or empty at their places: no prune of ours has moved others. */
function requireLeftovers({ disk }: LifecycleDeps, files: readonly string[], places: readonly string[]): void {
  const other = files.find((file, n) => !isLeftover(file) && !isEmptyFile(disk, places[n]));
  if (other !== undefined) throw toConflictFailure(`${other} is nothing that is left over.`, { path: other });
}

function writtenMeanwhile({ file }: Log): Failure {
  return toConflictFailure(describeUnchanged("Another program wrote to the session meanwhile."), {
    path: file,
  });
}

/** Puts the file from a repair, or its undo, in the place of the session, and keeps the present one. */
async function swapBack(deps: LifecycleDeps, locked: LockedSession, step: StepOf<"swap">): Promise<OperationStep> {
  const { disk } = deps;
  const { file, log } = locked;
  const folder = findContainerFolder(deps, file);
  // Another swap was interrupted between its two steps: the first is undone.
  if (folder !== file) disk.rename(folder, file);
  const other = step.other && deps.allowed(step.other);
  if (other === undefined || !isLeftover(other, file) || !exists(disk, other))
    throw toConflictFailure(`${other ?? "The original"} is missing.`, { path: other ?? null });
  const seen = log.stamp;
  requireNotContinued(log, step.count);
  const inode = findInode(deps, file) as number;
  const isFolder = isContainerName(file);
  const kept = isFolder ? nameNextBackup(disk, file, "repaired") : nameBackup(disk, file, "repaired");
  if (isFolder) swapFolders(disk, other, file, kept, TAKING_BACK);
  else {
    // A program that ignores locks may write to it now: its lines would be in the kept file only.
    const requireUnchanged = (): void => {
      if (seen === null || !isUnchanged(disk.info(file), seen)) throw writtenMeanwhile(log);
    };
    requireUnchanged();
    keepAs(disk, file, kept);
    try {
      await disk.syncFolder(dirname(file));
      requireUnchanged();
      disk.rename(other, file);
    } catch (error) {
      removeQuietly(disk, kept);
      throw error;
    }
  }
  const taken = { do: "swap" as const, path: file, inode, other: kept, count: countEntries(deps, file) };
  try {
    await disk.syncFolder(dirname(file));
  } catch (error) {
    throw new RefusedAfter(taken, toDoneFailure(error, TAKING_BACK, IS_SWAPPED));
  }
  return taken;
}
