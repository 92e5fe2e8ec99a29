/**
 * Operations on whole sessions that a fleet has, too. The session is taken first, so that nobody writes to it meanwhile;
 * then the copy here is moved, and at last the fleet is told. Whoever is interrupted in between has the session here in
 * the trash or the archive, and in the fleet as before: the same operation again finishes it.
 */

import { Failure } from "../../core/failure.ts";
import { sameBytes } from "../../core/json/json.ts";
import type { Fleet, FleetDescription, FleetEnd, JournaledSession } from "../../core/ports/fleet.ts";
import type { FleetKeeper, Kept } from "../../core/ports/fleet-keeper.ts";
import type { LifeCycle, MovedSession, Where } from "../../core/ports/lifecycle.ts";
import type { Log } from "../../core/ports/store.ts";
import { headerFacts, summaryOfLog } from "../catalog/summary.ts";
import { closing } from "../fs/files.ts";
import { FileLog } from "../log/file-log.ts";
import { fetchMissing } from "./attachments.ts";
import { FleetCopy } from "./copy.ts";
import { endInTurns, isSameEnd, NOTHING } from "./ends.ts";
import { isAway, locked, reasonOf, unfit } from "./failures.ts";
import { giveFrom, meet } from "./giving.ts";
import type { Journal } from "./journal.ts";

export interface LifeCyclePlace {
  readonly fleet: Fleet;
  readonly journal: Journal;
  readonly keeper: FleetKeeper;
  /** Returns the id of the session at a path; undefined where it cannot be read. */
  idAt(file: string): string | undefined;
  open(file: string): Log;
  /** Returns the ids of the session in a file, and of those within another agent's. */
  idsIn(file: string): readonly string[];
  isArchived(file: string): boolean;
  /** Brings a session here, if the fleet has it. */
  arrive(sessionId: string): Promise<void>;
}

export function fleetLifeCycle(own: LifeCycle, place: LifeCyclePlace): LifeCycle {
  const move = async <T extends { readonly movedTo: string }>(
    file: string,
    run: (file: string) => Promise<T>,
  ): Promise<T> => {
    const now = whereNow(own, place, file);
    return withSession(
      place,
      now,
      () => run(now),
      ({ movedTo }) => whereItIs(place, movedTo),
    );
  };
  return {
    ...own,
    async delete(path, permanent, wishes) {
      const file = whereNow(own, place, path);
      let cause: unknown;
      const run = async () => {
        try {
          return await own.delete(file, permanent, wishes);
        } catch (error) {
          // The disk may refuse what comes after. One that another program took away before is not deleted.
          if (isUnknown(error) || !isGone(own, file)) throw error;
          cause = error;
          return undefined;
        }
      };
      const kept: Kept = { as: permanent ? "gone" : "deleted" };
      const deleted = await withSession(place, file, run, () => kept, permanent ? undefined : requireWhole);
      if (deleted === undefined) throw cause;
      return deleted;
    },
    async restore(where) {
      await requireThere(place);
      let restored: MovedSession;
      try {
        restored = await own.restore(where);
      } catch (error) {
        // One whose file is here already, as after a restore that was interrupted; the trash may have an older state of it.
        const file = fileAt(own, where);
        const sessionId = file === undefined ? undefined : place.idAt(file);
        if (!isUnknown(error) && !isInTheWay(error, sessionId)) throw error;
        if (file !== undefined && sessionId !== undefined && (await toldOfReturn(place, sessionId, file)))
          return { sessionId, sessionPath: file, movedTo: file };
        // Or one that the fleet deleted, because nobody wrote to it, and that is in no trash.
        const fetched = file === undefined ? await fetchedBack(own, place, where) : undefined;
        if (fetched) return fetched;
        throw error;
      }
      await toldOfReturn(place, restored.sessionId, restored.movedTo);
      return restored;
    },
    async archive(file, wishes) {
      const mayBeThere = await isElsewhere(place, file, false);
      return move(file, (now) => own.archive(now, { ...wishes, mayBeThere }));
    },
    async unarchive(file, wishes) {
      const mayBeThere = await isElsewhere(place, file, true);
      return move(file, (now) => own.unarchive(now, { ...wishes, mayBeThere }));
    },
    async relocate(file, cwd, allowMissing) {
      const mayBeThere = await hasOtherHeader(place, file);
      const now = whereNow(own, place, file);
      return withSession(
        place,
        now,
        () => own.relocate(now, cwd, allowMissing, mayBeThere),
        ({ movedTo }) => asItIs(place, movedTo),
        bringRest,
      );
    },
    async import(path, progress) {
      await requireThere(place);
      // What the fleet has of it comes first, so that it is known again.
      for (const id of place.idsIn(path)) await place.arrive(id);
      const imported = await own.import(path, progress);
      for (const { sessionId, sessionPath } of [imported, ...(imported.subagents ?? [])])
        await givenTo(place, sessionId, sessionPath);
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
          return await withSession(place, step.to, run, () => ({ as: "deleted" }), requireWhole);
        if (step?.do === "move")
          return await withSession(place, step.to, run, ({ sessionPath = step.from }) => whereItIs(place, sessionPath));
        if (step?.do === "relocate" || step?.do === "return") {
          // One that was cut off has another header, and has not moved yet.
          const file = step.do === "relocate" && place.idAt(step.to) === undefined ? step.from : step.to;
          return await withSession(
            place,
            file,
            run,
            ({ sessionPath = step.from }) => asItIs(place, sessionPath),
            bringRest,
          );
        }
        const taken = await run();
        if (step?.do === "trash" && taken.sessionPath !== undefined)
          await toldOfReturn(place, sessionId, taken.sessionPath);
        return taken;
      } catch (error) {
        if (!isDone || !(error instanceof Failure)) throw error;
        // The next undo takes another operation back.
        throw new Failure(error.name, error.message, error.details, { cause: error, retryable: false });
      }
    },
  };
}

