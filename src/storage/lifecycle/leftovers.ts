/**
 * Finds leftovers of sessions, and decides whether they may be removed. A leftover's name shows its kind; its session
 * shows whether it is still needed.
 */

import { basename, dirname, join } from "node:path";
import { isErrno } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Progress } from "../../core/ports/catalog.ts";
import type { Leftover, LeftoverFile, LeftoverKind, WantedLeftovers } from "../../core/ports/leftovers.ts";
import type { Holder } from "../../core/ports/lock.ts";
import type { Log } from "../../core/ports/store.ts";
import { CONTAINER, isContainerName, POINTER } from "../fs/container-paths.ts";
import { type Disk, exists } from "../fs/disk.ts";
import { getInfo, useAndClose } from "../fs/files.ts";
import { getKind, listFolderIfAllowed } from "../fs/folders.ts";
import { listAllFolders } from "../fs/paths.ts";
import { getFinalName, isAbandoned } from "../fs/staging.ts";
import { findCurrentPath, findFileInLedger, readMigrationStatus } from "../v2/pointer.ts";
import type { LifecycleDeps } from "./exclusive.ts";
import { hasAllEntries, readAllEntries } from "./import.ts";
import { getTitleFacts, makeTitle } from "./recorded.ts";
import { hasAllBytes } from "./relocate.ts";
import { explainHolder, findAnnouncement, findOrphanHolder, findStale, isAnnouncement } from "./stale-announcements.ts";
import { measureFolder } from "./trash-items.ts";

/** Our names for leftovers: the name of a session or its pointer, and a suffix. */
const LEFTOVER =
  /^(?<base>.+\.(?:jsonl|v2|sqlite|store\.json))\.(?:(?<backup>v\d+|damaged|repaired|spoilt|relocated)\.bak(?:\.\d+)?|(?<migrated>migrated)|rolled-back(?:\.\d+)?)$/s;

/** The meaning of a name. */
interface Form {
  readonly kind: LeftoverKind;
  /** Name of the session, or of its pointer, that it belongs to. */
  readonly base: string;
  /** The kind of a backup. */
  readonly backup?: string;
}

/** Returns the meaning of a name; undefined unless it is a leftover's. */
function formOf(name: string): Form | undefined {
  const base = getFinalName(name);
  if (base !== undefined) return { kind: "temporary", base };
  const found = LEFTOVER.exec(name)?.groups;
  if (found === undefined || name.startsWith(".")) return undefined;
  const kind = found.backup !== undefined ? "backup" : found.migrated !== undefined ? "migrated" : "rolled_back";
  return { kind, base: found.base, backup: found.backup };
}

/** Returns whether the name of a path is that of a leftover; with a session, that of a backup of the session. */
export function isLeftover(path: string, session?: string): boolean {
  const form = formOf(basename(path));
  if (form === undefined || session === undefined) return form !== undefined;
  return form.kind === "backup" && dirname(path) === dirname(session) && form.base === basename(session);
}

/** Yields the leftovers in the session folders and the archive. Follows no link. */
export function* findLeftoverFiles(deps: LifecycleDeps): Generator<LeftoverFile> {
  for (const folder of listAllFolders(deps.paths, deps.disk)) {
    for (const { name, kind } of listFolderIfAllowed(deps.disk, folder)) {
      const isWanted = (kind === "file" || kind === "folder") && !isAnnouncement(join(folder, name));
      const found = isWanted ? fileAt(deps, join(folder, name)) : undefined;
      if (found) yield found;
    }
    yield* findStale(deps, folder);
  }
}

/** Returns the leftover at a path; undefined if nothing, or something else, has the path. */
function fileAt(deps: LifecycleDeps, path: string): LeftoverFile | undefined {
  const { disk } = deps;
  if (isAnnouncement(path)) return findAnnouncement(deps, path);
  const form = formOf(basename(path));
  const info = form && getInfo(disk, path, true);
  if (!form || (info?.kind !== "file" && info?.kind !== "folder")) return undefined;
  const sizeBytes = info.kind === "folder" ? measureFolder(disk, path) : info.size;
  // A rename, which makes most leftovers, changes only the time of the inode.
  return { path, kind: form.kind, sizeBytes, since: info.changed ?? info.modified, sessionPath: ownerOf(disk, path) };
}

