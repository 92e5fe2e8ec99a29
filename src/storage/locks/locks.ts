/**
 * Locks that permit one writer for each file. A lock belongs to the file itself (device and inode), not to one of its
 * names, and ends with its holder, however that ends (architecture, "Lock").
 */

import { isLock, keyOf, type Lock, type LockOptions, type Locks, lockWith } from "./contract.ts";
import { fileLocks } from "./file-lock.ts";
import { socketLocks } from "./socket-lock.ts";

export {
  type FileKey,
  isLock,
  type Lock,
  type LockLocation,
  type LockOptions,
  type Locks,
  withFreeLock,
} from "./contract.ts";
export { fileLocks } from "./file-lock.ts";

export function makeLocks(options: LockOptions): Locks {
  return process.platform === "linux" ? socketLocks(options) : fileLocks(options);
}

/** Returns locks that several logs of one process share: a lock that one of them holds, the others may use. */
export function sharedLocks(locks: Locks): Locks {
  const held = new Map<string, { lock: Lock; users: number }>();
  return {
    acquire(file, place) {
      const key = keyOf(file);
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
      return lockWith(
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
    holder: (file, place, wasRefused) => (held.has(keyOf(file)) ? null : locks.holder(file, place, wasRefused)),
  };
}

/** Locks that always succeed, for when there is no other writer: in tests, and for hosts that request it. */
export const noLocks: Locks = { acquire: () => ({ release() {} }), holder: () => null };
