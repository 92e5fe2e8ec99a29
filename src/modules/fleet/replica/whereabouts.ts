/**
 * The place of a session, and whether it is deleted: one fact for all machines, in the database. Each machine moves its own
 * files accordingly when it opens the session or changes it as a whole, except files with more entries than the fleet.
 */

import { Failure } from "../../../core/failure.ts";
import type { Fleet, FleetEnd, FleetSession } from "../../../core/ports/fleet.ts";
import type { AdminQueries } from "../../../core/ports/fleet-admin-queries.ts";
import type { Log } from "../../../core/ports/store.ts";
import { useAndClose } from "../../../storage/fs/files.ts";
import type { SessionPlace } from "../../../storage/lifecycle/bring.ts";
import { beginsWith, fetchEnd } from "../postgres/ends.ts";
import { ignoreFailure } from "../postgres/failures.ts";
import type { Journal } from "./journal.ts";

/** The session files of this machine, for moving them to their places. */
export interface SessionFiles {
  /** Returns the files in the session folders and the archive whose session has an id. */
  filesOf(sessionId: string): readonly string[];
  open(file: string): Log;
  /** See `isInPlace`. */
  isInPlace(file: string, place: SessionPlace): boolean;
  /** See `moveToPlace`. */
  bringTo(file: string, place: SessionPlace, isMeant: (log: Log) => Promise<boolean>): Promise<string>;
  /** See `trashIf`. */
  moveToTrash(file: string, isMeant: (log: Log) => Promise<boolean>): Promise<boolean>;
}

export interface WhereaboutsPlace extends SessionFiles {
  readonly fleet: Fleet;
  /** Missing if deleted sessions are not looked up. */
  readonly adminQueries?: AdminQueries;
  readonly journal: Journal;
}

/** Place and state of a session for all machines. */
interface Whereabouts extends SessionPlace {
  readonly isDeleted: boolean;
  /** True if it is deleted, and the fleet has removed its lines. */
  readonly isRemoved: boolean;
  readonly end: FleetEnd;
}

/** Returns the place of a session; null if the fleet neither has nor has deleted it. Throws storage_failed. */
export async function readWhereabouts(
  place: Pick<WhereaboutsPlace, "fleet" | "adminQueries">,
  id: string,
): Promise<Whereabouts | null> {
  const there = await place.fleet.look(id);
  return there ? toWhereabouts(there) : readDeletion(place, id);
}

/** Returns the whereabouts of a session that the fleet has. */
export function toWhereabouts({ headerLine, end, archived = false }: FleetSession): Whereabouts {
  return { headerLine, end, archived, isDeleted: false, isRemoved: false };
}

/** Returns the state of a deleted session; null if it is not deleted. Throws storage_failed. */
export async function readDeletion(
  { adminQueries }: Pick<WhereaboutsPlace, "adminQueries">,
  id: string,
): Promise<Whereabouts | null> {
  const row = await adminQueries?.row(id);
  if (row?.state !== "deleted") return null;
  const { headerLine, end, isRemoved } = row;
  return { headerLine, end, archived: false, isDeleted: true, isRemoved };
}

/**
 * Moves the local files of a session to its place: those of a deleted one to the trash, and redundant ones of several. Files
 * with more entries than the fleet stay, and files that cannot be moved now. Returns whether a file of a deleted session
 * stays because it has more.
 */
export async function bringHere(
  place: WhereaboutsPlace,
  id: string,
  fact: Whereabouts,
  files = place.filesOf(id),
): Promise<boolean> {
  if (fact.isDeleted) {
    let isLeft = false;
    for (const file of files) if (!(await trashIfStale(place, id, file, fact))) isLeft = true;
    return isLeft;
  }
  // Pending entries are recorded with the path of their file.
  if (files.some((file) => hasPendingUploads(place, id, file))) return false;
  const [file] = files.length > 1 ? await removeRedundant(place, id, files, fact) : files;
  if (file !== undefined) await bringCopy(place, file, fact).catch(ignoreFailure);
  return false;
}

/** Moves a copy to the place of its session, and returns its path. A copy that lacks entries is not moved. */
export async function bringCopy(place: SessionFiles, file: string, fact: Whereabouts): Promise<string> {
  if (place.isInPlace(file, fact)) return file;
  return place.bringTo(file, fact, async (log) => !log.readOnly && (await beginsWith(log, fact.end)));
}

/** Returns the failure of a session that is deleted. */
export function makeDeletedFailure(sessionId: string, { isRemoved }: Whereabouts): Failure {
  const next = isRemoved
    ? "The fleet has no lines of it any more; restore_session brings it back on a machine whose trash has all of it."
    : "restore_session with its id brings it back.";
  const sentence = `The session ${sessionId} was deleted, for all machines of the fleet. ${next}`;
  return new Failure("session_not_found", sentence, { fleet: true, sessionId, deleted: true });
}

/** Moves the file of a deleted session to the trash. Returns whether it had no more than the fleet. */
async function trashIfStale(place: WhereaboutsPlace, id: string, file: string, fact: Whereabouts): Promise<boolean> {
  const isMeant = (log: Log): Promise<boolean> => hasNoMore(place, log, id, fact);
  let isStale = true;
  try {
    isStale = !hasPendingUploads(place, id, file);
    if (!isStale) return false;
    isStale = await useAndClose(place.open(file), isMeant);
    if (isStale) await place.moveToTrash(file, isMeant);
  } catch (error) {
    ignoreFailure(error);
  }
  return isStale;
}

/** Returns whether a session has pending entries. Throws storage_failed if the disk cannot be read. */
function hasPendingUploads({ journal }: WhereaboutsPlace, id: string, file: string): boolean {
  return journal.listPendingFiles(id, file).length > 0 || journal.findPendingElsewhere(id) !== undefined;
}

/** Returns whether all entries of a log are the first ones of the fleet's session. */
async function hasNoMore(place: WhereaboutsPlace, log: Log, id: string, fact: Whereabouts): Promise<boolean> {
  const { count } = log.nodes;
  if (count >= fact.end.entries) return count === fact.end.entries && (await beginsWith(log, fact.end));
  // For removed lines, only the end that was acknowledged here is left.
  const acknowledged = fact.isRemoved ? place.journal.ends.of(id)?.end : undefined;
  // Without one nothing was acknowledged here, and its lines cannot be distinguished from the removed ones.
  if (fact.isRemoved)
    return acknowledged === undefined || (acknowledged.entries === count && (await beginsWith(log, acknowledged)));
  return beginsWith(log, await fetchEnd(place.fleet, id, count));
}

/** Removes redundant files of a session, as far as one file has all entries. Returns the remaining ones. */
async function removeRedundant(
  place: WhereaboutsPlace,
  id: string,
  files: readonly string[],
  fact: Whereabouts,
): Promise<readonly string[]> {
  const { end } = fact;
  const whole: string[] = [];
  for (const file of files)
    try {
      await useAndClose(place.open(file), async (log) => {
        await log.replica?.sync();
        if (log.nodes.count >= end.entries && (await beginsWith(log, end))) whole.push(file);
      });
    } catch (error) {
      ignoreFailure(error);
    }
  if (whole.length === 0) return files;
  const [kept] = whole;
  for (const file of files)
    if (file !== kept) await place.moveToTrash(file, (log) => hasNoMore(place, log, id, fact)).catch(ignoreFailure);
  return place.filesOf(id);
}
