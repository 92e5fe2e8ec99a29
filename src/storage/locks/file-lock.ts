/**
 * Locks as files, for systems without better ones. A lock file appears complete under its name or not at all, in every
 * lock folder that can be written, so that servers with one such folder in common exclude each other. It is stale if
 * its process has ended, or its pid was reused. A lock of another host counts as held.
 */

import { basename, dirname, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import { areSameBytes, toBytes } from "../../core/json/json.ts";
import type { Holder } from "../../core/ports/lock.ts";
import { removeQuietly } from "../fs/disk.ts";
import { isNameTaken, putInPlaceNow } from "../fs/files.ts";
import { Claims, getLockFolderPaths, readClaim, toHolder } from "./claims.ts";
import { type FileKey, isLock, type Lock, type LockOptions, type Locks, makeLock, TRIES, UNKNOWN } from "./contract.ts";

/** Number of times that rival claims are read before giving up. */
const MAX_CHECKS = 100;
/** Number of claims made by this instance: part of their names, with pid and start time, so that each is unique. */
let claimNames = 0;

export function makeFileLocks(options: LockOptions): Locks {
  const { disk } = options;
  const claims = new Claims(options);
  const pathsOf = (file: FileKey): string[] => getLockFolderPaths(options, file, "lock");

  /** Returns the holder of the lock at a path, or null. */
  const holderAt = (path: string, found = readClaim(disk, path)): Holder | null => {
    if (!found) return null;
    if (!found.claim) return { ...UNKNOWN, client: `another process, whose lock ${path} cannot be read,` };
    if (claims.isStale(found.claim)) return null;
    const holder = toHolder(found.claim);
    return claims.isOfThisHost(found.claim)
      ? holder
      : { ...holder, client: `${holder.client} on ${found.claim.host}, by its lock ${path},` };
  };

  // A lock file that a power loss corrupted would count as held forever.
  const publish = (path: string, bytes: Uint8Array): void =>
    putInPlaceNow(disk, path, bytes, { replace: false, sync: true });

  /**
   * Removes a stale lock. A process that wants to remove it first publishes a claim file with a unique name, then reads
   * the claims of its rivals. Of those that see each other only the first by name stays, and it continues when it is
   * alone. So no process removes a new lock that has replaced the stale one in between. Best effort: the next attempt
   * to take the lock shows the result.
   */
  const clear = (path: string, stale: Uint8Array, inode: number): void => {
    const own = `${path}.${process.pid}-${Math.floor(performance.timeOrigin)}-${++claimNames}.claim`;
    try {
      publish(own, toBytes(JSON.stringify(claims.make(inode))));
      for (let checks = 0; checks < MAX_CHECKS; checks++) {
        const others = rivals(path, own);
        if (others.length === 0) {
          const now = readClaim(disk, path);
          if (now && areSameBytes(now.bytes, stale)) disk.remove(path);
          return;
        }
        if (others.some((other) => other < own)) return;
      }
    } catch {
      // Another process was faster, or nothing can be written here.
    } finally {
      removeQuietly(disk, own);
    }
  };

  /** Returns the claims of other processes that are alive, and removes stale ones. */
  const rivals = (path: string, own: string): string[] => {
    const found: string[] = [];
    for (const name of disk.names(dirname(path))) {
      const other = join(dirname(path), name);
      if (!name.startsWith(`${basename(path)}.`) || !name.endsWith(".claim") || other === own) continue;
      const claim = readClaim(disk, other);
      if (claim?.claim && claims.isStale(claim.claim)) removeQuietly(disk, other);
      else if (claim) found.push(other);
    }
    return found;
  };

  /** Takes the lock at a path, or returns its holder, or null when no lock can be kept there. */
  const acquireAt = (path: string, bytes: Uint8Array, inode: number): Lock | Holder | null => {
    let previousHolderDied = false;
    for (let tries = 0; tries < TRIES; tries++) {
      try {
        disk.makeFolder(dirname(path));
        publish(path, bytes);
        return makeLock(
          () => {
            const now = readClaim(disk, path);
            if (now && areSameBytes(now.bytes, bytes)) removeQuietly(disk, path);
          },
          { kind: "file", previousHolderDied },
        );
      } catch (error) {
        const found = readClaim(disk, path);
        const holder = holderAt(path, found);
        if (holder) return holder;
        if (!isNameTaken(error)) return null;
        if (!found) continue;
        clear(path, found.bytes, inode);
        previousHolderDied = true;
      }
    }
    return UNKNOWN;
  };

  return {
    holder: (file) => pathsOf(file).reduce<Holder | null>((holder, path) => holder ?? holderAt(path), null),
    acquire(file) {
      const bytes = toBytes(JSON.stringify(claims.make(file.inode)));
      const locks: Lock[] = [];
      const release = (): void => {
        for (const lock of locks) lock.release();
      };
      for (const path of pathsOf(file)) {
        const acquired = acquireAt(path, bytes, file.inode);
        if (acquired === null) continue;
        if (!isLock(acquired)) {
          release();
          return acquired;
        }
        locks.push(acquired);
      }
      if (locks.length > 0)
        return makeLock(release, { kind: "file", previousHolderDied: locks.some((lock) => lock.previousHolderDied) });
      throw new Failure(
        "read_only",
        "The session cannot be locked, so nothing may be written. Set PI_SESSION_SERVER_STATE_DIR to a writable folder.",
      );
    },
  };
}
