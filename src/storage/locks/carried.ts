/**
 * The lock that a session carries: an empty file in the session's own folder, locked by SQLite or by flock(1). It
 * excludes processes that share only that folder. The kernel holds the lock, so that it is free when its holder dies.
 *
 * SQLite holds POSIX locks of this process, which end as soon as the process closes any descriptor of that file. So
 * nothing else may ever open a lock file: code that copies or moves a container leaves it out. The socket is taken
 * first and excludes within the process; every descriptor here is closed while the socket is ours.
 *
 * The file exists only while a process holds it, or died with it. Only its holder removes it, before unlocking. A
 * process that has locked a file checks whether the file still has its name, and if not begins again: a lock file
 * without a name excludes no one. The descriptor stays open until then, so that its inode is not given to another file
 * and the same inode under the name is the same file.
 */

import type { LockKind } from "../../core/ports/lock.ts";
import { closeQuietly, type Disk, type FileInfo, removeQuietly } from "../fs/disk.ts";
import { getInfo } from "../fs/files.ts";
import { findSqlite, type OpenDatabase } from "../fs/sqlite.ts";
import { isSameFile } from "../fs/stamps.ts";
import {
  type FileKey,
  type FileLocker,
  isJustMade,
  isListed,
  type LockLocation,
  type LockOptions,
  requireErrno,
  TRIES,
} from "./contract.ts";
import { Flock } from "./flock.ts";
import { SqliteLock } from "./sqlite-lock.ts";

export interface CarriedLock {
  readonly kind: LockKind;
  /** Returns the current path of the lock file; undefined when it has no name any more. */
  currentPath(): string | undefined;
  /** Unlocks and removes the file, given its current path. */
  release(place: string | undefined): void;
}

export class CarriedLocks {
  private readonly disk: Disk;
  private readonly find: () => OpenDatabase | undefined;
  private found: { sqlite: SqliteLock | null; flock: Flock } | undefined;
  /** Devices on which none of the means works. */
  private readonly hopeless = new Set<number>();

  constructor({ disk, sqlite = findSqlite }: LockOptions) {
    this.disk = disk;
    this.find = sqlite;
  }

  /** Takes the lock at a place. Returns "held" when another process has it, null when no file can carry one there. */
  acquire({ device }: FileKey, place: LockLocation): CarriedLock | "held" | null {
    if (this.hopeless.has(device) || this.lockers().next().done) return null;
    for (let tries = 0; tries < TRIES; tries++) {
      const opened = this.open(place);
      if (opened === "again") continue;
      if (opened === "held" || opened === null) return opened;
      const acquired = this.lock(place.path, opened.fd, opened.isNew, device);
      if (acquired !== "again") return acquired;
    }
    // Other processes take and release it all the time.
    return "held";
  }

  /** Returns whether a process holds the lock at a path. Creates no file, and never makes a taker of the lock fail. */
  isHeld(path: string): boolean {
    try {
      const info = this.disk.info(path);
      if (!isLockFile(info)) return false;
      return isListed(this.disk, info) || (this.all().sqlite?.isHeld(path) ?? false);
    } catch {
      // Usually there is no file: a lock that is held has one.
      return false;
    }
  }

  /** Returns whether there is a lock file at a path: a process holds it, or died with it. */
  isThere(path: string): boolean {
    const info = getInfo(this.disk, path);
    return info !== null && isLockFile(info);
  }

  /** Finds the means, which loads SQLite. */
  prepare(): void {
    this.all();
  }

  private all(): { sqlite: SqliteLock | null; flock: Flock } {
    if (!this.found) {
      const open = this.find();
      this.found = { sqlite: open ? new SqliteLock(open, this.disk) : null, flock: new Flock(this.disk) };
    }
    return this.found;
  }

  /** Yields the available means. The check for flock starts a process, so it is made only when SQLite cannot lock. */
  private *lockers(): Generator<FileLocker, void> {
    const { sqlite, flock } = this.all();
    if (sqlite) yield sqlite;
    if (flock.isThere) yield flock;
  }

  /** Creates the lock file, or opens it when it exists. */
  private open({ path, like }: LockLocation): { fd: number; isNew: boolean } | "held" | "again" | null {
    const { disk } = this;
    try {
      const fd = disk.create(path);
      if (like !== undefined) lend(disk, like, fd);
      return { fd, isNew: true };
    } catch (error) {
      const { code } = requireErrno(error, "locking the session");
      if (code !== "EEXIST") return null;
    }
    try {
      return { fd: disk.openAppend(path), isNew: false };
    } catch (error) {
      const { code } = requireErrno(error, "locking the session");
      if (code === "ENOENT") return "again";
      // It belongs to another user. Whether that user's process holds it can be seen nevertheless.
      return this.isHeld(path) || isJustMade(disk, getInfo(disk, path)) ? "held" : null;
    }
  }

  private lock(path: string, fd: number, isNew: boolean, device: number): CarriedLock | "held" | "again" | null {
    const { disk } = this;
    let info: FileInfo | undefined;
    let unlock: (() => void) | "held" | null = null;
    try {
      info = disk.infoOf(fd);
      if (!isLockFile(info)) return null;
      for (const means of this.lockers()) {
        unlock = means.lock(path, fd, info, isNew);
        if (unlock === "held") return "held";
        if (unlock === null) continue;
        if (!hasName(disk, path, info)) return "again";
        const lock = this.lockOf(means.kind, path, fd, info, unlock);
        unlock = null;
        fd = -1;
        return lock;
      }
      this.hopeless.add(device);
      return null;
    } finally {
      if (typeof unlock === "function") unlock();
      if (fd >= 0) {
        // No process can hold a file that cannot be locked.
        if (isNew && info && this.hopeless.has(device) && hasName(disk, path, info)) removeQuietly(disk, path);
        closeQuietly(disk, fd);
      }
    }
  }

  private lockOf(kind: LockKind, path: string, fd: number, info: FileInfo, unlock: () => void): CarriedLock {
    const { disk } = this;
    return {
      kind,
      currentPath: () => (hasName(disk, path, info) ? path : currentPathOf(disk, fd, info)),
      release(place) {
        if (place !== undefined) removeQuietly(disk, place);
        unlock();
        closeQuietly(disk, fd);
      },
    };
  }
}

/** Returns the current path of an open file. */
function currentPathOf(disk: Disk, fd: number, info: FileInfo): string | undefined {
  try {
    const place = disk.realPath(`/proc/self/fd/${fd}`);
    return hasName(disk, place, info) ? place : undefined;
  } catch {
    return undefined;
  }
}

/** Returns whether a file is a lock file, which is empty. Any other file with such a name is left alone. */
function isLockFile({ kind, size }: FileInfo): boolean {
  return kind === "file" && size === 0;
}

/** Gives a new lock file the permissions of the session, so that every user who may write the session may lock it. */
function lend(disk: Disk, like: string, fd: number): void {
  try {
    const { mode, owner } = disk.info(like);
    if ((mode & 0o777) !== 0o600 || owner !== process.getuid?.()) disk.copyMode(like, fd);
  } catch {
    // Then only our user may open it.
  }
}

/** Returns whether a file still has a name. */
function hasName(disk: Disk, path: string, info: FileInfo): boolean {
  const now = getInfo(disk, path);
  return now !== null && isSameFile(now, info);
}
