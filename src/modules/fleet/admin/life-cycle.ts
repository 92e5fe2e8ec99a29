/**
 * Operations on whole sessions of a fleet. The lease is taken first, so that no other process writes, and the copy here is
 * moved to the session's place; then the copy is changed, and finally the fleet. A process that is interrupted in between
 * leaves the fleet as before, and the next opening moves the copy back.
 */

import { basename, join } from "node:path";
import { describeUnchanged, Failure, isAway } from "../../../core/failure.ts";
import { parseSessionHeader, type SessionHeader, toReadableHeader } from "../../../core/format/entry.ts";
import type { FleetDescription, FleetEnd } from "../../../core/ports/fleet.ts";
import type { AdminQueries, SessionDisposition } from "../../../core/ports/fleet-admin-queries.ts";
import type { FoundInTrash, LifeCycle, MovedSession, Where } from "../../../core/ports/lifecycle.ts";
import { toConflictFailure } from "../../../core/session/history.ts";
import { getHeaderFacts, summariseLog } from "../../../storage/catalog/summary.ts";
import { useAndClose } from "../../../storage/fs/files.ts";
import type { SessionPlace } from "../../../storage/lifecycle/bring.ts";
import { getPreviousCwd } from "../../../storage/lifecycle/header-lines.ts";
import { beginsWith, computeEnd, NOTHING } from "../postgres/ends.ts";
import { getFailureReason, ignoreFailure, makeLockedFailure, makeUnfitFailure } from "../postgres/failures.ts";
import { resolveWholeId } from "../replica/arrival.ts";
import { makeElsewhereFailure } from "../replica/refusals.ts";
import { identifyFleet, uploadFrom } from "../replica/uploads.ts";
import { bringCopy, toWhereabouts, type WhereaboutsPlace } from "../replica/whereabouts.ts";

/** Deleted sessions that the trash lists, at most. */
const MOST_DELETED = 1000;

export interface LifeCyclePlace extends WhereaboutsPlace {
  readonly adminQueries: AdminQueries;
  /** Returns the id of the session at a path; undefined if it cannot be read. */
  idAt(file: string): string | undefined;
  /** Returns the ids of the session in a file, and of those within another agent's. */
  idsIn(file: string): readonly string[];
  isArchived(file: string): boolean;
  /** Returns the path that a copy of a session gets. */
  placeFor(header: SessionHeader): { readonly path: string };
  /** Fetches or updates a session, and moves it to its place unless it may be open, if the fleet has it. */
  arrive(sessionId: string, mayBeOpen: boolean): Promise<void>;
}