/** Returns whether the fleet has a session in the archive, or not there, while its copy here is at the other place. */
async function isElsewhere(
  { fleet, idAt, isArchived }: LifeCyclePlace,
  file: string,
  archived: boolean,
): Promise<boolean> {
  if (isArchived(file) === archived) return false;
  const id = idAt(file);
  // Where the fleet cannot be asked, taking the session says so.
  const there = id === undefined ? null : await fleet.look(id).catch(() => null);
  return there?.archived === archived;
}

/** Returns whether the fleet has a session with another header than its copy here, which has all entries of it. */
async function hasOtherHeader({ fleet, idAt, open }: LifeCyclePlace, file: string): Promise<boolean> {
  const id = idAt(file);
  const there = id === undefined ? null : await fleet.look(id).catch(() => null);
  if (there === null) return false;
  return closing(open(file), async (log) => !sameBytes(there.headerLine, log.headerLine) && hasAll(log, there.end));
}

/**
 * Tells the fleet that a session came back from the trash. Where its lines were removed there, this file gives them again, if
 * it has all of them: another machine may have written more, and has that in its own trash. Returns whether it was deleted
 * there, and is not any more.
 */
async function broughtBack({ fleet, keeper, ...place }: LifeCyclePlace, id: string, file: string): Promise<boolean> {
  const archived = place.isArchived(file);
  if (await keeper.restore(id, archived)) return true;
  const end = await keeper.removedEnd(id);
  const log = place.open(file);
  try {
    if (end && !(await hasAll(log, end))) throw partOnly(log);
    // One that the fleet never had stays here.
    if (!end && (await fleet.look(id)) === null) return false;
    if (end && !(await keeper.beginAgain(id, log.headerLine, archived, end)))
      throw away("another machine changes it just now");
  } finally {
    log.close();
  }
  if (!end) await pushed(place, file);
  else {
    await push(place, file);
    // Alone, a machine keeps for later what it gives; until then the session stays deleted for others.
    if (end.entries > 0 && (await fleet.look(id)) === null) throw away("its lines are not there yet");
  }
  return end !== null;
}

