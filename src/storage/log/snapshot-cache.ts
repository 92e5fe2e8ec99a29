/**
 * Cache of index snapshots of large sessions in our state folder, so that opening them again is fast. The snapshots are
 * derived. Each is named by the device and inode of its session file, and is used only after the caller has compared
 * its facts with that file. When there are too many, the oldest are removed.
 */

import { join } from "node:path";
import type { Nodes } from "../../core/tree/nodes.ts";
import { type Disk, type FileInfo, removeQuietly, temporaryName } from "../fs/disk.ts";
import { readIndexSnapshot, type SnapshotExtras, writeIndexSnapshot } from "./index-snapshot.ts";

export interface SnapshotCache {
  /** Bytes below which a session gets no snapshot. */
  readonly minBytes: number;
  /** Fills the empty `nodes` from the snapshot of a file. Returns null when there is none or its facts do not hold. */
  load(info: FileInfo, nodes: Nodes, holds: (facts: unknown) => boolean): SnapshotExtras | null;
  /** Saves a snapshot of a file. Best effort: errors are ignored. */
  store(info: FileInfo, nodes: Nodes, extras: SnapshotExtras): void;
}

/** Bytes below which a session gets no snapshot: its lines are read in a few milliseconds. */
const MIN_BYTES = 4 << 20;
const MAX_FILES = 64;

export function snapshotCache(disk: Disk, stateFolder: string, minBytes = MIN_BYTES): SnapshotCache {
  const folder = join(stateFolder, "spines");
  const fileOf = ({ device, inode }: FileInfo): string => join(folder, `${device}-${inode}.spine`);

  return {
    minBytes,

    load(info, nodes, holds) {
      let file: number;
      try {
        file = disk.openRead(fileOf(info));
      } catch {
        return null;
      }
      try {
        return readIndexSnapshot(disk, file, nodes, 0, holds);
      } finally {
        disk.close(file);
      }
    },

    store(info, nodes, extras) {
      const path = fileOf(info);
      const temporary = temporaryName(path);
      try {
        disk.makeFolder(folder);
        const file = disk.create(temporary);
        try {
          writeIndexSnapshot(disk, file, nodes, extras);
        } finally {
          disk.close(file);
        }
        disk.rename(temporary, path);
        dropOldest();
      } catch {
        removeQuietly(disk, temporary);
      }
    },
  };

  function dropOldest(): void {
    const files = disk.names(folder).map((name) => join(folder, name));
    if (files.length <= MAX_FILES) return;
    const byAge = files
      .map((file) => ({ file, modified: disk.info(file).modified }))
      .sort((a, b) => a.modified - b.modified);
    for (const { file } of byAge.slice(0, files.length - MAX_FILES)) removeQuietly(disk, file);
  }
}