export function makeFleetLifeCycle(own: LifeCycle, place: LifeCyclePlace): LifeCycle {
  const move = async <T extends { readonly movedTo: string }>(file: string, run: (file: string) => Promise<T>) =>
    withSession(place, findCurrentPath(own, place, file), run, ({ movedTo }) => toPlaceDisposition(place, movedTo), {
      prepare: completeCopy,
      brings: true,
    });
  return {
    ...own,
    async delete(path, permanent, options) {
      let cause: unknown;
      const run = async (file: string) => {
        try {
          return await own.delete(file, permanent, options);
        } catch (error) {
          // The disk may refuse a later step. A file that another program removed before is not deleted.
          if (isUnknown(error) || !isGone(own, file)) throw error;
          cause = error;
          return undefined;
        }
      };
      const kept: SessionDisposition = { as: permanent ? "gone" : "deleted" };
      let older: ReadonlySet<string> = new Set();
      const prepare: Preparation = async (_, id, file, there) => {
        if (!permanent) return requireWhole(place, id, file, there);
        older = await findOlderCopies(own, place, id, file);
        return true;
      };
      const deleted = await withSession(place, findCurrentPath(own, place, path), run, () => kept, { prepare });
      if (deleted === undefined) throw cause;
      if (older.size > 0) await removeOlderCopies(own, older, deleted.sessionId);
      return deleted;
    },
    async restore(where) {
      await requireThere(place);
      try {
        const restored = await own.restore(where, (found) => requireFit(place, found));
        await reportReturn(place, restored.sessionId, restored.movedTo);
        return { ...restored, movedTo: await bringToPlace(place, restored.sessionId, restored.movedTo) };
      } catch (error) {
        // The session may be here already, or in no trash.
        const back = await restoreWithoutTrash(own, place, where, error);
        if (back) return back;
        throw error;
      }
    },
    async deletedElsewhere() {
      const here = new Set(own.trash().map(({ sessionId }) => sessionId));
      const deleted = (await place.adminQueries.deleted(MOST_DELETED)).filter(({ id }) => !here.has(id));
      return deleted.map(({ id, headerLine, bytes, messages, ...session }) => ({
        ...session,
        sessionId: id,
        sessionPath: place.placeFor(toReadableHeader(parseSessionHeader(headerLine) ?? { type: "session", id })).path,
        sizeBytes: bytes,
        messageCount: messages,
      }));
    },
    archive: (file, options) => move(file, (now) => own.archive(now, options)),
    unarchive: (file, options) => move(file, (now) => own.unarchive(now, options)),
    async relocate(file, cwd, allowMissing, options) {
      return withSession(
        place,
        findCurrentPath(own, place, file),
        (now) => own.relocate(now, cwd, allowMissing, options),
        ({ movedTo }) => toChangedDisposition(place, movedTo),
        { prepare: completeCopy, brings: true },
      );
    },
    async import(path, progress, group) {
      await requireThere(place);
      // The fleet's entries are fetched first, so that the import recognises the session.
      for (const id of place.idsIn(path)) await place.arrive(id, true).catch(ignoreDeleted);
      const imported = await own.import(path, progress, group);
      for (const { sessionId, sessionPath } of [imported, ...(imported.subagents ?? [])])
        await uploadImported(place, sessionId, sessionPath);
      return imported;
    },
    async takeBack(operation, as) {
      const { sessionId, step } = operation;
      if (sessionId === null) return own.takeBack(operation, as);
      await requireThere(place);
      let isDone = false;
      const run = async () => {
        const taken = await own.takeBack(operation, as);
        isDone = true;
        return taken;
      };
      try {
        if (step?.do === "appear")
          return await withSession(place, step.to, run, () => ({ as: "deleted" }), { prepare: requireWhole });
        if (step?.do === "move")
          return await withSession(place, step.to, run, ({ sessionPath = step.from }) =>
            toPlaceDisposition(place, sessionPath),
          );
        if (step?.do === "relocate" || step?.do === "return") {
          // An interrupted relocation has changed the header, but not the path.
          const file = step.do === "relocate" && place.idAt(step.to) === undefined ? step.from : step.to;
          const cwd = step.do === "relocate" ? getPreviousCwd(step) : step.cwd;
          return await withSession(
            place,
            file,
            run,
            ({ sessionPath = step.from }) => toChangedDisposition(place, sessionPath),
            {
              prepare: completeCopy,
              requireFact: (fact) => requireNotRelocated(place, file, fact, cwd),
            },
          );
        }
        if (step?.do !== "trash") return await run();
        const [here] = place.filesOf(sessionId);
        if (here !== undefined) throw toConflictFailure(`The session is at ${here} already.`, { path: here });
        const taken = await run();
        if (taken.sessionPath === undefined) return taken;
        await reportReturn(place, sessionId, taken.sessionPath);
        return { ...taken, sessionPath: await bringToPlace(place, sessionId, taken.sessionPath) };
      } catch (error) {
        if (!isDone || !(error instanceof Failure)) throw error;
        // The next undo takes another operation back.
        throw new Failure(error.name, error.text, error.details, { cause: error, retryable: false });
      }
    },
  };
}

/**
 * Throws already_exists if the session to restore has a file here, and storage_failed if only the trash has its lines and
 * lacks some.
 */
