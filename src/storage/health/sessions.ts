/** Opens all session files for reading, one after the other, and reports problems with them. */

import { basename, dirname, join } from "node:path";
import { isMissing } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { NO_DAMAGE } from "../../core/format/damage.ts";
import { CURRENT_VERSION, SESSION_ID } from "../../core/format/entry.ts";
import { addTo } from "../../core/lists.ts";
import type { Progress, UnreadFile } from "../../core/ports/catalog.ts";
import type { Agent, DamagedSession, HiddenSession, KnownSession, SameId } from "../../core/ports/health.ts";
import type { Log } from "../../core/ports/store.ts";
import { getContainerOfPointer } from "../catalog/containers.ts";
import { pause } from "../fs/chunked-io.ts";
import { isBelow } from "../fs/confined-disk.ts";
import { CONTAINER, isContainerName } from "../fs/container-paths.ts";
import type { Disk } from "../fs/disk.ts";
import { findAllowed, getInfo, guardErrno, useAndClose } from "../fs/files.ts";
import { listFolder, listFolderIfAllowed } from "../fs/folders.ts";
import { parseIdInName, readBegun, readHeader } from "../fs/header.ts";
import {
  getArchiveFolder,
  isSessionName,
  listAllFolders,
  listSessionFolders,
  type StoragePaths,
  toFolderName,
} from "../fs/paths.ts";
import { getDisplayName } from "../lifecycle/leftovers.ts";
import { getFileKey } from "../locks/contract.ts";
import { getLockedFile } from "../locks/lock-paths.ts";
import {
  findUnlistedContainer,
  isActive,
  listMigratedSources,
  readContainerPointer,
  readMigrationStatus,
} from "../v2/pointer.ts";
import { isDatabase } from "../v2/sqlite-v1.ts";

/** Maximum reasons reported for one session. */
const MOST_REASONS = 3;

/** Dependencies for examining sessions. */
export interface SessionsDeps {
  readonly disk: Disk;
  readonly paths: StoragePaths;
  /** Opens a session for reading. */
  readonly openLog: (file: string) => Log;
}

/** All findings about the sessions. */
interface Survey {
  sessions: number;
  archived: number;
  containers: number;
  forks: number;
  databases: number;
  readonly hidden: HiddenSession[];
  readonly damaged: DamagedSession[];
  /** The paths of the sessions, by their ids. */
  readonly paths: Map<string, string[]>;
}

/** Yields the paths of session files and containers, also of unlisted ones. */
function* sessionFiles({ disk, paths }: SessionsDeps, archived: boolean): Generator<string> {
  const archive = getArchiveFolder(paths);
  /** Files with several names: an interrupted archiving leaves the former name, which counts. */
  const named = new Set<string>();
  const isListed = (path: string): boolean => {
    const info = getInfo(disk, path);
    // Opening it reports why the disk refuses it.
    if (info === null) return true;
    if (info.kind !== "file") return false;
    const isAgain = (info.links ?? 1) > 1 && isBelow(archive, path) && named.has(getFileKey(info));
    named.add(getFileKey(info));
    return !isAgain;
  };
  for (const folder of archived ? listAllFolders(paths, disk) : listSessionFolders(paths, disk)) {
    const entries = listFolderIfAllowed(disk, folder);
    const folders = entries.filter(({ name, kind }) => kind === "folder" && isContainerName(name));
    const containers = folders.map(({ name }) => join(folder, name)).filter((path) => isSession(disk, path));
    yield* containers;
    const sources = listMigratedSources(disk, containers);
    for (const { name, kind } of entries)
      if (kind !== "folder" && isSessionName(name) && !sources.has(join(folder, name)) && isListed(join(folder, name)))
        yield join(folder, name);
  }
}

/** Returns the unlisted containers that may be sessions. */
export function findUnlistedContainers({ disk, paths }: SessionsDeps, archived: boolean): UnreadFile[] {
  const all = [...(archived ? listAllFolders(paths, disk) : listSessionFolders(paths, disk))].flatMap((folder) => {
    const names = listFolderIfAllowed(disk, folder).map(({ name }) => getContainerOfPointer(name) ?? name);
    return [...new Set(names)].filter(isContainerName).map((name) => join(folder, name));
  });
  return all.map((path) => findAllowed(() => findUnlistedContainer(disk, path))).filter((file) => file !== undefined);
}

/** Returns whether a container is a session; true if that is unknown, so that its problem is reported. */
function isSession(disk: Disk, container: string): boolean {
  try {
    return isActive(disk, container) && findUnlistedContainer(disk, container) === undefined;
  } catch {
    return true;
  }
}

/** Returns the paths of the sessions by the keys of their locks. */
export function findSessionKeys(deps: SessionsDeps): Map<string, string> {
  const found = new Map<string, string>();
  for (const file of sessionFiles(deps, true)) {
    const info = getInfo(deps.disk, getLockedFile(file));
    if (info) found.set(getFileKey(info), file);
  }
  return found;
}

const AGENTS = ["pi", "pi_agent_rust"] as const;

