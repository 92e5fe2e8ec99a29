/** The contract of locks, and helpers that every kind of lock shares. */

import { isErrno, toStorageFailure } from "../../core/errno.ts";
import type { Holder, LockKind } from "../../core/ports/lock.ts";
import { type Disk, type FileInfo, readUnsized } from "../fs/disk.ts";
import type { OpenDatabase } from "../fs/sqlite.ts";
import { readDiskClock } from "../fs/stamps.ts";

export interface FileKey {
  readonly device: number;
  readonly inode: number;
}

export interface Lock {
  /** Missing when there can be no other writer. */
  readonly kind?: LockKind;
  /** True if the previous holder died with the lock, or could not remove its note: it was still there. */
  readonly previousHolderDied?: boolean;
  /**
   * Takes the lock's file again if another program removed it: without the file the lock excludes no one beyond this
   * network namespace. Returns false if another process took the lock: the file is that process's then, and `release`
   * does not remove it. `find` returns the file's present location, which may have changed. Never throws.
   */
  renew?(find: () => LockLocation | undefined): boolean;
  release(): void;
}

/** The place of a lock file in a session's folder. */
export interface LockLocation {
  /** The lock file, created and removed as needed. Nothing else may ever open it (see `carried.ts`). */
  readonly path: string;
  /** The file whose owner and permissions it gets; by default only our user may open it. */
  readonly like?: string;
}

export interface Locks {
  /**
   * Takes the lock of a file without waiting, or returns its holder. Throws read_only when no lock can be kept at all,
   * and storage_failed when the system refuses one for now.
   */
  acquire(file: FileKey, place?: LockLocation): Lock | Holder;
  /** Loads the dependencies of a lock, to save the first one the delay (SQLite takes 10 ms). Never throws. */
  prepare?(): void;
  /**
   * Returns the other holder of a file's lock, if any. Creates nothing, and never makes a taker fail. A holder in
   * another pid namespace may be invisible: `wasRefused` says that the lock was refused just now, which proves a holder
   * if the lock file is there.
   */
  holder(file: FileKey, place?: LockLocation, wasRefused?: boolean): Holder | null;
}

/** A kernel lock on an open file. */
export interface FileLocker {
  readonly kind: "sqlite" | "flock";
  /** Locks the file. Returns a function that unlocks it, "held" if it is locked, or null if this kind of lock fails. */
  lock(path: string, fd: number, info: FileInfo, isNew: boolean): (() => void) | "held" | null;
}

export interface LockOptions {
  readonly disk: Disk;
  readonly stateFolder: string;
  /** Name of this server for processes that find the file locked. */
  readonly client: string;
  /** Returns the current time in ISO 8601. */
  readonly now: () => string;
  /** Returns the available SQLite. It is called when the first lock is taken. */
  readonly sqlite?: () => OpenDatabase | undefined;
}

export function isLock(acquired: Lock | Holder): acquired is Lock {
  return "release" in acquired;
}

/**
 * Runs `deed` with the lock of the file that `find` returns. Does nothing if another process has the lock, it cannot be
 * taken, or `deed` fails: a caller that needs the outcome checks the file.
 */
export function runIfLocked(locks: Locks, find: () => FileKey, place: LockLocation, deed: () => void): void {
  try {
    const lock = locks.acquire(find(), place);
    if (!isLock(lock)) return;
    try {
      deed();
    } finally {
      lock.release();
    }
  } catch {
    // The file stays, or its lock does.
  }
}

/** Returns a lock whose release has an effect only once. */
export function makeLock(release: () => void, facts: Omit<Lock, "release"> = {}): Lock {
  let held = true;
  return {
    ...facts,
    release() {
      if (!held) return;
      held = false;
      release();
    },
  };
}

export function getFileKey({ device, inode }: FileKey): string {
  return `${device}:${inode}`;
}

export const UNKNOWN: Holder = { client: "another process", pid: 0, since: "" };

/** Milliseconds within which the process that creates a lock file locks it and sets its permissions. */
const JUST_MADE = 1000;

/** Returns whether there is a lock file that was made just now, by the clock that stamped it. */
export function isJustMade(disk: Disk, info: FileInfo | null): boolean {
  return info !== null && Math.abs(readDiskClock(disk) - (info.changed ?? 0)) < JUST_MADE;
}

/** Number of attempts to take a lock that is neither granted to us nor held by another. */
export const TRIES = 5;

/** Returns an errno error. Throws any other, and storage_failed when no file at all can be opened for now. */
export function requireErrno(error: unknown, doing: string): NodeJS.ErrnoException {
  if (!isErrno(error) || error.code === "EMFILE" || error.code === "ENFILE") throw toStorageFailure(error, doing);
  return error;
}

/**
 * Notes that no lock of flock can be on a file: this process just made it and has SQLite's lock. A process that takes
 * flock's lock removes the note first ({@link markFlock}), so a file with it needs no search in the kernel's list,
 * which costs 8 to 16 ms: its reader waits until no processor is in the middle of a lock operation.
 */
export function markNoFlock(disk: Disk, fd: number, { modified }: FileInfo): void {
  try {
    if (disk.infoOf(fd).modified === modified) disk.setModified?.(fd, 0);
  } catch {
    // The next taker of the lock searches the list.
  }
}

/** Notes on a file that a lock of flock is taken on it, for as long as the file exists. Returns whether that worked. */
export function markFlock(disk: Disk, fd: number): boolean {
  try {
    // Any process that may write to a file may do this, and it sets the time. Lock files are empty.
    if (!mayHaveFlock(disk, fd)) disk.truncate(fd, 0);
    return mayHaveFlock(disk, fd);
  } catch {
    return false;
  }
}

/** Returns whether a lock of flock can be on an open file. */
export function mayHaveFlock(disk: Disk, fd: number): boolean {
  return disk.infoOf(fd).modified !== 0;
}

/** Returns whether the kernel lists such a lock on a file, also of another network namespace but not pid namespace. */
export function isListed(
  disk: Disk,
  { device, inode }: FileInfo,
  kinds: readonly string[] = ["POSIX", "FLOCK"],
): boolean {
  let list: string;
  try {
    list = Buffer.from(readUnsized(disk, "/proc/locks")).toString("latin1");
  } catch {
    return false;
  }
  // The parts of a device number, as the C library makes them.
  const both = BigInt(device);
  const major = ((both >> 8n) & 0xfffn) | ((both >> 32n) & 0xfffff000n);
  const minor = (both & 0xffn) | ((both >> 12n) & 0xffffff00n);
  const name = `${[major, minor].map((part) => part.toString(16).padStart(2, "0")).join(":")}:${inode}`;
  // A process that waits for a lock is listed with an arrow instead of the kind.
  return list.split("\n").some((line) => {
    const [, kind, , , , file] = line.split(/\s+/);
    return file === name && kinds.includes(kind);
  });
}
