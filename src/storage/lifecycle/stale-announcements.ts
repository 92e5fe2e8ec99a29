/**
 * Announcements of killed holders next to sessions. Only its lock shows whether a session is held; the next holder removes
 * the announcement of a dead one, and so does any process with the lock until then. Those in folders of the user's are
 * left to the system, which empties most of these.
 */

import { basename, dirname, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { LeftoverFile } from "../../core/ports/leftovers.ts";
import type { Holder } from "../../core/ports/lock.ts";
import { isContainerName } from "../fs/container-paths.ts";
import type { Disk, FileInfo } from "../fs/disk.ts";
import { getInfo } from "../fs/files.ts";
import { listFolderIfAllowed } from "../fs/folders.ts";
import { isSessionName } from "../fs/paths.ts";
import {
  ANNOUNCEMENT_FOLDER,
  isPrivate,
  type PrivatePlace,
  removeIfEmpty,
  usePrivateFolder,
} from "../fs/private-folders.ts";
import { parseAnnouncedInode } from "../locks/announcements.ts";
import { isLock } from "../locks/contract.ts";
import { findHolders } from "../locks/found-locks.ts";
import { locateLockInFolder } from "../locks/lock-paths.ts";
import type { LifecycleDeps } from "./exclusive.ts";

type Deps = Pick<LifecycleDeps, "disk" | "locks" | "paths">;

/** Returns whether a path is that of an announcement, or of the folder for them. */
export function isAnnouncement(path: string): boolean {
  return basename(path) === ANNOUNCEMENT_FOLDER || basename(dirname(path)) === ANNOUNCEMENT_FOLDER;
}

/** Returns the folder for announcements in a path. */
function placeOf({ disk }: Deps, path: string): PrivatePlace {
  return { disk, folder: basename(path) === ANNOUNCEMENT_FOLDER ? path : dirname(path), name: "" };
}

/** Yields the announcements next to unheld sessions in a folder, as far as visible without the lock. */
export function* findStale(deps: Deps, folder: string): Generator<LeftoverFile> {
  const found = announcementsIn(deps.disk, folder);
  if (found.length === 0) return;
  const sessions = found.flatMap(({ sessionPath }) => sessionPath ?? []);
  const holders = findHolders({ ...deps, stateFolder: deps.paths.state }, new Set(sessions));
  for (const one of found) {
    const isHeld = one.sessionPath === null ? findOrphanHolder(deps, one.path) !== null : holders.has(one.sessionPath);
    if (!isHeld) yield one;
  }
}

/** Returns the announcement at a path, whether or not its session is held; undefined if this user has none there. */
export function findAnnouncement(deps: Deps, path: string): LeftoverFile | undefined {
  return announcementsIn(deps.disk, dirname(placeOf(deps, path).folder)).find((one) => one.path === path);
}

/** Returns the announcements next to the sessions in a folder, or the folder for them if it is empty. */
function announcementsIn(disk: Disk, folder: string): LeftoverFile[] {
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
    if (sessionPath === null && sessionsByInode(disk, dirname(place.folder)).has(lock?.key.inode ?? -1))
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