async function requireFit(place: LifeCyclePlace, { sessionId, file }: FoundInTrash): Promise<void> {
  const [path] = place.filesOf(sessionId);
  if (path !== undefined)
    throw new Failure("already_exists", `The session is at ${path} already.`, { sessionId, path });
  const end = await place.adminQueries.removedEnd(sessionId);
  if (end && !(await useAndClose(place.open(file), (log) => beginsWith(log, end))))
    throw makePartOnlyFailure(sessionId, file);
}

/** Throws ground_moved if the session's directory is neither that of its file nor the previous one. */
function requireNotRelocated(
  { open }: LifeCyclePlace,
  file: string,
  { headerLine }: SessionPlace,
  before?: string,
): void {
  const there = parseSessionHeader(headerLine)?.cwd;
  const here = useAndClose(open(file), ({ header }) => header.cwd);
  if (there === here || there === before) return;
  throw toConflictFailure(`Another machine gave it the working directory ${there} since.`, { cwd: there ?? null });
}

/** Moves a restored session to its place for all machines. Returns the path of its file. */
async function bringToPlace({ arrive, filesOf }: LifeCyclePlace, id: string, file: string): Promise<string> {
  try {
    await arrive(id, false);
  } catch (error) {
    // The next opening does so.
    if (!(error instanceof Failure)) throw error;
  }
  return filesOf(id)[0] ?? file;
}

/**
 * Restores a session whose file is here, as after an interrupted restore, or that is in no trash here. Returns undefined if
 * there is nothing to restore.
 */
async function restoreWithoutTrash(
  own: LifeCycle,
  place: LifeCyclePlace,
  where: Where,
  error: unknown,
): Promise<MovedSession | undefined> {
  const isThere = error instanceof Failure && error.name === "already_exists";
  if (!isThere && !isUnknown(error)) return undefined;
  const path = findFile(own, where);
  const sessionId = isThere
    ? (error.details.sessionId as string | undefined)
    : (where.sessionId ?? (path === undefined ? undefined : place.idAt(path)));
  if (sessionId === undefined) return undefined;
  const [file] = place.filesOf(sessionId);
  if (file !== undefined) {
    if (!(await reportReturn(place, sessionId, file))) return undefined;
    return { sessionId, sessionPath: file, movedTo: await bringToPlace(place, sessionId, file) };
  }
  if (isThere) return undefined;
  const restored = await fetchAndRestore(own, place, sessionId);
  if (restored) return restored;
  const { adminQueries } = place;
  const idsBeginning = adminQueries.deletedIdsBeginning.bind(adminQueries);
  const whole = await resolveWholeId({ idsBeginning }, sessionId);
  return whole === sessionId ? undefined : fetchAndRestore(own, place, whole);
}

/**
 * Restores in the fleet a session that came back from the trash. If its lines were removed there, this file provides them
 * again, unless it lacks some: another machine may have written more, and has that in its own trash. Returns whether it was
 * deleted there.
 */
async function restoreInFleet(
  { fleet, adminQueries, ...place }: LifeCyclePlace,
  id: string,
  file: string,
): Promise<boolean> {
  if (await adminQueries.restore(id)) return true;
  const end = await adminQueries.removedEnd(id);
  const log = place.open(file);
  try {
    if (end && !(await beginsWith(log, end))) throw makePartOnlyFailure(id, file);
    // A session that the fleet never had stays local.
    if (!end && (await fleet.look(id)) === null) return false;
    if (end && !(await adminQueries.beginAgain(id, log.headerLine, end)))
      throw away("another machine changes it just now");
  } finally {
    log.close();
  }
  // After a failure, the first write uploads the entries.
  if (!end) await push(place, file).catch(ignoreFailure);
  else {
    await push(place, file);
    // During an outage a machine keeps its entries for later; until then the session stays deleted for others.
    if (end.entries > 0 && (await fleet.look(id)) === null) throw away("its lines are not there yet");
  }
  return end !== null;
}

/** The failure of a restore from a file that lacks entries. */
class PartOnly extends Failure {}