/** The failure that says that a session is back here alone. */
class PartlyBack extends Failure {}

function partOnly({ file, header }: Log): Failure {
  return new PartlyBack(
    "storage_failed",
    "It is back on this machine, and stays deleted for the others, because the fleet had entries that this file lacks. Restore it on the machine whose trash has all of it, or clone it here.",
    { fleet: true, sessionId: header.id, sessionPath: file },
    { retryable: false },
  );
}

/** Brings a session here whose rows the fleet has, and back if it is deleted. Returns undefined where there is none. */
async function fetchedBack(
  own: LifeCycle,
  { fleet, keeper, arrive }: LifeCyclePlace,
  { sessionId }: Where,
): Promise<MovedSession | undefined> {
  if (sessionId === undefined) return undefined;
  // It is there already where a restore was interrupted before its lines came.
  if (!(await keeper.restore(sessionId, false)) && (await fleet.look(sessionId)) === null) return undefined;
  await arrive(sessionId);
  const sessionPath = own.locate({ sessionId });
  return { sessionId, sessionPath, movedTo: sessionPath };
}

function isUnknown(error: unknown): boolean {
  return error instanceof Failure && error.name === "session_not_found";
}

/** Returns whether something is in the way of this session. */
function isInTheWay(error: unknown, sessionId: string | undefined): boolean {
  return error instanceof Failure && error.name === "already_exists" && error.details.sessionId === sessionId;
}

/** Returns the file of a session that is not in the trash; undefined where there is none. */
function fileAt(own: LifeCycle, where: Where): string | undefined {
  try {
    return own.locate(where);
  } catch (error) {
    if (error instanceof Failure) return undefined;
    throw error;
  }
}

/** Returns whether nothing is at the path of a session any more. */
function isGone(own: LifeCycle, sessionPath: string): boolean {
  try {
    own.locate({ sessionPath });
    return false;
  } catch (error) {
    return isUnknown(error);
  }
}

/**
 * Returns the path of a session that was found at one: another process of this machine may have moved it since, and what is
 * done to it where it is now is for all machines, too. Throws session_not_found.
 */
function whereNow(own: LifeCycle, { idAt }: LifeCyclePlace, file: string): string {
  return idAt(file) === undefined ? own.locate({ sessionPath: file }) : file;
}

async function hasAll(log: Log, end: FleetEnd): Promise<boolean> {
  const here = await endInTurns(log, end.entries, NOTHING);
  return here !== null && isSameEnd(here, end);
}

/** Returns how a session is kept that is at a path. */
function whereItIs({ isArchived }: LifeCyclePlace, file: string): Kept {
  return { as: "there", archived: isArchived(file) };
}

/** Returns how a session is kept whose header may be another one now. */
function asItIs({ open, isArchived }: LifeCyclePlace, file: string): Kept {
  const log = open(file);
  try {
    const { name, first: firstMessage } = summaryOfLog(log);
    const { cwd, parentSession, timestamp } = headerFacts(log.header);
    const description: FleetDescription = { cwd, name, firstMessage, parentSession, timestamp };
    return { as: "changed", archived: isArchived(file), headerLine: log.headerLine, description };
  } finally {
    log.close();
  }
}

/**
 * The work on the copy at a path before an operation, if the fleet has this much of the session. Returns whether the file is
 * a copy of it: of another one with its id the fleet is told nothing.
 */
type Preparation = (place: LifeCyclePlace, id: string, file: string, there: FleetEnd) => Promise<boolean>;

