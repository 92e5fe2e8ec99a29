/** Arrival of sessions: fetches the entries of other machines before a session is read. */

import { basename } from "node:path";
import { Failure, isAway } from "../../../core/failure.ts";
import { parseSessionHeader, SESSION_ID, type SessionHeader, toReadableHeader } from "../../../core/format/entry.ts";
import { decodeText, trimLine } from "../../../core/json/json.ts";
import type { Progress } from "../../../core/ports/catalog.ts";
import type { FleetSession, JournaledSession } from "../../../core/ports/fleet.ts";
import type { FleetCatalog } from "../../../core/ports/fleet-catalog.ts";
import type { Log, Store } from "../../../core/ports/store.ts";
import type { WantedSession } from "../../../core/ports/stores.ts";
import { getIdInPath } from "../../../core/search/listing.ts";
import { isContainerName } from "../../../storage/fs/container-paths.ts";
import { useAndClose } from "../../../storage/fs/files.ts";
import { makeFileName } from "../../../storage/fs/paths.ts";
import { isUuid } from "../../../storage/v2/documents.ts";
import { ignoreFailure } from "../postgres/failures.ts";
import type { AcknowledgedEnd } from "./acknowledged-ends.ts";
import { isDamagedHeader } from "./headers.ts";
import type { Outage } from "./outage.ts";
import { type TransferPlace, transfer } from "./transfer.ts";
import { isUnreadableError, isUnreadableLog } from "./unreadable-copies.ts";
import {
  bringHere,
  makeDeletedFailure,
  readDeletion,
  readWhereabouts,
  toWhereabouts,
  type WhereaboutsPlace,
} from "./whereabouts.ts";

/** Sessions that were begun in the same millisecond and are looked at, at most. */
const MOST_BEGUN = 100;
/** Ids that a failure names. */
const MOST_NAMED = 3;

/** The stores, as an arrival needs them. */
export interface ArrivalPlace extends TransferPlace, WhereaboutsPlace {
  readonly catalog: FleetCatalog | undefined;
  /** See FleetOptions. */
  readonly outage?: Outage;
  /** Returns whether a session is open in this process, so that its file is not moved. */
  readonly isOpen?: (sessionId: string) => boolean;
  /**
   * Returns the path of a local session, by its id or, unless `isWhole`, by the beginning of one. Throws session_not_found
   * and other failures of a search.
   */
  find(id: string, isWhole?: boolean): string;
  /** Returns the header of a local session without reading more; undefined if it cannot be read. */
  headerAt(file: string): SessionHeader | undefined;
  /** Returns whether a session is at a path, or one that was there has moved. */
  holds(file: string): boolean;
  /** Returns the path that a new session gets in the preferred store. */
  placeFor(header: SessionHeader): { readonly path: string };
  /** Returns the end that was acknowledged last here, of a session or of the copy at a path. */
  acknowledged(of: { readonly sessionId: string } | { readonly sessionPath: string }): AcknowledgedEnd | undefined;
  /** Returns whether something is at a path that cannot be read as a session, however often it is tried. */
  isUnreadable(file: string): boolean;
  /**
   * Renames such a file to a backup, under its lock, and returns the new name; null if it is readable by now, or another
   * process has the lock. `isUnreadable`: another reason than that it cannot be read.
   */
  moveToBackup(file: string, isUnreadable?: () => boolean): string | null;
  /** Gives a backup its name back, unless something else has the name. */
  restoreBackup(backup: string, file: string): void;
  /** Keeps entries of the latest such backup of a file, and these lines, as far as the copy at its path lacks them. */
  salvage(file: string, lines: readonly Uint8Array[]): void;
  /** Returns whether a path is in the session folders or the archive. */
  isListed(file: string): boolean;
  /** Returns the entries that can be read in a file, whatever else it has; at most so many. */
  readEntries(file: string, most: number): readonly Uint8Array[];
  /** Returns the store of sessions at a path, without its fleet. */
  storeAt(file: string): Store;
}

/**
 * Brings a session up to date and to its place, if the fleet has it. `progress` counts the bytes of one that is fetched
 * whole. Throws session_not_found for a deleted one, and storage_failed if it cannot be fetched.
 */
