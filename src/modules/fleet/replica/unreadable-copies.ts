/** Unreadable copies: the fleet has their session, and the rest of them stays as a backup. */

import { basename, join } from "node:path";
import { Failure } from "../../../core/failure.ts";
import type { Log } from "../../../core/ports/store.ts";
import { getPointerFile, isContainerName } from "../../../storage/fs/container-paths.ts";
import { type Disk, renameExclusive } from "../../../storage/fs/disk.ts";
import { getInfo } from "../../../storage/fs/files.ts";
import { listNames } from "../../../storage/fs/folders.ts";
import { nameBackup } from "../../../storage/fs/quarantine.ts";
import {
  dropLock,
  getLockedFile,
  isLockInContainer,
  locateLock,
  locateLockInContainer,
} from "../../../storage/locks/lock-paths.ts";
import { type Locks, runIfLocked } from "../../../storage/locks/locks.ts";

/** Returns whether a log lacks its header, or entries that it had. */
export function isUnreadableLog({ readOnly, damage }: Log): boolean {
  return isUnreadableError(readOnly) || damage.some(({ kind }) => kind === "bad_header");
}

/** Returns whether an error means that a path is unreadable for every program. */
export function isUnreadableError(error: unknown): boolean {
  if (!(error instanceof Failure)) return false;
  const { name, details } = error;
  // For another program's file, the failure names the format.
  return name === "corrupt" || (name === "not_a_session" && (details.format ?? "empty") === "empty");
}

/** Returns whether an existing file cannot be read as a session. */
export function isUnreadable(file: string, open: (file: string) => Log): boolean {
  try {
    const log = open(file);
    log.close();
    return isUnreadableLog(log);
  } catch (error) {
    // As of a container that lacks its header.
    return isUnreadableError(error) || (error instanceof Failure && error.name === "session_not_found");
  }
}

/**
 * Renames an unreadable file to a backup, under its lock. Returns that name; null if it is readable by now, is gone, or
 * another process has its lock.
 */
export function moveToBackup(
  { disk, locks }: { disk: Disk; locks: Locks },
  file: string,
  isStillUnreadable: () => boolean,
): string | null {
  const key = getInfo(disk, getLockedFile(file)) ?? getInfo(disk, file);
  if (!key) return null;
  // While another process has the lock, it may be adding the missing entries: the file is checked before.
  const before = computeStamp(disk, file);
  if (!isStillUnreadable()) return null;
  let backup: string | null = null;
  const place = isContainerName(file) ? locateLockInContainer(file) : locateLock(disk, file, key.inode);
  const rename = (): void => {
    if (computeStamp(disk, file) !== before) return;
    // After an interrupted repair, a container's *.damaged.bak is the session.
    const name = nameBackup(disk, file, "spoilt");
    disk.rename(file, name);
    backup = name;
    if (!isContainerName(file)) return;
    dropLock(disk, name);
    const pointer = getPointerFile(file);
    if (getInfo(disk, pointer)) disk.rename(pointer, join(name, basename(pointer)));
  };
  runIfLocked(locks, () => key, place, rename);
  return backup;
}

/** Returns a value that any write to a file, or to a container's files except its lock, changes. */
function computeStamp(disk: Disk, path: string): string {
  const { kind, inode, size, modified, changed } = getInfo(disk, path) ?? {};
  if (kind !== "folder") return JSON.stringify([inode, size, modified, changed]);
  const names = listNames(disk, path).filter((name) => !isLockInContainer(name));
  return JSON.stringify([inode, names.map((name) => [name, computeStamp(disk, join(path, name))])]);
}

/** Gives a backup its name back, unless something has the name by now. */
export function restoreBackup(disk: Disk, backup: string, file: string): void {
  try {
    if (getInfo(disk, file, true)) return;
    if (!isContainerName(file)) return renameExclusive(disk, backup, file);
    const pointer = getPointerFile(file);
    disk.rename(backup, file);
    const kept = join(file, basename(pointer));
    if (getInfo(disk, kept)) disk.rename(kept, pointer);
  } catch {
    // It stays under the other name, and the next opening fetches the session.
  }
}
