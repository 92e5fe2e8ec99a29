/**
 * Locks in files, where the system has nothing better: a file that appears whole under its name or not at all, in every
 * folder that can be written, so that servers exclude each other that have one of them in common. It is stale when its
 * process is gone, or is another one under the same pid; a lock of another host counts as held, for nobody can look.
 */

import { basename, dirname, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import { bytesOf, sameBytes } from "../../core/json/json.ts";
import type { Holder } from "../../core/ports/store.ts";
import { closeQuietly, publishNew, removeQuietly, writeAll } from "../fs/disk.ts";
import { Claims, holderIn, lockFolders, readClaim } from "./claims.ts";
import {
  type FileKey,
  isLock,
  keyOf,
  type Lock,
  type LockOptions,
  type Locks,
  lockWith,
  TRIES,
  UNKNOWN,
} from "./contract.ts";

/** How often claims are looked at again until the others have gone. */
const LOOKS = 100;
/** One count for the process, whose pid is in the name too: no two instances of this code ever make the same name. */
let claimNames = 0;

export function fileLocks(options: LockOptions): Locks {
  const { disk } = options;
  const claims = new Claims(options);
  const pathsOf = (file: FileKey): string[] =>
    lockFolders(options).map((folder) => join(folder, `${keyOf(file).replace(":", "-")}.lock`));

  /** Who holds the lock at a path, or null. */
  const holderAt = (path: string, found = readClaim(disk, path)): Holder | null => {
    if (!found) return null;
    if (!found.claim) return { ...UNKNOWN, client: `another process, whose lock ${path} cannot be read,` };
    if (claims.isStale(found.claim)) return null;
    const holder = holderIn(found.claim);
    return claims.isOfThisHost(found.claim)
      ? holder
      : { ...holder, client: `${holder.client} on ${found.claim.host}, by its lock ${path},` };
  };

  const publish = (path: string, bytes: Uint8Array): void => {
    const fill = (fd: number): void => {
      writeAll(disk, fd, bytes);
      // One that a loss of power spoiled would count as held for ever.
      disk.syncNow(fd);
    };
    closeQuietly(disk, publishNew(disk, path, fill));
  };

  /**
   * Removes a stale lock. Whoever wants to says so first, in a file whose name is nobody else's, and looks for others
   * that want the same: of those that see each other only the first by name stays, and it goes on when it is alone. So
   * nobody removes a lock that has taken the place of the stale one meanwhile.
   */
  const clear = (path: string, stale: Uint8Array, inode: number): void => {
    const own = `${path}.${process.pid}-${Math.floor(performance.timeOrigin)}-${++claimNames}.claim`;
    publish(own, bytesOf(JSON.stringify(claims.make(inode))));
    try {
      for (let looks = 0; looks < LOOKS; looks++) {
        const others = rivals(path, own);
        if (others.length === 0) {
          const now = readClaim(disk, path);
          if (now && sameBytes(now.bytes, stale)) disk.remove(path);
          return;
        }
        if (others.some((other) => other < own)) return;
      }
    } finally {
      removeQuietly(disk, own);
    }
  };

  /** The claims of others that are alive. */
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

  /** The lock at a path, or who holds it, or null where none can be kept. */
  const takeAt = (path: string, bytes: Uint8Array, inode: number): Lock | Holder | null => {
    let heirOfDead = false;
    for (let tries = 0; tries < TRIES; tries++) {
      try {
        disk.makeFolder(dirname(path));
        publish(path, bytes);
        return lockWith(
          () => {
            const now = readClaim(disk, path);
            if (now && sameBytes(now.bytes, bytes)) removeQuietly(disk, path);
          },
          { kind: "file", heirOfDead },
        );
      } catch (error) {
        const found = readClaim(disk, path);
        const holder = holderAt(path, found);
        if (holder) return holder;
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") return null;
        if (!found) continue;
        clearQuietly(path, found.bytes, inode);
        heirOfDead = true;
      }
    }
    return UNKNOWN;
  };

  const clearQuietly = (path: string, stale: Uint8Array, inode: number): void => {
    try {
      clear(path, stale, inode);
    } catch {
      // Another one was quicker, or nothing can be written here; the next try tells.
    }
  };

  return {
    holder(file) {
      for (const path of pathsOf(file)) {
        const holder = holderAt(path);
        if (holder) return holder;
      }
      return null;
    },
    take(file) {
      const bytes = bytesOf(JSON.stringify(claims.make(file.inode)));
      const locks: Lock[] = [];
      const release = (): void => {
        for (const lock of locks) lock.release();
      };
      for (const path of pathsOf(file)) {
        const taken = takeAt(path, bytes, file.inode);
        if (taken === null) continue;
        if (!isLock(taken)) {
          release();
          return taken;
        }
        locks.push(taken);
      }
      if (locks.length > 0)
        return lockWith(release, { kind: "file", heirOfDead: locks.some((lock) => lock.heirOfDead) });
      throw new Failure(
        "read_only",
        "No lock can be kept, so nothing may be written. Set PI_SESSION_SERVER_STATE_DIR to a folder that is writable.",
      );
    },
  };
}