export async function arrive(place: ArrivalPlace, where: WantedSession, progress?: Progress): Promise<void> {
  const { sessionPath } = where;
  if (sessionPath === undefined) return arriveById(place, where, progress);
  if (!place.holds(sessionPath)) await makeFromJournal(place, (note) => note.sessionPath === sessionPath);
  const file = place.holds(sessionPath) ? sessionPath : findCopyByPath(place, sessionPath);
  await refetchNamed(place, file, progress);
  if (file !== undefined) return bringUpToDate(place, file, progress, place.headerAt(file)?.id);
  return fetchSession(place, await lookByPath(place, sessionPath), progress);
}

// --- paths at which nothing is ----------------------------------------------------------------------------------------

/** Names of the files of copies, whatever is in them. */
const FILE_NAME = /^\d{4}-\d\d-\d\dT[^_]*_.+\.jsonl$/;
/** Times in file names, for `replace` to make ISO 8601. */
const TIME_IN_NAME = /T(\d\d)-(\d\d)-(\d\d)(?:-(\d+))?Z$/;

/**
 * Returns the local file of the session that a path without a file means: another machine has, or had, it in another folder.
 */
export function findCopyByPath(place: Pick<ArrivalPlace, "find" | "headerAt">, path: string): string | undefined {
  const id = getIdInPath(path);
  const file = mayBeOfCopy(path) && SESSION_ID.test(id) ? findOnlyFile(place, id) : undefined;
  if (file === undefined || isUuid(id)) return file;
  const header = place.headerAt(file);
  return header && isMeant(path, header) ? file : undefined;
}

/** Returns the path of the only local session with an id; undefined for none or several. */
function findOnlyFile(place: Pick<ArrivalPlace, "find">, id: string): string | undefined {
  try {
    return findLocalFile(place, id, true);
  } catch (error) {
    if (error instanceof Failure && error.name === "ambiguous_id") return undefined;
    throw error;
  }
}

/** Returns the session of the fleet whose copy has the name in a path: so lists name those that are not here. */
async function lookByPath({ fleet, catalog, placeFor }: ArrivalPlace, path: string): Promise<FleetSession | null> {
  if (!mayBeOfCopy(path)) return null;
  const id = getIdInPath(path);
  const there = SESSION_ID.test(id) ? await fleet.look(id) : null;
  const isListedSo = (session: FleetSession | null): boolean =>
    session !== null && placeFor(parseStoredHeader(session)).path === path;
  if (isUuid(id) || isListedSo(there)) return there;
  // Ids of other programs may not appear unchanged in file names.
  const begunAt = Date.parse(
    basename(path)
      .split("_")[0]
      .replace(TIME_IN_NAME, (_, h, m, s, ms = "0") => `T${h}:${m}:${s}.${ms}Z`),
  );
  for (const other of (await catalog?.idsBegunAt(begunAt, MOST_BEGUN)) ?? []) {
    const begun = await fleet.look(other);
    if (isListedSo(begun)) return begun;
  }
  return there && isMeant(path, parseStoredHeader(there)) ? there : null;
}

function parseStoredHeader({ id, headerLine }: FleetSession): SessionHeader {
  return toReadableHeader(parseSessionHeader(headerLine) ?? { type: "session", id });
}

/**
 * Returns whether a copy may have the file name in a path. Other names were chosen by a person, and mean no remote session.
 */
function mayBeOfCopy(path: string): boolean {
  return isUuid(getIdInPath(path)) || FILE_NAME.test(basename(path));
}

/** Returns whether a path names the session with this header: different ids may look the same in names. */
function isMeant(path: string, header: SessionHeader): boolean {
  return isUuid(header.id) || basename(path) === makeFileName(header);
}

// --- ids --------------------------------------------------------------------------------------------------------------