/** Runs an operation on a session while nobody else can write to it, and tells the fleet. */
async function withSession<T>(
  place: LifeCyclePlace,
  file: string,
  run: () => Promise<T>,
  keptAs: (result: T) => Kept,
  prepare?: Preparation,
): Promise<T> {
  const { fleet, keeper } = place;
  const id = place.idAt(file);
  if (id !== undefined) await giveOwed(place, id, file);
  const taking = id === undefined ? undefined : await fleet.take(id, 0);
  if (taking?.kind === "away") throw away(taking.reason);
  if (taking?.kind === "held") throw locked(taking.holder);
  // Who may not ask knows nothing of what the fleet has.
  if (taking?.kind === "unfit" && !taking.isOfValue) throw unfit(taking.reason);
  // What the fleet lacks, cannot have, or has deleted already, is a file like any other.
  if (id === undefined || taking?.kind !== "taken") return run();
  let isCopy = true;
  let result: T;
  try {
    if (prepare) isCopy = await prepare(place, id, file, taking.end);
    result = await run();
  } catch (error) {
    await fleet.release(id, taking.epoch);
    throw error;
  }
  if (!isCopy) {
    await fleet.release(id, taking.epoch);
    return result;
  }
  let kept: Kept | undefined;
  let cause: unknown;
  try {
    kept = keptAs(result);
    if (await keeper.keep(id, taking.epoch, kept)) return result;
  } catch (error) {
    cause = error;
  }
  await fleet.release(id, taking.epoch);
  throw new Failure(
    "storage_failed",
    `It is done on this machine, and the fleet's database has not confirmed it: other machines may have the session as before. Do it again with ${whatDoes(kept)}, unless a list shows it done.`,
    { fleet: true, sessionId: id },
    { cause },
  );
}

/** Returns the method that has a session kept so, also where it is so on this machine. What is changed may be unreadable now. */
function whatDoes(kept: Kept | undefined): string {
  if (kept === undefined) return "relocate_session to the directory that it has here";
  if (kept.as === "there") return kept.archived ? "archive_session" : "unarchive_session";
  if (kept.as === "changed") return `relocate_session to ${kept.description.cwd}`;
  return kept.as === "gone" ? "delete_session with permanent" : "delete_session";
}

/** Tells the fleet of a deleted session that is here again. Returns whether it was deleted there. Throws storage_failed. */
async function toldOfReturn(place: LifeCyclePlace, sessionId: string, path: string): Promise<boolean> {
  try {
    return await broughtBack(place, sessionId, path);
  } catch (error) {
    if (!(error instanceof Failure) || error instanceof PartlyBack) throw error;
    const { retryable } = error;
    const sentence = retryable
      ? "It is back on this machine, and the fleet's database has not confirmed it: other machines may have it as deleted. When the database is there, restore it again, unless a list shows it."
      : `It is back on this machine, and the fleet was not told of it, so that other machines may have it as deleted: ${reasonOf(error)} When that is mended, restore it again, unless a list shows it.`;
    const details = { fleet: true, sessionId, sessionPath: path };
    throw new Failure("storage_failed", sentence, details, { cause: error, retryable });
  }
}

/** Has the copy at a path get what the fleet has, so that the fleet is told of nothing older, and of no lines but its own. */
async function bringRest({ open }: LifeCyclePlace, _id: string, file: string, there: FleetEnd): Promise<boolean> {
  const isWhole = (): Promise<boolean> => closing(open(file), async (log) => hasAll(log, there));
  if (await isWhole()) return true;
  try {
    await closing(open(file), async (log) => {
      // All of it is compared: a long one may have other lines, too.
      if (log instanceof FileLog && log.outside instanceof FleetCopy)
        await log.outside.follow(Number.POSITIVE_INFINITY);
    });
  } catch (error) {
    if (error instanceof Failure && error.name === "read_only") return false;
    throw error;
  }
  return isWhole();
}

