/** Locks of several processes that are one: who holds what stands in a table they share. */

import type { Holder } from "../../src/core/ports/lock.ts";
import { type Locks, noLocks } from "../../src/storage/locks/locks.ts";

export type LockTable = Map<string, Holder>;

export function locksOf(client: string, table: LockTable): Locks {
  const keyOf = ({ device, inode }: { device: number; inode: number }) => `${device}:${inode}`;
  return {
    acquire(file) {
      const key = keyOf(file);
      const held = table.get(key);
      if (held) return held;
      const mine: Holder = { client, pid: client.length, since: "2026-01-24T16:22:26.831Z" };
      table.set(key, mine);
      return {
        release() {
          if (table.get(key) === mine) table.delete(key);
        },
      };
    },
    holder: (file) => table.get(keyOf(file)) ?? null,
  };
}

/** The locks of another process: as it should be, or of one that takes none. */
export function locksOfOther(table: LockTable, { ignoresLocks = false } = {}): Locks {
  return ignoresLocks ? noLocks : locksOf("the other process", table);
}