/** Brings the session with an id, or else the only one whose id begins with it. The copies here come before the fleet. */
async function arriveById(
  place: ArrivalPlace,
  { sessionId: id = "", isWhole }: WantedSession,
  progress: Progress | undefined,
): Promise<void> {
  // Files may have ids that no command takes.
  if (isWhole && !SESSION_ID.test(id)) return;
  const isHere = SESSION_ID.test(id) && place.filesOf(id).length > 0;
  if (!isHere) await makeFromJournal(place, ({ sessionId }) => sessionId === id);
  const known = isHere ? undefined : place.acknowledged({ sessionId: id })?.sessionPath;
  if (known !== undefined && getIdInPath(known) === id) await refetchNamed(place, known, progress);
  const files = SESSION_ID.test(id) ? place.filesOf(id) : [];
  const whole = files[0] ?? findUnreadableFile(place, id);
  if (whole !== undefined) return bringUpToDate(place, whole, progress, id, files);
  // Others may have a session with an id that is the beginning of one here. Where they cannot be asked, that is meant.
  const there = place.outage?.lasts === true ? null : await lookUnlessLocal(place, id);
  if (there) return fetchSession(place, there, progress);
  const deletion = place.outage?.lasts === true ? null : await readDeletion(place, id).catch(ignoreFailure);
  if (deletion) throw makeDeletedFailure(id, deletion);
  if (isWhole) return;
  const begun = findLocalFile(place, id);
  if (begun !== undefined) return bringUpToDate(place, begun, progress, place.headerAt(begun)?.id);
  return fetchSession(place, await place.fleet.look(await resolveWholeId(place.catalog, id)), progress);
}

/** Returns the path of a copy that is too damaged to be found by its id. */
function findUnreadableFile(
  { acknowledged, isUnreadable, isListed }: ArrivalPlace,
  sessionId: string,
): string | undefined {
  const file = acknowledged({ sessionId })?.sessionPath;
  return file !== undefined && isListed(file) && isUnreadable(file) ? file : undefined;
}

/** Returns the id of the session of the fleet that is meant by the beginning of one. Throws ambiguous_id. */
export async function resolveWholeId(
  catalog: Pick<FleetCatalog, "idsBeginning"> | undefined,
  beginning: string,
): Promise<string> {
  const ids = (await catalog?.idsBeginning(beginning, MOST_NAMED + 1)) ?? [];
  if (ids.includes(beginning) || ids.length === 0) return beginning;
  if (ids.length === 1) return ids[0];
  const named = ids.slice(0, MOST_NAMED).join(", ");
  const sentence = `Several session ids of the fleet begin with this: ${named}${ids.length > MOST_NAMED ? " and more" : ""}. Give more of it.`;
  throw new Failure("ambiguous_id", sentence, { sessionId: beginning, matches: ids.length });
}

async function lookUnlessLocal(place: ArrivalPlace, id: string): Promise<FleetSession | null> {
  try {
    return await place.fleet.look(id);
  } catch (error) {
    if (findLocalFile(place, id) === undefined) throw error;
    return null;
  }
}

/** Returns the path of a local session; undefined if the fleet may have it. */
function findLocalFile({ find }: Pick<ArrivalPlace, "find">, id: string, isWhole?: boolean): string | undefined {
  try {
    return find(id, isWhole);
  } catch (error) {
    if (error instanceof Failure && error.name === "session_not_found" && SESSION_ID.test(id)) return undefined;
    throw error;
  }
}

// --- coming -----------------------------------------------------------------------------------------------------------

/**
 * Adds the entries that a copy lacks, and moves it to the place of its session. If that is not possible, the copy is
 * read as it is, and a write reports the reason. Fetches an unreadable copy again. Throws session_not_found for a
 * deleted session, unless a local file has more of it.
 */
