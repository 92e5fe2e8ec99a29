/**
 * Cache of index snapshots of large sessions in our state folder, so that opening them again is fast. The snapshots are
 * derived. Each is named by the device and inode of its session file, and is used only after the caller has compared
 * its facts with that file. When there are too many, the oldest are removed.
 */

import { join } from "node:path";
import type { Nodes } from "../../core/tree/nodes.ts";
import { closeQuietly, type Disk, type FileInfo, publishNew, removeQuietly } from "../fs/disk.ts";
import { withFile } from "../fs/files.ts";
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
      try {
        return withFile(disk, disk.openRead(fileOf(info)), (fd) => readIndexSnapshot(disk, fd, nodes, 0, holds));
      } catch {
        return null;
      }
    },

    store(info, nodes, extras) {
      const path = fileOf(info);
      const fill = (fd: number): unknown => writeIndexSnapshot(disk, fd, nodes, extras);
      try {
        disk.makeFolder(folder);
        closeQuietly(
          disk,
          publishNew(disk, path, fill, (temporary) => disk.rename(temporary, path)),
        );
        dropOldest();
      } catch {
        // The next opening scans the session.
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