/** Opens all sessions, one at a time. */
export async function surveySessions(
  deps: SessionsDeps,
  progress?: Progress,
): Promise<Omit<Survey, "paths"> & { readonly sameIds: readonly SameId[] }> {
  const found: Survey = {
    sessions: 0,
    archived: 0,
    containers: 0,
    forks: 0,
    databases: countDatabases(deps),
    hidden: [],
    damaged: [],
    paths: new Map(),
  };
  for (const folder of listAllFolders(deps.paths, deps.disk)) requireListed(deps.disk, folder, found);
  await visitAll(deps, true, async (file, archived) => lookAt(deps, file, archived, found), progress);
  addTooHigh(deps, found);
  const { paths, ...survey } = found;
  const sameIds = Array.from(paths, ([sessionId, sessionPaths]) => ({ sessionId, sessionPaths }));
  return { ...survey, sameIds: sameIds.filter(({ sessionPaths }) => sessionPaths.length > 1) };
}

/** Adds the session files beside the folders of the directories, where no list looks. */
function addTooHigh({ disk, paths: { flat, root } }: SessionsDeps, { hidden }: Survey): void {
  if (flat !== undefined || root === undefined) return;
  for (const { name, kind } of listFolderIfAllowed(disk, root)) {
    const sessionPath = join(root, name);
    const header = kind === "file" && isSessionName(name) ? readHeader(disk, sessionPath) : undefined;
    if (header === undefined) continue;
    const cwd = typeof header.cwd === "string" ? header.cwd : undefined;
    const text = "it is beside the folders of the directories, where no list looks";
    // Its id finds nothing.
    const known: KnownSession = { sessionPath, sessionId: null, name: null, archived: false };
    hidden.push({ ...known, reason: "other_folder", text, cwd, agents: AGENTS });
  }
}

/** Adds a folder that the disk refuses to list, so that its sessions do not count as missing. */
function requireListed(disk: Disk, folder: string, { damaged }: Survey): void {
  try {
    guardErrno("listing the folder", () => listFolder(disk, folder));
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    const noSession = { sessionPath: folder, sessionId: null, name: null, archived: false };
    damaged.push({ ...noSession, reasons: [error.message], damageCount: 1, remedy: "none" });
  }
}

/** See HealthCheck.visitAll. */
export async function visitAll(
  deps: SessionsDeps,
  archived: boolean,
  visit: (sessionPath: string, archived: boolean) => Promise<void>,
  progress?: Progress,
): Promise<number> {
  const archive = getArchiveFolder(deps.paths);
  const files = [...sessionFiles(deps, archived)];
  for (const [done, file] of files.entries()) {
    await visit(file, isBelow(archive, file));
    progress?.(done + 1, files.length);
    await pause();
  }
  return files.length;
}

function countDatabases({ disk, paths }: SessionsDeps): number {
  let count = 0;
  for (const folder of listSessionFolders(paths, disk))
    for (const { name, kind } of listFolderIfAllowed(disk, folder))
      if (kind === "file" && name.endsWith(".sqlite") && isDatabase(disk, join(folder, name))) count++;
  return count;
}

/** Names of files that we or Pi gave, which end with the id. */
const GIVEN_NAME = /^\d{4}-\d\d-\d\dT[^_]*_/;

/** Returns the id that finds a session: that of its header or name. An invented id finds nothing. */
function storedId(disk: Disk, file: string): string | null {
  const id = readHeader(disk, file)?.id ?? (GIVEN_NAME.test(basename(file)) ? parseIdInName(file) : undefined);
  return typeof id === "string" && SESSION_ID.test(id) ? id : null;
}

/** Adds the findings about one session to the survey. */
function lookAt(deps: SessionsDeps, file: string, archived: boolean, found: Survey): void {
  const info = getInfo(deps.disk, getLockedFile(file));
  const known: KnownSession = { sessionPath: file, sessionId: storedId(deps.disk, file), name: null, archived };
  if (info?.kind === "file" && info.size === 0 && !isContainerName(file)) {
    if (!archived) found.hidden.push({ ...known, reason: "empty_file", text: "it has no bytes", agents: AGENTS });
    return;
  }
  try {
    guardErrno("opening the session", () =>
      useAndClose(deps.openLog(file), (log) => lookInto(deps, known, log, found)),
    );
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    // It was removed in between.
    if (error.name === "session_not_found") return;
    const isNone = error.name === "not_a_session";
    const isStrange = isNone && "format" in error.details;
    if (!isStrange) found.damaged.push({ ...known, reasons: [error.message], damageCount: 1, remedy: "none" });
    else if (!archived) found.hidden.push({ ...known, reason: "unknown_format", text: error.message, agents: AGENTS });
    // No list shows it as a session.
    if (isNone) return;
  }
  if (archived) found.archived++;
  else found.sessions++;
  if (isContainerName(file)) found.containers++;
  const { sessionId } = known;
  if (sessionId !== null) addTo(found.paths, sessionId, file);
}