async function bringUpToDate(
  place: ArrivalPlace,
  file: string,
  progress: Progress | undefined,
  id: string | undefined,
  known?: readonly string[],
): Promise<void> {
  if (place.outage?.lasts) return applyPendingEntries(place, file);
  const files = id === undefined || place.isOpen?.(id) ? [] : (known ?? place.filesOf(id));
  // A file outside the session folders belongs to the person who named its path.
  const isOurs = id !== undefined && files.includes(file);
  const fact = isOurs ? await readWhereabouts(place, id).catch(ignoreFailure) : null;
  if (isOurs && fact?.isDeleted && !(await bringHere(place, id, fact, files))) throw makeDeletedFailure(id, fact);
  let log: Log | undefined;
  let isUnreadable = false;
  let isOfNewer = false;
  let isAlone = false;
  let left: readonly Uint8Array[] = [];
  try {
    log = place.open(file);
    if (!log.foreign) {
      isOfNewer = fact?.isDeleted === false && hasFalseVersion(log, fact.headerLine);
      isUnreadable = isOfNewer || isUnreadableLog(log);
      if (isUnreadable) left = readReadableLines(log);
      // Where damage is known, or the session is open and lacks entries, the fleet has others, however long the copy is.
      const isDoubtful = log.damage.length > 0 || (id !== undefined && place.isOpen?.(id));
      await log.replica?.sync(isDoubtful ? Number.POSITIVE_INFINITY : undefined);
      await log.replica?.fetchAttachments();
    }
  } catch (error) {
    // A container without its header is no session that is found.
    isUnreadable ||= isUnreadableError(error) || (error instanceof Failure && error.name === "session_not_found");
    // The next opening meets the same failure, if it is one of the file.
    ignoreFailure(error);
    isAlone = isAway(error);
    if (!isUnreadable && !isAlone) return;
  } finally {
    log?.close();
  }
  if (isAlone && !isUnreadable) return applyPendingEntries(place, file);
  if (isUnreadable) {
    // A file's name proves no more than its header.
    const meant = isOurs ? id : (place.acknowledged({ sessionPath: file })?.sessionId ?? id ?? log?.header.id);
    const isStillSo = (): boolean => useAndClose(place.open(file), (now) => hasFalseVersion(now, fact?.headerLine));
    await refetch(place, file, progress, meant, left, isOfNewer ? isStillSo : undefined);
    return;
  }
  // A caller that names a path means that file; no other file is moved.
  if (isOurs && fact && !fact.isDeleted) await bringHere(place, id, fact, known ? files : [file]);
}

/** Returns whether damage made the header of a copy one of a newer version, which is not written to. */
function hasFalseVersion(log: Log, there: Uint8Array | undefined): boolean {
  return log.readOnly?.name === "unsupported_version" && there !== undefined && isDamagedHeader(log, there);
}

/**
 * Makes the file of a session anew that is lost, and that the fleet never had: the journal has its header, and the lines come
 * when it is opened. Returns whether it did.
 */
async function makeFromJournal(place: ArrivalPlace, isMeant: (note: JournaledSession) => boolean): Promise<boolean> {
  const note = place.journal.all().find((one) => one.from && one.headerLine !== undefined && isMeant(one));
  const headerLine = note?.headerLine && Buffer.from(note.headerLine, "base64");
  const stored = headerLine && parseSessionHeader(headerLine);
  if (!note || !headerLine || !stored) return false;
  const { sessionPath: file } = note;
  try {
    if (place.isUnreadable(file) && place.moveToBackup(file) === null) return false;
    (await place.storeAt(file).publish({ headerLine, header: toReadableHeader(stored), file }, [])).close();
    return true;
  } catch (error) {
    ignoreFailure(error);
    return false;
  }
}

/**
 * Adds the journal's entries that the copy at a path lacks. The next opening meets a failure of the file. Throws storage_failed
 * if they cannot be added.
 */
async function applyPendingEntries(place: ArrivalPlace, file: string): Promise<void> {
  try {
    if (place.isUnreadable(file)) await makeFromJournal(place, ({ sessionPath }) => sessionPath === file);
    await useAndClose(place.open(file), async (log) => {
      if (!log.readOnly) await log.replica?.applyPending();
    });
  } catch (error) {
    // Another process that writes to it adds them.
    if (error instanceof Failure && error.name === "storage_failed") throw error;
    ignoreFailure(error);
  }
}

/**
 * Fetches a copy again if the fleet has its session: an unreadable one, or one for which `isStillSo` returns true. The old
 * file stays as a backup, and its entries that the fleet lacks go to quarantine. Returns whether it was fetched.
 */
