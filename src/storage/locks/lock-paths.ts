/**
 * Paths of the lock files of sessions, the same for every process that can open the session. The lock of a session file
 * lies in the same folder under a name made from the inode, so that all names of the file in that folder have one lock
 * and a rename keeps it. The lock of a container lies inside it and moves with it.
 */

import { dirname, join } from "node:path";
import { headerFile, isContainerName } from "../fs/container-paths.ts";
import { type Disk, removeQuietly } from "../fs/disk.ts";
import type { LockLocation } from "./contract.ts";

const IN_CONTAINER = "writer.lock";
const HOLDER = ".holder";

/** Returns the file whose inode identifies the lock of a session. */
export function getLockedFile(session: string): string {
  return isContainerName(session) ? headerFile(session) : session;
}

/** Returns the location of the lock of a session file in `folder`. */
export function locateLockInFolder(folder: string, inode: number): LockLocation {
  return { path: join(folder, `.pi-session-${inode}.lock`) };
}

/** Returns the location of the lock of a session file. `file` may be a link to it. */
export function locateLock(disk: Disk, file: string, inode: number): LockLocation {
  let real = file;
  try {
    real = disk.realPath(file);
  } catch {
    // The file is missing. Any file that gets this path will lie in this folder.
  }
  return { ...locateLockInFolder(dirname(real), inode), like: real };
}

export function locateLockInContainer(container: string): LockLocation {
  return { path: join(container, IN_CONTAINER), like: headerFile(container) };
}

/** Returns the path of the holder's note for a lock file. */
export function getNotePath(lockPath: string): string {
  return lockPath.replace(/\.lock$/, HOLDER);
}

/** Links the held lock of a container, and its note, into the one that replaces it, so that all find the same lock. */
export function linkLock(disk: Disk, container: string, next: string): void {
  for (const name of [IN_CONTAINER, getNotePath(IN_CONTAINER)])
    try {
      disk.link(join(container, name), join(next, name));
    } catch {
      // The container has no such file, or the file system has no hard links.
    }
}

/** Removes the lock and its note from a container that is no longer a session. */
export function dropLock(disk: Disk, container: string): void {
  for (const name of [IN_CONTAINER, getNotePath(IN_CONTAINER)]) removeQuietly(disk, join(container, name));
}

/** Returns whether a name in a container is that of its lock or the lock's note; these are never copied with it. */
export function isLockInContainer(name: string): boolean {
  return name === IN_CONTAINER || name === getNotePath(IN_CONTAINER);
}
