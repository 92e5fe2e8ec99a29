/** The numbers of files that this process has open and may open, as Linux reports them. */

import { type Disk, readUnsized } from "./disk.ts";

/** Counts of the files of this process. */
interface OpenFiles {
  /** Returns the number of files that it may open; undefined if the system does not report it. */
  most(): number | undefined;
  /** Returns the number of open files; infinite if none can be opened to count them. */
  count(): number;
}

export function countOpenFiles(disk: Disk): OpenFiles {
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