function makePartOnlyFailure(sessionId: string, sessionPath: string): Failure {
  return new PartOnly(
    "storage_failed",
    describeUnchanged(
      "It stays deleted, because the fleet had entries that the file here lacks.",
      "Restore it on the machine whose trash has all of it, or open the file by its path and clone it.",
    ),
    { fleet: true, sessionId, sessionPath },
    { retryable: false },
  );
}

/** Fetches a session that the fleet has, and restores it there if it is deleted. Returns undefined if it is unknown. */
async function fetchAndRestore(
  own: LifeCycle,
  { fleet, adminQueries, arrive }: LifeCyclePlace,
  sessionId: string,
): Promise<MovedSession | undefined> {
  // It is restored already if an earlier restore was interrupted before its lines arrived.
  if (!(await adminQueries.restore(sessionId)) && (await fleet.look(sessionId)) === null) return undefined;
  await arrive(sessionId, false);
  const sessionPath = own.locate({ sessionId });
  return { sessionId, sessionPath, movedTo: sessionPath };
}

/** Throws an error unless it is that of a deleted session. */
function ignoreDeleted(error: unknown): void {
  if (!isUnknown(error)) throw error;
}

function isUnknown(error: unknown): boolean {
  return error instanceof Failure && error.name === "session_not_found";
}

/** Returns the file of a session that is not in the trash; undefined if it does not exist. */
function findFile(own: LifeCycle, where: Where): string | undefined {
  try {
    return own.locate(where);
  } catch (error) {
    if (error instanceof Failure) return undefined;
    throw error;
  }
}

/** Returns whether the path of a session is free now. */
function isGone(own: LifeCycle, sessionPath: string): boolean {
  try {
    own.locate({ sessionPath });
    return false;
  } catch (error) {
    return isUnknown(error);
  }
}

/**
 * Returns the current path of a session: another process of this machine may have moved it since it was found, and an
 * operation applies to all machines. Throws session_not_found.
 */
function findCurrentPath(own: LifeCycle, { idAt }: LifeCyclePlace, file: string): string {
  return idAt(file) === undefined ? own.locate({ sessionPath: file }) : file;
}

/** Returns how a session is kept that is at a path. */
function toPlaceDisposition({ isArchived }: LifeCyclePlace, file: string): SessionDisposition {
  return { as: "there", archived: isArchived(file) };
}

/** Returns how a session is kept whose header may be another one now. */
function toChangedDisposition({ open, isArchived }: LifeCyclePlace, file: string): SessionDisposition {
  const log = open(file);
  try {
    const { name, first: firstMessage } = summariseLog(log);
    const { cwd, parentSession, timestamp } = getHeaderFacts(log.header);
    const description: FleetDescription = { cwd, name, firstMessage, parentSession, timestamp };
    return { as: "changed", archived: isArchived(file), headerLine: log.headerLine, description };
  } finally {
    log.close();
  }
}

/**
 * Work on the copy at a path before an operation; the fleet has the session up to the given end. Returns whether the file is
 * a copy of it: a file of another session with its id changes nothing in the fleet.
 */
type Preparation = (place: LifeCyclePlace, id: string, file: string, there: FleetEnd) => Promise<boolean>;

/** Precautions before an operation on a session that the fleet has. */
interface Precautions {
  readonly prepare?: Preparation;
  /** True if the copy is first moved to the place of its session. */
  readonly brings?: boolean;
  /** Throws if the session's state does not allow the operation. */
  requireFact?(fact: SessionPlace): void;
}