/** Returns the path of the session that a leftover belongs to; null if it is missing. */
function ownerOf(disk: Disk, path: string): string | null {
  const base = formOf(basename(path))?.base;
  if (base === undefined) return null;
  const container = base.endsWith(POINTER) ? `${base.slice(0, -POINTER.length)}${CONTAINER}` : base;
  try {
    const now = findCurrentPath(disk, join(dirname(path), container));
    return exists(disk, now) ? now : fileOf(disk, path);
  } catch {
    // With an unreadable pointer or header, the session's own file is unknown.
    return null;
  }
}

/** Returns the session file that a leftover container was made from or rolled back to, if it exists. */
function fileOf(disk: Disk, leftover: string): string | null {
  const name = findFileInLedger(disk, leftover);
  const file = name === undefined ? undefined : join(dirname(leftover), name);
  return file !== undefined && exists(disk, file) ? file : null;
}

/** Runs `run` with the locks of the sessions that leftovers belong to. Throws session_locked. */
export async function lockOwners<T>(
  deps: LifecycleDeps,
  leftovers: readonly string[],
  run: () => Promise<T>,
): Promise<T> {
  const logs: Log[] = [];
  try {
    for (const owner of new Set(leftovers.map((path) => ownerOf(deps.disk, path)))) {
      if (owner === null) continue;
      const log = deps.open(owner);
      logs.push(log);
      log.lock.acquire();
    }
    return await run();
  } finally {
    for (const log of logs) log.close();
  }
}

/** Facts about a session that decide about its leftovers. */
interface Owner {
  readonly sessionId: string | null;
  readonly name: string | null;
  /** The reason why its leftovers may contain the only copy of something; null if it is whole. */
  readonly fault: string | null;
  /** True if a migration or a rollback of it is under way or was interrupted, which needs its leftovers. */
  readonly isUnderWay: boolean;
  /** Another process that writes to it. */
  readonly holder: Holder | null;
}

/** Returns the name of a session, or the beginning of its first message. */
export function getDisplayName(log: Log): string | null {
  const { name, title } = getTitleFacts(log);
  return name ?? (title === makeTitle(null, log.header.id) ? null : title.slice(1, -1));
}

/** Opens a session for reading and returns the facts about it. Reads all of it, unless `isAnnounced`. */
async function lookAt(deps: LifecycleDeps, path: string, isAnnounced: boolean): Promise<Owner> {
  try {
    return await useAndClose(deps.open(path), async (log) => {
      const { holder } = log.lock;
      return { ...(isAnnounced ? describeOwner(log) : await inspectOwner(deps, log)), holder };
    });
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    const fault = `its session cannot be opened (${error.message})`;
    return { sessionId: null, name: null, fault, isUnderWay: false, holder: null };
  }
}

/** Returns the facts about an open session without another writer that decide about its announcements. */
export function describeOwner(log: Log): Owner {
  return { sessionId: log.header.id, name: getDisplayName(log), fault: null, isUnderWay: false, holder: null };
}

/** Returns the facts about an open session without another writer that decide about its leftovers. */
export async function inspectOwner(deps: LifecycleDeps, log: Log): Promise<Owner> {
  const owner = describeOwner(log);
  await readAllEntries(log, undefined);
  const [first] = log.damage;
  const fault =
    first === undefined ? null : `its session is damaged (${first.reason}), and this may have the lost entries`;
  return { ...owner, fault, isUnderWay: isInterrupted(deps, log) };
}

function isInterrupted({ disk }: LifecycleDeps, { file, readOnly }: Log): boolean {
  if (readOnly?.name === "migration_failed") return true;
  try {
    return file !== null && readMigrationStatus(disk, file).interrupted;
  } catch {
    return true;
  }
}

/** The owner of a leftover whose session is missing. */
const NO_OWNER: Owner = {
  sessionId: null,
  name: null,
  fault: "its session is not there, so that this may be the only copy of it",
  isUnderWay: false,
  holder: null,
};

/** Returns the requested leftovers, each checked by its session. Throws not_a_session, path_outside_root. */
export async function listLeftovers(
  deps: LifecycleDeps,
  wanted: WantedLeftovers,
  progress?: Progress,
): Promise<Leftover[]> {
  const files = [...(wanted.paths ? namedFiles(deps, wanted.paths) : findLeftoverFiles(deps))].filter(
    filterOf(deps, wanted),
  );
  const owners = new Map<string, Owner>();
  const found: Leftover[] = [];
  for (const [done, file] of files.entries()) {
    const { sessionPath } = file;
    const isAnnounced = file.kind === "announcement";
    const key = `${isAnnounced}${sessionPath}`;
    const owner = sessionPath === null ? NO_OWNER : (owners.get(key) ?? (await lookAt(deps, sessionPath, isAnnounced)));
    owners.set(key, owner);
    found.push(await describeLeftover(deps, file, owner));
    progress?.(done + 1, files.length);
  }
  return found.sort((a, b) => b.sizeBytes - a.sizeBytes || (a.path < b.path ? -1 : 1));
}

