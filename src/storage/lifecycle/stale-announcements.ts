/**
 * Announcements of killed holders, next to sessions and in folders of the user's. Only its lock shows whether a session
 * is held; the next holder removes the announcement of a dead one, and so does any process with the lock until then.
 */

import { basename, dirname, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { LeftoverFile } from "../../core/ports/leftovers.ts";
import type { Holder } from "../../core/ports/lock.ts";
import { isContainerName } from "../fs/container-paths.ts";
import type { Disk, FileInfo } from "../fs/disk.ts";
import { getInfo } from "../fs/files.ts";
import { listFolderIfAllowed } from "../fs/folders.ts";
import { isSessionName, listAllFolders } from "../fs/paths.ts";
import {
  ANNOUNCEMENT_FOLDER,
  isPrivate,
  makeUserName,
  type PrivatePlace,
  removeIfEmpty,
  type UserFolder,
  usePrivateFolder,
} from "../fs/private-folders.ts";
import {
  getAnnouncedSession,
  parseAnnouncedInode,
  parseAnnouncedName,
  readAnnouncement,
} from "../locks/announcements.ts";
import { type FileKey, isLock, type LockLocation } from "../locks/contract.ts";
import { findHolders } from "../locks/found-locks.ts";
import { locateLockInFolder } from "../locks/lock-paths.ts";
import type { LifecycleDeps } from "./exclusive.ts";

type Deps = Pick<LifecycleDeps, "disk" | "locks" | "paths" | "userFolders">;

/** An announcement, with the lock of its session if that is missing. */
interface AnnouncedFile extends LeftoverFile {
  readonly lock?: { readonly key: FileKey; readonly place: LockLocation };
}

/** Returns whether a path is that of an announcement, or of the folder for them. */
export function isAnnouncement({ userFolders }: Pick<Deps, "userFolders">, path: string): boolean {
  return isNextToSessions(path) || userFolderOf({ userFolders }, path) !== undefined;
}

function isNextToSessions(path: string): boolean {
  return basename(path) === ANNOUNCEMENT_FOLDER || basename(dirname(path)) === ANNOUNCEMENT_FOLDER;
}

/** Returns the folder of the user's that contains a path. */
function userFolderOf({ userFolders = [] }: Pick<Deps, "userFolders">, path: string): UserFolder | undefined {
  return userFolders.find(({ folder }) => folder === dirname(path));
}

/** Returns the folder for announcements in a path. */
function placeOf(deps: Deps, path: string): PrivatePlace {
  const found = userFolderOf(deps, path);
  if (found) return { ...found, name: "" };
  return { disk: deps.disk, folder: basename(path) === ANNOUNCEMENT_FOLDER ? path : dirname(path), name: "" };
}

/** Yields the announcements next to unheld sessions in a folder, as far as visible without the lock. */
export function findStale(deps: Deps, folder: string): Generator<LeftoverFile> {
  return staleAmong(deps, announcementsIn(deps.disk, folder));
}

/** Yields those in folders of the user's about unheld sessions of the session folders. */
export function* findStaleOfUser(deps: Deps): Generator<LeftoverFile> {
  const { userFolders = [] } = deps;
  const found = userFolders.flatMap((place) => announcementsOfUser(deps, place));
  if (found.length > 0) yield* staleAmong(deps, found);
}

function* staleAmong(deps: Deps, found: readonly AnnouncedFile[]): Generator<LeftoverFile> {
  if (found.length === 0) return;
  const sessions = found.flatMap(({ sessionPath }) => sessionPath ?? []);
  const holders = findHolders({ ...deps, stateFolder: deps.paths.state }, new Set(sessions));
  for (const { lock: _, ...one } of found) {
    const isHeld = one.sessionPath === null ? findOrphanHolder(deps, one.path) !== null : holders.has(one.sessionPath);
    if (!isHeld) yield one;
  }
}

/** Returns the announcement at a path, whether or not its session is held; undefined if this user has none there. */
export function findAnnouncement(deps: Deps, path: string): LeftoverFile | undefined {
  const { lock: _, ...found } = announcedAt(deps, path) ?? { path: undefined };
  return found.path === undefined ? undefined : found;
}

function announcedAt(deps: Deps, path: string): AnnouncedFile | undefined {
  const ofUser = userFolderOf(deps, path);
  const { disk } = deps;
  const there = ofUser ? announcementsOfUser(deps, ofUser) : announcementsIn(disk, dirname(placeOf(deps, path).folder));
  return there.find((one) => one.path === path);
}

/** Returns the announcements in a folder of the user's, if their sessions are, or were, in the session folders. */
function announcementsOfUser(deps: Deps, { disk, folder }: UserFolder): AnnouncedFile[] {
  const place = { disk, folder, name: "" };
  const folders = new Set(listAllFolders(deps.paths, deps.disk));
  const sessions = new Map<string, Pick<AnnouncedFile, "sessionPath" | "lock"> | undefined>();
  const sessionOf = (name: string): Pick<AnnouncedFile, "sessionPath" | "lock"> | undefined => {
    if (!sessions.has(name)) sessions.set(name, announcedSession(deps, folders, place, name));
    return sessions.get(name);
  };
  return (filesIn(place) ?? []).flatMap(({ name, info }) => {
    const digest = parseAnnouncedName(name);
    if (digest === undefined || !isPrivate(info, name.endsWith(".sock") ? "other" : "file")) return [];
    const session = sessionOf(digest);
    return session ? [{ ...toLeftover(join(folder, name), info, null), ...session }] : [];
  });
}

/** Returns the session of an announcement in a folder of the user's, or the session's lock if it is gone. */
function announcedSession(
  { disk }: Deps,
  folders: ReadonlySet<string>,
  place: PrivatePlace,
  name: string,
): Pick<AnnouncedFile, "sessionPath" | "lock"> | undefined {
  const announcement = usePrivateFolder(place, (at, held) => readAnnouncement(held, at, name));
  const { path, inode } = (announcement && getAnnouncedSession(announcement)) ?? {};
  if (path === undefined || inode === undefined) return undefined;
  const folder = dirname(path);
  const device = folders.has(folder) ? getInfo(disk, folder)?.device : undefined;
  // Another mount may have other files at this path.
  if (device === undefined || makeUserName(device, inode) !== name) return undefined;
  if (getInfo(disk, path, true)?.inode === inode) return { sessionPath: path };
  return { sessionPath: null, lock: { key: { device, inode }, place: locateLockInFolder(folder, inode) } };
}

/** Returns the announcements next to the sessions in a folder, or the folder for them if it is empty. */
function announcementsIn(disk: Disk, folder: string): AnnouncedFile[] {
  const place = { disk, folder: join(folder, ANNOUNCEMENT_FOLDER), name: "" };
  const files = filesIn(place);
  if (files === null) return [];
  if (files.length === 0) {
    const info = getInfo(disk, place.folder, true);
    return info === null ? [] : [toLeftover(place.folder, info, null)];
  }
  const sessions = sessionsByInode(disk, folder);
  return files.flatMap(({ name, info }) => {
    const inode = parseAnnouncedInode(name);
    if (inode === undefined || !isPrivate(info, name.endsWith(".sock") ? "other" : "file")) return [];
    return [toLeftover(join(place.folder, name), info, sessions.get(inode) ?? null)];
  });
}

/** Returns the files in the folder for announcements; null unless it exists and this user alone can have made it. */
function filesIn(place: PrivatePlace): { name: string; info: FileInfo }[] | null {
  try {
    return usePrivateFolder(place, (at, held) =>
      held.names(at).flatMap((name) => {
        const info = getInfo(held, join(at, name), true);
        return info === null ? [] : [{ name, info }];
      }),
    );
  } catch {
    return null;
  }
}

function toLeftover(path: string, { kind, size, changed, modified }: FileInfo, sessionPath: string | null) {
  const sizeBytes = kind === "file" ? size : 0;
  return { path, kind: "announcement", sizeBytes, since: changed ?? modified, sessionPath } as const;
}

/** Returns the sessions in a folder by the inodes in their announcements. */
function sessionsByInode(disk: Disk, folder: string): Map<number, string> {
  const found = new Map<number, string>();
  for (const { name, kind } of listFolderIfAllowed(disk, folder)) {
    const isSession = kind === "file" ? isSessionName(name) : kind === "folder" && isContainerName(name);
    const info = isSession ? getInfo(disk, join(folder, name), true) : null;
    if (info !== null) found.set(info.inode, join(folder, name));
  }
  return found;
}

/** Returns the holder of an announced session that is missing; null if it is not held. */
export function findOrphanHolder(deps: Deps, path: string): Holder | null {
  const lock = findOrphanLock(deps, path);
  return lock && deps.locks.holder(lock.key, lock.place);
}

/** Returns the lock of a session file with the announced inode, whatever its name. */
function findOrphanLock(deps: Deps, path: string) {
  if (userFolderOf(deps, path)) return announcedAt(deps, path)?.lock ?? null;
  const inode = parseAnnouncedInode(basename(path));
  const folder = dirname(placeOf(deps, path).folder);
  const device = getInfo(deps.disk, folder)?.device;
  if (inode === undefined || device === undefined) return null;
  return { key: { device, inode }, place: locateLockInFolder(folder, inode) };
}

/**
 * Removes an announcement for good, and the folder after the last one. The lock of its session is held. If the session
 * is missing, takes its lock: throws session_locked if another process has it, or if the session is back.
 */
export function removeStale(deps: Deps, { path, sessionPath }: Pick<LeftoverFile, "path" | "sessionPath">): void {
  const { disk, locks } = deps;
  const lock = sessionPath === null ? findOrphanLock(deps, path) : null;
  const acquired = lock && locks.acquire(lock.key, lock.place);
  if (acquired && !isLock(acquired)) throw inUse(acquired);
  try {
    const place = placeOf(deps, path);
    const folder = lock ? dirname(lock.place.path) : dirname(place.folder);
    if (sessionPath === null && sessionsByInode(disk, folder).has(lock?.key.inode ?? -1))
      throw new Failure("session_locked", "Its session came back meanwhile; look at it again.");
    // Others may have removed it, and no process can have made it again.
    if (path !== place.folder) usePrivateFolder(place, (at, held) => removeIfThere(held, join(at, basename(path))));
    removeIfEmpty(place);
  } finally {
    acquired?.release();
  }
}

function removeIfThere(disk: Disk, path: string): void {
  if (getInfo(disk, path, true) !== null) disk.remove(path);
}

function inUse({ client, pid }: Holder): Failure {
  return new Failure(
    "session_locked",
    `${client} (process ${pid}) holds the session. That process removes the announcement when it ends.`,
  );
}

/** Returns the reason why an announcement stays, as a clause. */
export function explainHolder({ client, pid }: Holder): string {
  return `${client} (process ${pid}) holds its session and is found by this`;
}
