/** The files that this process has open, and those that it may have open, as Linux says it. */

import { type Disk, readUnsized } from "./disk.ts";

/** Counts of the files of this process. */
interface OpenFiles {
  /** Returns how many it may have open; undefined where the system does not say it. */
  most(): number | undefined;
  /** Returns how many it has open; infinite where not even one more can be opened to count them. */
  count(): number;
}

export function openFilesOf(disk: Disk): OpenFiles {
  return {
    most() {
      try {
        const text = Buffer.from(readUnsized(disk, "/proc/self/limits")).toString("latin1");
        const [, soft] = /^Max open files +(\d+|unlimited)/m.exec(text) ?? [];
        return soft === "unlimited" ? Number.POSITIVE_INFINITY : Number(soft ?? undefined) || undefined;
      } catch {
        return undefined;
      }
    },
    count() {
      try {
        return disk.names("/proc/self/fd").length;
      } catch {
        return Number.POSITIVE_INFINITY;
      }
    },
  };
}
