/** The contract of locks, and the little that every kind of them shares. */

import type { Holder, LockKind } from "../../core/ports/store.ts";
import type { Disk, FileInfo } from "../fs/disk.ts";
import type { OpenDatabase } from "../fs/sqlite.ts";

export interface FileKey {
  readonly device: number;
  readonly inode: number;
}

export interface Lock {
  /** Missing where nobody else can be there. */
  readonly kind?: LockKind;
  /**
   * Whether the previous holder died with the lock: its note was still there when the lock became ours. A holder that
   * could not remove its note looks the same.
   */
  readonly heirOfDead?: boolean;
  release(): void;
}

/** Where a lock lies that a session carries. */
export interface LockPlace {
  /** The lock file, made and removed as needed, which nothing else may ever open (see `carried.ts`). */
  readonly path: string;
  /** The file whose owner and permissions it gets; by default it is ours alone. */
  readonly like?: string;
}

export interface Locks {
  /**
   * Takes the lock of a file at once, or returns who holds it. Throws read_only when locks cannot be kept at all, and
   * storage_failed when the system refuses one for now.
   */
  take(file: FileKey, place?: LockPlace): Lock | Holder;
  /** Returns who else holds the lock of a file now. Makes nothing, and makes nobody who takes it fail. */
  holder(file: FileKey, place?: LockPlace): Holder | null;
}

/** A way to lock an open file. */
export interface Means {
  readonly kind: "sqlite" | "flock";
  /** Locks the file, and returns how to let go, or that somebody has it; null where this file cannot be locked so. */
  lock(path: string, fd: number, info: FileInfo, isNew: boolean): (() => void) | "held" | null;
}

export interface LockOptions {
  readonly disk: Disk;
  readonly stateFolder: string;
  /** What we call ourselves to whoever finds the file locked. */
  readonly client: string;
  /** ISO 8601 now. */
  readonly now: () => string;
  /** Which SQLite there is; looked for when a lock is first taken. */
  readonly sqlite?: () => OpenDatabase | undefined;
}

export function isLock(taken: Lock | Holder): taken is Lock {
  return "release" in taken;
}

/** Returns a lock whose release counts once. */
export function lockWith(release: () => void, facts: Omit<Lock, "release"> = {}): Lock {
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

export function keyOf({ device, inode }: FileKey): string {
  return `${device}:${inode}`;
}

export const UNKNOWN: Holder = { client: "another process", pid: 0, since: "" };

/** Milliseconds within which whoever has made a lock file has locked it, and let others open it. */
const YOUNG = 1000;

export function isYoung({ changed = 0 }: FileInfo): boolean {
  return Math.abs(Date.now() - changed) < YOUNG;
}

/** How often a lock is asked for that is neither given to us nor held by anybody. */
export const TRIES = 5;
