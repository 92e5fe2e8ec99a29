/**
 * Adaptive fsync: on this thread or on another. A thread costs more time than a quick medium needs for the sync: an
 * append with its reply takes 140 to 200 us with the sync on this thread, and 210 to 280 us with it on another. A slow
 * medium would block everything else, so the sync blocks only if it was quick the last time. Under load the end of a
 * sync is noticed late, which counts as slow: the next sync then runs on another thread.
 *
 * Many syncs requested together also run on other threads: the medium takes them at the same time, and one after the
 * other they add up. So does a sync that runs in parallel with other work: with a database, an append takes 0.8 ms
 * then, and 1.4 ms with the sync on this thread.
 */

/** Milliseconds below which a sync counts as quick. */
const QUICK = 0.5;
/** This many syncs take as long one after the other on this thread as at the same time on others. */
const FEW = 2;

interface SyncWays {
  /** Blocks until the file is on the medium. */
  readonly atOnce: (fd: number) => void;
  /** Resolves when the file is on the medium, without blocking. */
  readonly inBackground: (fd: number) => Promise<void>;
  /** Returns the milliseconds of a monotonic clock. */
  readonly now: () => number;
}

interface Syncs {
  /**
   * Picks the faster of the two ways each time. `offThread`: always the other thread, because much was written, which
   * no medium stores at once, or because other work goes on.
   */
  readonly sync: (fd: number, offThread?: boolean) => Promise<void>;
  /** Blocks in any case. */
  readonly syncNow: (fd: number) => void;
}

/** Returns syncs that learn from each other how quick the medium is. */
export function makeAdaptiveSync({ atOnce, inBackground, now }: SyncWays): Syncs {
  let took = Number.POSITIVE_INFINITY;
  const syncNow = (fd: number): void => {
    const began = now();
    // The duration of a sync that fails says nothing about the next one.
    took = Number.POSITIVE_INFINITY;
    atOnce(fd);
    took = now() - began;
  };
  /** Number of syncs requested since the event loop last continued. */
  let together = { asked: 0 };
  const sync = async (fd: number, offThread = false): Promise<void> => {
    if (offThread) return inBackground(fd);
    const own = together;
    own.asked++;
    // Other commits in the same turn request theirs before this continues.
    await undefined;
    if (own === together) together = { asked: 0 };
    if (own.asked <= FEW && took < QUICK) return syncNow(fd);
    const began = now();
    took = Number.POSITIVE_INFINITY;
    await inBackground(fd);
    took = now() - began;
  };
  return { sync, syncNow };
}