/** Adds the findings about an open session to the survey. */
function lookInto({ disk, paths }: SessionsDeps, known: KnownSession, log: Log, found: Survey): void {
  const { parentSession, branchedFrom } = log.header;
  if (parentSession !== undefined || branchedFrom !== undefined) found.forks++;
  const damaged = damageOf(disk, known.sessionPath, log);
  const hidden = known.archived ? null : explainHidden(disk, paths, known.sessionPath);
  if (!damaged && !hidden) return;
  const session = { ...known, name: getDisplayName(log) };
  if (hidden) found.hidden.push({ ...session, ...hidden });
  if (damaged) found.damaged.push({ ...session, ...damaged });
}

/** Returns the damage of an open session; null if it has none. */
function damageOf(
  disk: Disk,
  file: string,
  log: Log,
): Pick<DamagedSession, "reasons" | "damageCount" | "remedy"> | null {
  const unfinished = unfinishedIn(disk, file, log);
  if (unfinished !== null) return { reasons: [unfinished], damageCount: 1, remedy: "finish" };
  // An unknown version is no damage, and the last line of a session being written may still be incomplete.
  const damage = [...new Set([...log.damage, ...log.repairable])].filter(
    ({ kind }) => !NO_DAMAGE.has(kind) && !(kind === "torn_tail" && log.lock.holder !== null),
  );
  if (damage.length === 0) return null;
  const reasons = damage
    .slice(0, MOST_REASONS)
    .map(({ line, reason }) => (line > 0 ? `line ${line}: ${reason}` : reason));
  const isRepairable = damage.some(({ kind }) => kind !== "file_beside");
  return { reasons, damageCount: damage.length, remedy: isRepairable ? "repair" : "none" };
}

/** The phase of a finished pointer, and the reason for any other phase. */
const DONE = "completed";
const CUT_OFF =
  "A migration or rollback of this session was interrupted, so it can be read but not written. rollback_migration " +
  "completes it.";

/** Returns the unfinished operation on a session. */
function unfinishedIn(disk: Disk, file: string, { readOnly, header }: Log): string | null {
  if (readOnly?.name === "migration_failed") return readOnly.message;
  if (isContainerName(file)) return (readContainerPointer(disk, file)?.phase ?? DONE) === DONE ? null : CUT_OFF;
  const container = join(dirname(file), `${header.id}${CONTAINER}`);
  if ([container, `${container}.staging`].every((path) => getInfo(disk, path) === null)) return null;
  const { interrupted, state } = readMigrationStatus(disk, file);
  // A new migration would replace a container that may have entries which this file lacks.
  if (!interrupted || findUnlistedContainer(disk, container) !== undefined) return null;
  return state === "ROLLED_BACK"
    ? "A rollback of this session was interrupted; its file is the session again. rollback_migration puts the rest in order."
    : "A migration of this session was interrupted; its file is the session still. migrate_session does it anew.";
}

// --- what agents do not show --------------------------------------------------------------------------------------------

/** See the session-format reference, 6 and 8. */
type Hidden = Pick<HiddenSession, "reason" | "text" | "cwd" | "agents">;

const BOTH: readonly Agent[] = ["pi", "pi_agent_rust"];

/** Returns why agents do not show a session that can be opened; null if they do. Throws errno errors. */
function explainHidden(disk: Disk, paths: StoragePaths, file: string): Hidden | null {
  if (isContainerName(file))
    return { reason: "container", text: "it is in a container, and agents look for session files", agents: BOTH };
  const { header, isLate } = readBegun(disk, file) ?? {};
  if (header === undefined || isLate)
    return {
      reason: "no_header",
      text: "its first line is no header, and agents take it for no session",
      agents: BOTH,
    };
  const { version = 1, cwd } = header;
  if (typeof version !== "number" || version > CURRENT_VERSION)
    return {
      reason: "newer_version",
      text: `its version is ${String(version)}, newer than this program and pi_agent_rust know`,
      agents: ["pi_agent_rust"],
    };
  const place = placeProblem(disk, paths, file, cwd);
  if (place !== null || version === CURRENT_VERSION) return place;
  const text = `its version is ${version}, which pi_agent_rust does not read; Pi, or an append here, raises it`;
  return { reason: "older_version", text, agents: ["pi_agent_rust"] };
}

/** Returns why a session is not shown, or not continued, by its directory and the folder that it lies in. */
function placeProblem(disk: Disk, { flat }: StoragePaths, file: string, cwd: unknown): Hidden | null {
  if (typeof cwd !== "string" || cwd === "")
    return { reason: "no_cwd", text: "its header names no working directory", agents: BOTH };
  if (flat === undefined && basename(dirname(file)) !== toFolderName(cwd))
    return { reason: "other_folder", text: `it is not in the folder of its directory ${cwd}`, cwd, agents: BOTH };
  if (isGone(disk, cwd))
    return { reason: "cwd_missing", text: `its directory ${cwd} does not exist any more`, cwd, agents: BOTH };
  return null;
}

/** Returns whether a directory does not exist; false where that may not be looked at. */
function isGone(disk: Disk, path: string): boolean {
  try {
    return disk.info(path).kind !== "folder";
  } catch (error) {
    return isMissing(error);
  }
}
