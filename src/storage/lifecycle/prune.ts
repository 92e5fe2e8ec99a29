/** Removes leftovers: to our trash, from where they can be restored, or for good. */

import { dirname } from "node:path";
import { Failure } from "../../core/failure.ts";
import { addTo } from "../../core/lists.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import type {
  Leftover,
  Leftovers,
  PrunedLeftovers,
  PruningManner,
  WantedLeftovers,
} from "../../core/ports/leftovers.ts";
import type { NewOperation } from "../../core/ports/operations.ts";
import { guardErrno } from "../fs/files.ts";
import { removeAll } from "../fs/folders.ts";
import { type LifecycleDeps, requireWritable, runExclusively } from "./exclusive.ts";
import { describeLeftover, describeOwner, inspectOwner, listLeftovers } from "./leftovers.ts";
import { moveTogether } from "./move.ts";
import { runRecorded } from "./recorded.ts";
import { removeStale } from "./stale-announcements.ts";
import { discardEmpty, getLeftoverPath, makeItem, type TrashRecord } from "./trash-items.ts";

const DOING = "removing leftovers";
export const FOR_GOOD = "It was removed for good, and nothing is left of it to bring back.";

export function makeLeftovers(deps: LifecycleDeps): Leftovers {
  return {
    list: (wanted, progress) => guardErrno("looking for leftovers", () => listLeftovers(deps, wanted, progress)),
    prune: (wanted, how, progress) => guardErrno(DOING, () => pruneLeftovers(deps, wanted, how, progress)),
  };
}

/** Returns an operation on files that belong to no single session. */
export function makeOperation(path: string, rest: Pick<NewOperation, "text" | "step" | "final">): NewOperation {
  return { kind: "prune", sessionId: "", sessionPath: path, name: null, ...rest };
}

function filesText(count: number): string {
  return `${count} leftover ${count === 1 ? "file" : "files"}`;
}

/** Removes one leftover under the lock of its session. */
type Removal = (leftover: Leftover) => Promise<void>;

async function pruneLeftovers(
  deps: LifecycleDeps,
  wanted: WantedLeftovers,
  { permanent, force }: PruningManner,
  progress?: Progress,
): Promise<PrunedLeftovers> {
  requireWritable(deps);
  const { disk } = deps;
  const all = await listLeftovers(deps, wanted);
  const kept = all.filter((one) => !mayGo(one, force));
  const going = all.filter((one) => mayGo(one, force));
  // Announcements need no restoring: they are removed for good, without a record.
  const announced = going.filter(isAnnounced);
  const gone = await removeEach(deps, announced, force, async (one) => removeStale(deps, one), kept, progress);
  const planned = going.filter((one) => !isAnnounced(one));
  if (planned.length === 0) return { operationId: null, itemPath: null, removed: gone, kept };
  const files = planned.map(({ path }) => path);
  let made: { operationId: string; itemPath: string | null } = { operationId: "", itemPath: null };
  const run = async ({ id, at }: { id: string; at: string }): Promise<Leftover[]> => {
    const record: TrashRecord = { sessionId: "", path: files[0], deletedAt: at, operationId: id, files };
    const item = permanent ? null : await makeItem(disk, deps.paths, "leftovers", record);
    made = { operationId: id, itemPath: item };
    const remove: Removal =
      item === null
        ? ({ path }) => unlink(deps, path)
        : ({ path }) => moveTogether(disk, [[path, getLeftoverPath({ item, record }, files.indexOf(path))]]);
    const removed = await removeEach(deps, planned, force, remove, kept, progress);
    if (item !== null) discardEmpty(disk, item);
    return removed;
  };
  const textOf = (moved: number): string =>
    permanent ? `Removed ${filesText(moved)} for good.` : `Moved ${filesText(moved)} to the trash.`;
  const begun = makeOperation(files[0], {
    text: textOf(files.length),
    ...(permanent ? { final: FOR_GOOD } : { step: { do: "prune", files } }),
  });
  const removed = await runRecorded(deps, begun, run, (gone) => {
    if (gone.length === 0) return null;
    const text = textOf(gone.length);
    if (made.itemPath === null) return { text };
    return { text, step: { do: "prune", files: gone.map(({ path }) => path), item: made.itemPath } };
  });
  if (removed.length === 0) return { operationId: null, itemPath: null, removed: gone, kept };
  return { ...made, removed: [...gone, ...removed], kept };
}

function isAnnounced({ kind }: Leftover): boolean {
  return kind === "announcement";
}

function mayGo({ keptBecause, isNeeded }: Leftover, force: boolean): boolean {
  return force ? !isNeeded : keptBecause === null;
}

/** Removes leftovers session by session, each with its session's lock. Adds the remaining ones to `kept`. */
async function removeEach(
  deps: LifecycleDeps,
  planned: readonly Leftover[],
  force: boolean,
  remove: Removal,
  kept: Leftover[],
  progress?: Progress,
): Promise<Leftover[]> {
  const removed: Leftover[] = [];
  const keptBefore = kept.length;
  const removeOne = async (leftover: Leftover): Promise<void> => {
    if (!mayGo(leftover, force)) kept.push(leftover);
    else {
      await guardErrno(DOING, () => remove(leftover));
      removed.push(leftover);
    }
    progress?.(removed.length + kept.length - keptBefore, planned.length);
  };
  const bySession = new Map<string | null, Leftover[]>();
  for (const one of planned) addTo(bySession, one.sessionPath, one);
  for (const [sessionPath, group] of bySession) {
    let rest = group;
    const removeAllOf = async (ones: readonly Leftover[]): Promise<void> => {
      for (const one of ones) {
        await removeOne(one);
        rest = rest.slice(1);
      }
    };
    // A failed removal does not stop the others.
    while (rest.length > 0)
      try {
        if (sessionPath === null) await removeAllOf(rest);
        else
          await runExclusively(deps, sessionPath, DOING, async (locked) =>
            removeAllOf(await inspect(deps, rest, locked)),
          );
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        // The lock, or the session, is the reason for all of them.
        const failed = error.name === "storage_failed" || error.name === "storage_full" ? rest.slice(0, 1) : rest;
        kept.push(...failed.map((one) => ({ ...one, keptBecause: error.message, isNeeded: true })));
        rest = rest.slice(failed.length);
      }
  }
  return removed;
}

/** Checks leftovers again under the lock of their session. */
async function inspect(
  deps: LifecycleDeps,
  leftovers: readonly Leftover[],
  { file, log }: Parameters<Parameters<typeof runExclusively>[3]>[0],
): Promise<Leftover[]> {
  const owner = leftovers.every(isAnnounced) ? describeOwner(log) : await inspectOwner(deps, log);
  const found: Leftover[] = [];
  for (const one of leftovers)
    if (one.sessionPath === file) found.push(await describeLeftover(deps, one, owner));
    else found.push({ ...one, keptBecause: `its session is ${file} now`, isNeeded: true });
  return found;
}

/** Removes a file, or a folder with its content, for good. */
async function unlink({ disk }: LifecycleDeps, path: string): Promise<void> {
  removeAll(disk, path);
  await disk.syncFolder(dirname(path));
}