/** Runs an operation on a session while no other process can write to it, then applies it to the fleet. */
async function withSession<T>(
  place: LifeCyclePlace,
  file: string,
  run: (file: string) => Promise<T>,
  keptAs: (result: T) => SessionDisposition,
  { prepare, brings = false, requireFact }: Precautions = {},
): Promise<T> {
  const { fleet, adminQueries } = place;
  const id = place.idAt(file);
  if (id !== undefined) await uploadPendingFirst(place, id, file);
  const taking = id === undefined ? undefined : await fleet.take(id, 0);
  if (taking?.kind === "away") throw away(taking.reason);
  if (id !== undefined && taking?.kind === "held") throw makeLockedFailure(taking.holder, id);
  // A refused process knows nothing of the fleet's session.
  if (taking?.kind === "unfit" && !taking.isOfValue) throw makeUnfitFailure(taking.reason);
  // A session that the fleet lacks, cannot have, or has deleted is handled as a local file.
  if (id === undefined || taking?.kind !== "taken") return run(file);
  let isCopy = true;
  let result: T;
  try {
    if (prepare) isCopy = await prepare(place, id, file, taking.end);
    const fact = isCopy && (brings || requireFact) ? await fleet.look(id) : null;
    if (fact) requireFact?.(toWhereabouts(fact));
    result = await run(fact && brings ? await bringCopy(place, file, toWhereabouts(fact)) : file);
  } catch (error) {
    await fleet.release(id, taking.epoch);
    throw error;
  }
  if (!isCopy) {
    await fleet.release(id, taking.epoch);
    return result;
  }
  let kept: SessionDisposition | undefined;
  let cause: unknown;
  try {
    kept = keptAs(result);
    if (await adminQueries.keep(id, taking.epoch, kept)) return result;
  } catch (error) {
    cause = error;
  }
  await fleet.release(id, taking.epoch);
  throw new Failure(
    "storage_failed",
    `Done on this machine, but the fleet's database did not confirm it: other machines may show the old state. Repeat it with ${nameRepeatingMethod(kept)}, unless a list shows it done.`,
    { fleet: true, sessionId: id },
    { cause },
  );
}

/** Returns the method that repeats the operation, also if it is done here. The file may be unreadable now. */
function nameRepeatingMethod(kept: SessionDisposition | undefined): string {
  if (kept === undefined) return "relocate_session to the directory that it has here";
  if (kept.as === "there") return kept.archived ? "archive_session" : "unarchive_session";
  if (kept.as === "changed") return `relocate_session to ${kept.description.cwd}`;
  return kept.as === "gone" ? "delete_session with permanent" : "delete_session";
}

/**
 * Restores a deleted session in the fleet after it came back here. Returns whether it was deleted there. Throws
 * storage_failed.
 */
async function reportReturn(place: LifeCyclePlace, sessionId: string, path: string): Promise<boolean> {
  try {
    return await restoreInFleet(place, sessionId, path);
  } catch (error) {
    if (!(error instanceof Failure) || error instanceof PartOnly) throw error;
    const { retryable } = error;
    const sentence = retryable
      ? "Restored on this machine, but the fleet's database did not confirm it: other machines may show it as deleted. Restore it again when the database is reachable, unless a list shows it."
      : `Restored on this machine, but not in the fleet, so that other machines may show it as deleted: ${getFailureReason(error)} When that is resolved, restore it again, unless a list shows it.`;
    const details = { fleet: true, sessionId, sessionPath: path };
    throw new Failure("storage_failed", sentence, details, { cause: error, retryable });
  }
}

/** Completes the local copy, so that its row is not overwritten by an older state, or by lines of another session. */
async function completeCopy({ open }: LifeCyclePlace, _id: string, file: string, there: FleetEnd): Promise<boolean> {
  const isWhole = (): Promise<boolean> => useAndClose(open(file), async (log) => beginsWith(log, there));
  if (await isWhole()) return true;
  try {
    await useAndClose(open(file), async (log) => {
      // All of it is compared: a long one may have other lines, too.
      await log.replica?.sync(Number.POSITIVE_INFINITY);
    });
  } catch (error) {
    if (error instanceof Failure && error.name === "read_only") return false;
    throw error;
  }
  return isWhole();
}

/** Completes the copy at a path. Throws storage_failed unless it has all of the fleet's entries. */
async function requireWhole({ open }: LifeCyclePlace, id: string, file: string, there: FleetEnd) {
  return useAndClose(open(file), async (log) => {
    if (log.foreign) return true;
    if (log.nodes.count < there.entries) await log.replica?.sync();
    await log.replica?.fetchAttachments();
    if (await beginsWith(log, there)) return true;
    throw new Failure(
      "storage_failed",
      describeUnchanged(
        "The local copy is incomplete, and the trash would be, too.",
        "Open the session to sync it, then delete it; permanent deletes it for good.",
      ),
      { fleet: true, sessionId: id, sessionPath: file },
    );
  });
}

