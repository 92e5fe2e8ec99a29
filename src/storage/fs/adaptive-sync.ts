/**
 * Where to wait for the medium. Handing a sync to a thread and hearing of its end takes longer than a quick medium needs
 * for it: an append with its reply takes 140 to 200 us with the sync at once and 210 to 280 us with it on a thread. A
 * slow medium would hold up everything else, so only one that was quick the last time is waited for at once. While there
 * is much to do, the end of a sync is heard of late, which counts as slow: then it goes on beside the work.
 */

/** Milliseconds. */
const QUICK = 0.5;

export interface SyncWays {
  /** Returns when the file is on the medium. */
  readonly atOnce: (fd: number) => void;
  /** Resolves when it is. */
  readonly beside: (fd: number) => Promise<void>;
  /** Milliseconds of a clock that only goes forward. */
  readonly now: () => number;
}

/** A sync that goes the better way. */
export function quickSync({ atOnce, beside, now }: SyncWays): (fd: number) => Promise<void> {
  let took = Number.POSITIVE_INFINITY;
  return async (fd) => {
    const began = now();
    // What fails tells nothing of the next time.
    const wasQuick = took < QUICK;
    took = Number.POSITIVE_INFINITY;
    if (wasQuick) atOnce(fd);
    else await beside(fd);
    took = now() - began;
  };
}