/** Brings what the copy at a path lacks. Throws storage_failed unless it has all that the fleet has. */
async function requireWhole({ fleet, open }: LifeCyclePlace, id: string, file: string, there: FleetEnd) {
  return closing(open(file), async (log) => {
    if (!(log instanceof FileLog)) return true;
    if (log.nodes.count < there.entries) await log.outside?.follow();
    await fetchMissing(fleet, log, id);
    if (await hasAll(log, there)) return true;
    throw new Failure(
      "storage_failed",
      "Its file here has not all that the fleet has, and nor would the trash. Nothing was changed. Open the session, which mends that, and delete it then; permanent deletes it for good.",
      { fleet: true, sessionId: id, sessionPath: file },
    );
  });
}

/** Gives the fleet what was acknowledged while it was away. Throws storage_failed where it does not take that, or another has to. */
async function giveOwed({ fleet, journal, open }: LifeCyclePlace, id: string, file: string): Promise<void> {
  let cause: unknown;
  try {
    if (journal.owedToOthers(id)) await meet(fleet);
    for (const at of journal.owedBy(id, file)) await giveFrom({ journal, openCopy: open }, id, at);
  } catch (error) {
    if (!isAway(error)) throw error;
    cause = error;
  }
  const other = journal.owedToOthers(id);
  if (other) throw owedElsewhere(other, id);
  if (journal.owedBy(id, file).length === 0) return;
  throw new Failure(
    "storage_failed",
    "It has entries that only this machine has, because the fleet's database was away, and the fleet did not take them now. Nothing was changed; try again when the database is there.",
    { fleet: true, sessionId: id },
    { cause },
  );
}

/** Returns the failure of an operation on a session with entries that only this machine has, for another fleet. */
function owedElsewhere({ fleet, sessionPath, unreadable }: JournaledSession, sessionId: string): Failure {
  const sentence =
    unreadable === undefined
      ? `It has entries for another fleet, which only this machine has. Nothing was changed. fleet push with the address of that one gives them to it, ${fleet?.address}; try again then.`
      : `It may have entries for another fleet, which only this machine has: the note at ${sessionPath} cannot be read (${unreadable}). Nothing was changed. fleet push says what to do with it.`;
  return new Failure("storage_failed", sentence, { fleet: true, sessionId }, { retryable: false });
}

/** Gives the fleet what an import brought. Throws why the fleet has not got it. */
async function givenTo(place: LifeCyclePlace, sessionId: string, sessionPath: string): Promise<void> {
  try {
    await push(place, sessionPath);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    const isOpen = isAway(error) || error.name === "outcome_unknown";
    const sentence = isOpen
      ? "It is on this machine now, and the fleet's database has not confirmed it. Import it again when the database is there."
      : `It is on this machine now, and the fleet did not take it: ${reasonOf(error)}`;
    const details = { ...error.details, fleet: true, sessionId, sessionPath };
    const retryable = isOpen || error.retryable;
    throw new Failure(isOpen ? "storage_failed" : error.name, sentence, details, { cause: error, retryable });
  }
}

/** Gives the fleet what it lacks of a session. Where that fails, the first write to it does so. */
async function pushed(place: Pick<LifeCyclePlace, "open">, file: string): Promise<void> {
  try {
    await push(place, file);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
  }
}

async function push({ open }: Pick<LifeCyclePlace, "open">, file: string): Promise<void> {
  await closing(open(file), async (log) => {
    if (log instanceof FileLog) await log.outside?.push(log.nodes.count);
  });
}

async function requireThere({ fleet }: LifeCyclePlace): Promise<void> {
  try {
    await fleet.look("");
  } catch (error) {
    // What lasts is told as such, with what to do about it.
    if (!isAway(error)) throw error;
    const { cause, message } = error as Failure;
    throw away(cause instanceof Error ? cause.message : message);
  }
}

function away(reason: string): Failure {
  return new Failure(
    "storage_failed",
    `The fleet's database cannot be reached (${reason}), and has the session as it is. Nothing was changed; try again.`,
    { fleet: true },
  );
}
