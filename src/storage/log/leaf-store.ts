/** Leaf positions that session files do not record: a small file each in our state folder (reference, section 5). */

import { join } from "node:path";
import { toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { toBytes, tryParse } from "../../core/json/json.ts";
import type { FileStamp, Log } from "../../core/ports/store.ts";
import type { LeafMemory } from "../../core/ports/stores.ts";
import { type Disk, readWhole, removeQuietly } from "../fs/disk.ts";
import { putInPlace, useAndClose } from "../fs/files.ts";
import { isUnchanged } from "../fs/stamps.ts";

/** A leaf position, with the number of entries for which it was recorded, and the id of the last. */
interface RecordedLeaf {
  readonly count: number;
  readonly lastId: string | null;
  readonly leafId: string | null;
}

interface Recorded extends RecordedLeaf {
  readonly stamp: FileStamp;
  /** The position recorded for the durable entries, while later entries are not durable yet. */
  readonly before?: RecordedLeaf;
}

/** Returns the store. `durable`: a recorded position survives loss of power, otherwise the end of this process. */
export function makeLeafMemory(disk: Disk, stateFolder: string, durable: boolean): LeafMemory {
  const folder = join(stateFolder, "leaves");
  const fileOf = (log: Log): string | undefined => {
    const stamp = log.stamp;
    return stamp ? join(folder, `${stamp.device}-${stamp.inode}.json`) : undefined;
  };

  /** Restores the previous record, or removes the new one: a position whose recording failed must never be found. */
  const putBack = async (file: string, bytes: Uint8Array | undefined): Promise<void> => {
    try {
      if (bytes) return await putInPlace(disk, file, bytes, { replace: true, sync: durable });
    } catch {
      // Then the record is removed.
    }
    removeQuietly(disk, file);
  };

  return {
    recall(log) {
      try {
        const file = fileOf(log);
        const recorded = file === undefined ? undefined : recordIn(bytesIn(disk, file));
        if (!recorded) return undefined;
        const { count } = log.nodes;
        // A torn write after the entries, or a changed time, does not invalidate the position.
        const place = leavesOf(recorded).find((known) => isAmong(known, log, count));
        if (place) return place.leafId;
        // For an unchanged file the number may differ, because not all entries are known before all of it was read.
        const { stamp } = log;
        const same = stamp && recorded.stamp && isUnchanged(stamp, recorded.stamp);
        return same && recorded.lastId === lastIdOf(log, count) ? recorded.leafId : undefined;
      } catch (error) {
        if (error instanceof Failure) return undefined;
        throw error;
      }
    },
    async record(log, leafId) {
      const file = fileOf(log);
      if (!file) return;
      const { count } = log.nodes;
      const bytes = bytesIn(disk, file);
      const { durableCount } = log;
      const earlier = durableCount < count ? leavesOf(recordIn(bytes)) : [];
      const before = earlier.find((place) => isAmong(place, log, durableCount));
      let renamed = false;
      try {
        disk.makeFolder(folder);
        const place: RecordedLeaf = { count, lastId: lastIdOf(log, count), leafId };
        const kept = before && { count: before.count, lastId: before.lastId, leafId: before.leafId };
        const record = JSON.stringify({ stamp: log.stamp, ...place, before: kept });
        await putInPlace(disk, file, toBytes(record), { replace: true, sync: durable });
        renamed = true;
        if (durable) await disk.syncFolder(folder);
      } catch (error) {
        if (renamed) await putBack(file, bytes);
        throw toStorageFailure(error, "recording the leaf position");
      }
    },
    forget(log) {
      const file = fileOf(log);
      if (file) removeQuietly(disk, file);
    },
  };
}

function bytesIn(disk: Disk, file: string): Uint8Array | undefined {
  try {
    return readWhole(disk, file);
  } catch {
    // Without a record, the session file decides.
    return undefined;
  }
}

/** Returns a parsed record; undefined if it is missing or a crash corrupted it. */
function recordIn(bytes: Uint8Array | undefined): Recorded | undefined {
  const recorded = bytes && (tryParse(bytes) as Recorded | null | undefined);
  return recorded && typeof recorded === "object" && isId(recorded.leafId) ? recorded : undefined;
}

function isId(id: unknown): boolean {
  return id === null || typeof id === "string";
}

function leavesOf(recorded: Recorded | undefined): RecordedLeaf[] {
  if (!recorded) return [];
  const { before } = recorded;
  return before && isId(before.leafId) ? [recorded, before] : [recorded];
}

/** Returns whether the position was recorded for exactly the first `first` entries of a log. */
function isAmong({ count, lastId }: RecordedLeaf, log: Log, first: number): boolean {
  return count === first && lastId === lastIdOf(log, first);
}

function lastIdOf(log: Log, count: number): string | null {
  return count > 0 ? log.nodes.id(count - 1) : null;
}

/** Records a leaf that was known, for the session that moved to where `open` opens it. Best effort. */
export async function keepLeaf(
  leaves: LeafMemory | undefined,
  leafId: string | null | undefined,
  open: () => Log,
): Promise<void> {
  if (leafId === undefined) return;
  try {
    await useAndClose(open(), async (log) => leaves?.record(log, leafId));
  } catch {
    // The session is in its new place; without a record, its bytes determine the leaf.
  }
}