async function refetch(
  place: ArrivalPlace,
  file: string,
  progress: Progress | undefined,
  id: string | undefined,
  left: readonly Uint8Array[] = [],
  isStillSo?: () => boolean,
): Promise<boolean> {
  const isReadable = !place.isUnreadable(file);
  if (isReadable && !isStillSo && !(await hasDamagedId(place, file))) return false;
  // In session folders, a file's name identifies its session.
  const isNamed = id === undefined && place.isListed(file);
  const session = id === undefined ? isNamed && (await lookByPath(place, file)) : await place.fleet.look(id);
  if (!session) return makeFromJournal(place, ({ sessionPath }) => sessionPath === file);
  if (!parseSessionHeader(session.headerLine) || !(await mayBeOf(place, session, file))) return false;
  const backup = place.moveToBackup(file, isReadable ? (isStillSo ?? (() => hasOtherId(place, file))) : undefined);
  if (!backup) return false;
  try {
    await fetchSession({ ...place, stores: [place.storeAt(file)] }, session, progress, file, left);
  } catch (error) {
    place.restoreBackup(backup, file);
    throw error;
  }
  return true;
}

/** Returns whether the header of a container in the session folders has another id than the name of the folder. */
function hasOtherId({ headerAt, isListed }: ArrivalPlace, file: string): boolean {
  const named = getIdInPath(file);
  // The file is read only where its name can say another id.
  if (!isContainerName(file) || !isUuid(named) || !isListed(file)) return false;
  const id = headerAt(file)?.id;
  return id !== undefined && id !== named;
}

/** Returns whether a container has an id in its header that is of no session in the fleet, as after a flipped bit. */
async function hasDamagedId(place: ArrivalPlace, file: string): Promise<boolean> {
  return hasOtherId(place, file) && (await place.fleet.look(`${place.headerAt(file)?.id}`)) === null;
}

/** Fetches a container with such an id again. A failure leaves it as it is. */
async function refetchNamed(place: ArrivalPlace, file: string | undefined, progress: Progress | undefined) {
  if (file === undefined || place.outage?.lasts) return;
  try {
    if (await hasDamagedId(place, file)) await refetch(place, file, progress, getIdInPath(file));
  } catch (error) {
    ignoreFailure(error);
  }
}

/** Entries of an unreadable file that are compared with its session. */
const MOST_COMPARED = 200;
/** Maximum bytes of lines of an unreadable copy that are kept in memory. */
const MOST_LEFT = 64 << 20;

/** Returns whether an unreadable file may be a copy of a session: it has no readable entries, or one of that session. */
async function mayBeOf(
  { fleet, readEntries: entriesIn }: ArrivalPlace,
  { id, end }: FleetSession,
  file: string,
): Promise<boolean> {
  const here = new Set(entriesIn(file, MOST_COMPARED).map((line) => decodeText(trimLine(line))));
  if (here.size === 0) return true;
  for await (const lines of fleet.lines(id, 0, end.entries))
    if (lines.some((line) => here.has(decodeText(trimLine(line))))) return true;
  return false;
}

/** Returns the lines of a log that can be read, if they are not too many. */
function readReadableLines(log: Log): readonly Uint8Array[] {
  const lines: Uint8Array[] = [];
  let bytes = 0;
  for (let position = 0; position < log.nodes.count; position++) {
    bytes += log.length(position);
    if (bytes > MOST_LEFT) return [];
    try {
      lines.push(Uint8Array.from(log.read(position)));
    } catch {
      // The disk does not read it.
    }
  }
  return lines;
}

async function fetchSession(
  place: ArrivalPlace,
  session: FleetSession | null,
  progress: Progress | undefined,
  file?: string,
  left: readonly Uint8Array[] = [],
): Promise<void> {
  const stored = session && parseSessionHeader(session.headerLine);
  if (!session || !stored) return;
  const beginning = { headerLine: session.headerLine, header: toReadableHeader(stored) };
  const at = file ?? place.placeFor(beginning.header).path;
  // An unreadable file of an earlier copy may have the name.
  if (file === undefined && (await refetch(place, at, progress, session.id))) return;
  await transfer(place, session, file === undefined ? beginning : { ...beginning, file }, progress);
  // Also the entries of a process that was killed after it renamed a file.
  place.salvage(at, left);
  if (session.archived) await bringHere(place, session.id, toWhereabouts(session));
}
