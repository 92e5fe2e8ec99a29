/**
 * Announcements of holders beside sessions, where their servers were killed. Whether somebody holds a session is told by
 * its lock and by nothing else; the next holder removes what the dead one left, and so does whoever has the lock
 * meanwhile.
 */

import { basename, dirname, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { LeftoverFile } from "../../core/ports/leftovers.ts";
import type { Holder } from "../../core/ports/store.ts";
import { announcedInode } from "../attach/announcements.ts";
import { BESIDE, inPrivateFolder, isPrivate, type PrivatePlace, removeIfEmpty } from "../attach/private-folders.ts";
import { isContainerName } from "../fs/container-paths.ts";
import type { Disk, FileInfo } from "../fs/disk.ts";
import { infoOrNull } from "../fs/files.ts";
import { entriesIfListed } from "../fs/folders.ts";
import { isSessionName } from "../fs/paths.ts";
import { isLock } from "../locks/contract.ts";
import { findHolders } from "../locks/found-locks.ts";
import { lockInFolder } from "../locks/lock-paths.ts";
import type { LifecycleDeps } from "./exclusive.ts";

type Deps = Pick<LifecycleDeps, "disk" | "locks" | "paths">;

/** Whether a path is that of an announcement, or of the folder for them. */
export function isAnnouncement(path: string): boolean {
  return basename(path) === BESIDE || basename(dirname(path)) === BESIDE;
}

/** Returns the folder for announcements, if a path is that or leads into it. */
function placeOf(disk: Disk, path: string): PrivatePlace {
  return { disk, folder: basename(path) === BESIDE ? path : dirname(path), name: "" };
}

/** Yields the announcements beside the sessions in a folder that nobody holds, as far as can be seen without the lock. */
export function* staleIn(deps: Deps, folder: string): Generator<LeftoverFile> {
  const found = announcementsIn(deps.disk, folder);
  if (found.length === 0) return;
  const sessions = found.flatMap(({ sessionPath }) => sessionPath ?? []);
  const holders = findHolders({ ...deps, stateFolder: deps.paths.state }, new Set(sessions));
  for (const one of found) {
    const isHeld = one.sessionPath === null ? holderOfNone(deps, one.path) !== null : holders.has(one.sessionPath);
    if (!isHeld) yield one;
  }
}

/** Returns the announcement at a path, whoever holds its session; undefined when there is none of this user. */
export function announcementAt({ disk }: Deps, path: string): LeftoverFile | undefined {
  return announcementsIn(disk, dirname(placeOf(disk, path).folder)).find((one) => one.path === path);
}

/** Returns the announcements beside the sessions in a folder, or the folder for them where that is empty. */
function announcementsIn(disk: Disk, folder: string): LeftoverFile[] {
  const place = placeOf(disk, join(folder, BESIDE));
  const files = filesIn(place);
  if (files === null) return [];
  if (files.length === 0) {
    const info = infoOrNull(disk, place.folder, true);
    return info === null ? [] : [toLeftover(place.folder, info, null)];
  }
  const sessions = sessionsByInode(disk, folder);
  return files.flatMap(({ name, info }) => {
    const inode = announcedInode(name);
    if (inode === undefined || !isPrivate(info, name.endsWith(".sock") ? "other" : "file")) return [];
    return [toLeftover(join(place.folder, name), info, sessions.get(inode) ?? null)];
  });
}

/** Returns what is in the folder for announcements; null unless it is there and only this user can have made it. */
function filesIn(place: PrivatePlace): { name: string; info: FileInfo }[] | null {
  try {
    return inPrivateFolder(place, (at, held) =>
      held.names(at).flatMap((name) => {
        const info = infoOrNull(held, join(at, name), true);
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

/** Returns the sessions in a folder by the inodes that they are announced by. */
function sessionsByInode(disk: Disk, folder: string): Map<number, string> {
  const found = new Map<number, string>();
  for (const { name, kind } of entriesIfListed(disk, folder)) {
    const isSession = kind === "file" ? isSessionName(name) : kind === "folder" && isContainerName(name);
    const info = isSession ? infoOrNull(disk, join(folder, name), true) : null;
    if (info !== null) found.set(info.inode, join(folder, name));
  }
  return found;
}

/** Returns who holds a session that was announced and is not there any more; null for nobody. */
export function holderOfNone({ disk, locks }: Deps, path: string): Holder | null {
  const lock = lockOfNone(disk, path);
  return lock && locks.holder(lock.key, lock.place);
}

/** Returns the lock that a session file with the announced inode has, whatever its name. */
function lockOfNone(disk: Disk, path: string) {
  const inode = announcedInode(basename(path));
  const folder = dirname(placeOf(disk, path).folder);
  const device = infoOrNull(disk, folder)?.device;
  if (inode === undefined || device === undefined) return null;
  return { key: { device, inode }, place: lockInFolder(folder, inode) };
}

/**
 * Removes an announcement for good, and the folder when it was the last. The lock of its session is held. Where that is
 * not there, its lock is taken meanwhile: throws session_locked if somebody has it, or if the session is there again.
 */
export function removeStale(deps: Deps, { path, sessionPath }: Pick<LeftoverFile, "path" | "sessionPath">): void {
  const { disk, locks } = deps;
  const lock = sessionPath === null ? lockOfNone(disk, path) : null;
  const acquired = lock && locks.acquire(lock.key, lock.place);
  if (acquired && !isLock(acquired)) throw inUse(acquired);
  try {
    const place = placeOf(disk, path);
    if (sessionPath === null && sessionsByInode(disk, dirname(place.folder)).has(lock?.key.inode ?? -1))
      throw new Failure("session_locked", "Its session came back meanwhile; look at it again.");
    // Others may have removed it, and nobody can have made it anew.
    if (path !== place.folder) inPrivateFolder(place, (at, held) => removeIfThere(held, join(at, basename(path))));
    removeIfEmpty(place);
  } finally {
    acquired?.release();
  }
}

function removeIfThere(disk: Disk, path: string): void {
  if (infoOrNull(disk, path, true) !== null) disk.remove(path);
}

function inUse({ client, pid }: Holder): Failure {
  return new Failure(
    "session_locked",
    `${client} (process ${pid}) holds the session. It takes this away when it ends.`,
  );
}

/** Returns why an announcement stays, as a clause. */
export function heldText({ client, pid }: Holder): string {
  return `${client} (process ${pid}) holds its session and is found by this`;
}