function* namedFiles(deps: LifecycleDeps, paths: readonly string[]): Generator<LeftoverFile> {
  for (const path of new Set(paths.map((path) => deps.allowed(path)))) {
    const found = fileAt(deps, path);
    if (!found) throw notLeftOver(deps, path);
    yield found;
  }
}

function notLeftOver({ disk }: LifecycleDeps, path: string): Failure {
  if (getKind(disk, path) === undefined)
    return new Failure("session_not_found", `There is nothing at ${path}.`, { path });
  const sentence = `${path} is nothing that is left over; only backups, files of migrated sessions, old containers, temporary files and what killed servers announced are.`;
  return new Failure("not_a_session", sentence, { path });
}

function filterOf(deps: LifecycleDeps, { sessionPath, kinds, before }: WantedLeftovers) {
  const owner = sessionPath === undefined ? undefined : findCurrentPath(deps.disk, deps.pathOf(sessionPath));
  return (file: LeftoverFile): boolean =>
    (owner === undefined || file.sessionPath === owner) &&
    (kinds === undefined || kinds.includes(file.kind)) &&
    (before === undefined || file.since < before);
}

/** Returns a leftover with the facts from its session. */
export async function describeLeftover(deps: LifecycleDeps, file: LeftoverFile, owner: Owner): Promise<Leftover> {
  const { sessionId, name } = owner;
  const needed = neededFor(deps, file, owner);
  const isWritten = file.kind !== "temporary" && file.kind !== "announcement";
  const more =
    needed === null && isWritten && owner.fault === null && (await mayHaveMore(deps, file)) ? HAS_MORE : null;
  const fault = isWritten ? (owner.fault ?? more) : null;
  const consequence = isWritten ? consequenceOf(file.path, more !== null) : null;
  return { ...file, sessionId, name, keptBecause: needed ?? fault, isNeeded: needed !== null, consequence };
}

const HAS_MORE = "it may have entries that its session lacks, of a program that wrote while it was relocated";

/** Returns whether the original of a relocated session may have entries that the session lacks. */
async function mayHaveMore(deps: LifecycleDeps, { path, sessionPath }: LeftoverFile): Promise<boolean> {
  if (sessionPath === null || formOf(basename(path))?.backup !== "relocated") return false;
  try {
    if (!isContainerName(sessionPath) && (await hasAllBytes(deps.disk, sessionPath, path))) return false;
    // Repaired, or in a container, they are other bytes.
    return useAndClose(deps.openStaged(path), (old) =>
      useAndClose(deps.open(sessionPath), (log) => !hasAllEntries(log, old)),
    );
  } catch (error) {
    // An unreadable original may contain anything.
    if (!(error instanceof Failure) && !isErrno(error)) throw error;
    return true;
  }
}

/** Returns the reason why a leftover must stay; null if it may be removed. */
function neededFor(deps: LifecycleDeps, { kind, path, sessionPath }: LeftoverFile, owner: Owner): string | null {
  const { disk, env } = deps;
  const { isUnderWay } = owner;
  if (kind === "announcement") {
    const holder = sessionPath === null ? findOrphanHolder(deps, path) : owner.holder;
    return holder && explainHolder(holder);
  }
  if (kind === "temporary") return isAbandoned(disk, path, env.now()) ? null : "a process may still be writing it";
  if (kind === "backup" || !isUnderWay) return null;
  return "its migration or rollback was interrupted; finish that first, by migrate_session or rollback_migration";
}

/** Returns the loss that removing a leftover causes, as a sentence. */
function consequenceOf(path: string, hasMore: boolean): string | null {
  const { kind, backup } = formOf(basename(path)) as Form;
  if (kind === "migrated")
    return "The session is in its container. Without this file, a rollback cannot bring the original back; it would write a new one from the container.";
  if (kind === "rolled_back") return "The record of its migration goes with it.";
  if (hasMore) return "Entries that only it has are lost with it.";
  if (backup === "damaged") return "Without it, the repair cannot be undone.";
  return backup === "repaired" ? "Without it, redo is impossible." : null;
}
