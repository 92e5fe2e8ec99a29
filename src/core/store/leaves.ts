/** Leaf positions that session files do not tell, one small file each in our state folder (reference, section 5). */

import { join } from "node:path";
import { bytesOf, parse } from "../json.ts";
import type { LeafMemory } from "../session.ts";
import { type Disk, readWhole, removeQuietly, storageFailure, temporaryName, writeAll } from "./disk.ts";
import type { FileStamp, Log } from "./store.ts";

interface Recorded {
  readonly stamp: FileStamp;
  readonly leafId: string | null;
}

/** With `durable`, a recorded position survives power loss, else the death of this process. */
export function leafMemory(disk: Disk, stateFolder: string, durable: boolean): LeafMemory {
  const folder = join(stateFolder, "leaves");
  const fileOf = (log: Log): string | undefined => {
    const stamp = log.stamp;
    return stamp ? join(folder, `${stamp.device}-${stamp.inode}.json`) : undefined;
  };
  return {
    recall(log) {
      try {
        const file = fileOf(log);
        if (!file) return undefined;
        const { stamp, leafId } = parse(readWhole(disk, file)) as Recorded;
        return sameStamp(stamp, log.stamp) && (leafId === null || typeof leafId === "string") ? leafId : undefined;
      } catch {
        // No record, or one that a crash spoiled: the session file decides.
        return undefined;
      }
    },
    async record(log, leafId) {
      const file = fileOf(log);
      if (!file) return;
      const temporary = temporaryName(file);
      try {
        disk.makeFolder(folder);
        const fd = disk.create(temporary);
        try {
          writeAll(disk, fd, bytesOf(JSON.stringify({ stamp: log.stamp, leafId })));
          if (durable) await disk.sync(fd);
        } finally {
          disk.close(fd);
        }
        disk.rename(temporary, file);
        if (durable) await disk.syncFolder(folder);
      } catch (error) {
        removeQuietly(disk, temporary);
        throw storageFailure(error, "recording the leaf position");
      }
    },
    forget(log) {
      const file = fileOf(log);
      if (file) removeQuietly(disk, file);
    },
  };
}

function sameStamp(a: FileStamp | undefined, b: FileStamp | null): boolean {
  return (
    a !== undefined &&
    b !== null &&
    a.device === b.device &&
    a.inode === b.inode &&
    a.size === b.size &&
    a.modified === b.modified
  );
}
