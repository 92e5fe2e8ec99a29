/**
 * Locks that permit one writer for each file. A lock belongs to the file itself (device and inode), not to one of its
 * names, and ends with its holder, however that ends (architecture, "Lock").
 */

import { getFileKey, isLock, type Lock, type LockOptions, type Locks, makeLock } from "./contract.ts";
import { makeFileLocks } from "./file-lock.ts";
import { makeSocketLocks } from "./socket-lock.ts";

export {
  type FileKey,
  isLock,
  type Lock,
  type LockLocation,
  type LockOptions,
  type Locks,
  runIfLocked,
} from "./contract.ts";
export { makeFileLocks } from "./file-lock.ts";

export function makeLocks(options: LockOptions): Locks {
  return process.platform === "linux" ? makeSocketLocks(options) : makeFileLocks(options);
}

/** Returns locks that several logs of one process share: a lock that one of them holds, the others may use. */
export function shareLocks(locks: Locks): Locks {
  const held = new Map<string, { lock: Lock; users: number }>();
  return {
    acquire(file, place) {
      const key = getFileKey(file);
      const known = held.get(key);
      const lock = known?.lock ?? locks.acquire(file, place);
      if (!isLock(lock)) return lock;
      const shared = known ?? { lock, users: 0 };
      held.set(key, shared);
      shared.users++;
      // Only the first user repairs after a dead holder: later users come after a holder that is alive.
      const previousHolderDied = !known && lock.previousHolderDied === true;
      const forget = (): void => {
        if (held.get(key) === shared) held.delete(key);
      };
      return makeLock(
        () => {
          if (--shared.users > 0) return;
          forget();
          lock.release();
        },
        {
          kind: lock.kind,
          previousHolderDied,
          renew(find) {
            const isOurs = lock.renew?.(find) !== false;
            // From here on, no log of this process has it.
            if (!isOurs) forget();
            return isOurs;
          },
        },
      );
    },
    prepare: () => locks.prepare?.(),
    holder: (file, place, wasRefused) => (held.has(getFileKey(file)) ? null : locks.holder(file, place, wasRefused)),
  };
}

/** Locks that always succeed, for when there is no other writer: in tests, and for hosts that request it. */
export const noLocks: Locks = { acquire: () => ({ release() {} }), holder: () => null };
