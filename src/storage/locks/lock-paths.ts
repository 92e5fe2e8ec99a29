/**
 * Where the lock lies that a session carries, the same for every process that can open the session: beside a session
 * file under a name made of its inode, so that it is one for all names of the file in that folder and stays when the
 * file is renamed; inside a container, so that it moves along.
 */

import { dirname, join } from "node:path";
import { headerFile } from "../fs/container-paths.ts";
import { type Disk, removeQuietly } from "../fs/disk.ts";
import type { LockPlace } from "./contract.ts";

const IN_CONTAINER = "writer.lock";
const HOLDER = ".holder";

/** Returns where the lock of a session file lies that is made in `folder`. */
export function lockInFolder(folder: string, inode: number): LockPlace {
  return { path: join(folder, `.pi-session-${inode}.lock`) };
}

/** Returns where the lock of a session file lies, by whatever link the file is named. */
export function lockBeside(disk: Disk, file: string, inode: number): LockPlace {
  let real = file;
  try {
    real = disk.realPath(file);
  } catch {
    // It is not there yet, or no more; what has this path then lies in this folder.
  }
  return { ...lockInFolder(dirname(real), inode), like: real };
}

export function lockInContainer(container: string): LockPlace {
  return { path: join(container, IN_CONTAINER), like: headerFile(container) };
}

/** Returns the note of who holds a lock file. */
export function noteBeside(lockPath: string): string {
  return lockPath.replace(/\.lock$/, HOLDER);
}

/**
 * Gives the lock that is held in a container, and the note about it, to the one that takes its place: a second name of
 * the same file, so that whoever comes at whatever moment meets the same lock.
 */
export function shareLock(disk: Disk, container: string, next: string): void {
  for (const name of [IN_CONTAINER, noteBeside(IN_CONTAINER)])
    try {
      disk.link(join(container, name), join(next, name));
    } catch {
      // It was not to be had there, or the file system has no second names.
    }
}

/** Removes those names from a container that is no session any more. */
export function dropLock(disk: Disk, container: string): void {
  for (const name of [IN_CONTAINER, noteBeside(IN_CONTAINER)]) removeQuietly(disk, join(container, name));
}

/** Whether a name in a container is that of its lock or of the note about it, which no copy of a container gets. */
export function isLockInContainer(name: string): boolean {
  return name === IN_CONTAINER || name === noteBeside(IN_CONTAINER);
}