/** Returns the items of this machine's trash with a session that the copy at a path continues. */
async function findOlderCopies(own: LifeCycle, { open }: LifeCyclePlace, id: string, file: string) {
  const older = new Set<string>();
  for (const { itemPath, sessionPath, sessionId } of own.trash()) {
    if (sessionId !== id) continue;
    try {
      const end = useAndClose(open(join(itemPath, basename(sessionPath))), (log) =>
        computeEnd(log, log.nodes.count, NOTHING),
      );
      if (await useAndClose(open(file), (log) => beginsWith(log, end))) older.add(itemPath);
    } catch (error) {
      // It cannot be compared, and stays.
      if (!(error instanceof Failure)) throw error;
    }
  }
  return older;
}

/** Removes items of this machine's trash after their session was deleted for good. Throws storage_failed. */
async function removeOlderCopies(own: LifeCycle, older: ReadonlySet<string>, sessionId: string): Promise<void> {
  let cause: unknown;
  try {
    if ((await own.emptyTrash(({ itemPath }) => older.has(itemPath))).kept.length === 0) return;
  } catch (error) {
    cause = error;
  }
  const sentence =
    "The session is deleted for good, but older copies of it are still in the trash of this machine. empty_trash removes them.";
  throw new Failure("storage_failed", sentence, { sessionId }, { cause, retryable: false });
}

/** Uploads pending entries. Throws storage_failed if the fleet refuses them, or they are for another fleet. */
async function uploadPendingFirst({ fleet, journal, open }: LifeCyclePlace, id: string, file: string): Promise<void> {
  let cause: unknown;
  try {
    if (journal.findPendingElsewhere(id)) await identifyFleet(fleet);
    for (const at of journal.listPendingFiles(id, file)) await uploadFrom({ journal, openCopy: open }, id, at);
  } catch (error) {
    if (!isAway(error)) throw error;
    cause = error;
  }
  const other = journal.findPendingElsewhere(id);
  if (other) throw makeElsewhereFailure(other, id);
  if (journal.listPendingFiles(id, file).length === 0) return;
  throw new Failure(
    "storage_failed",
    describeUnchanged(
      "This machine alone has some entries of the session, and uploading them failed.",
      "Try again when the database is reachable.",
    ),
    { fleet: true, sessionId: id },
    { cause },
  );
}

/** Uploads an imported session. Throws the reason if that fails. */
async function uploadImported(place: LifeCyclePlace, sessionId: string, sessionPath: string): Promise<void> {
  try {
    await push(place, sessionPath);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    const isOpen = isAway(error) || error.name === "outcome_unknown";
    const sentence = isOpen
      ? "It is on this machine now, and the fleet's database has not confirmed it. Import it again when the database is there."
      : `It is on this machine now, and the fleet did not take it: ${getFailureReason(error)}`;
    const details = { ...error.details, fleet: true, sessionId, sessionPath };
    const retryable = isOpen || error.retryable;
    throw new Failure(isOpen ? "storage_failed" : error.name, sentence, details, { cause: error, retryable });
  }
}

async function push({ open }: Pick<LifeCyclePlace, "open">, file: string): Promise<void> {
  await useAndClose(open(file), async (log) => {
    await log.replica?.replicate(log.nodes.count);
  });
}

async function requireThere({ fleet }: LifeCyclePlace): Promise<void> {
  try {
    await fleet.look("");
  } catch (error) {
    // A permanent refusal is reported as such, with advice.
    if (!isAway(error)) throw error;
    const { cause, message } = error as Failure;
    throw away(cause instanceof Error ? cause.message : message);
  }
}

function away(reason: string): Failure {
  return new Failure(
    "storage_failed",
    describeUnchanged(`The fleet's database cannot be reached (${reason}), and has the session as it is.`),
    { fleet: true },
  );
}
