/**
 * Cache of index snapshots of large sessions in our state folder, so that opening them again is fast. The snapshots are
 * derived. Each is named by the device and inode of its session file, and is used only after the caller has compared
 * its facts with that file. When there are too many, the oldest are removed.
 */

import { join } from "node:path";
import type { Nodes } from "../../core/tree/nodes.ts";
import { type Disk, type FileInfo, removeQuietly, temporaryName } from "../fs/disk.ts";
import { readSpine, type SpineExtras, writeSpine } from "./index-snapshot.ts";

export interface KeptSpines {
  /** Bytes below which a session gets no snapshot. */
  readonly leastBytes: number;
  /** Fills the empty `nodes` from the snapshot of a file. Returns null when there is none or its facts do not hold. */
  recall(info: FileInfo, nodes: Nodes, holds: (facts: unknown) => boolean): SpineExtras | null;
  /** Saves a snapshot of a file. Best effort: errors are ignored. */
  keep(info: FileInfo, nodes: Nodes, extras: SpineExtras): void;
}

/** Bytes below which a session gets no snapshot: its lines are read in a few milliseconds. */
const LEAST_BYTES = 4 << 20;
const MOST_FILES = 64;

export function keptSpines(disk: Disk, stateFolder: string, leastBytes = LEAST_BYTES): KeptSpines {
  const folder = join(stateFolder, "spines");
  const fileOf = ({ device, inode }: FileInfo): string => join(folder, `${device}-${inode}.spine`);

  return {
    leastBytes,

    recall(info, nodes, holds) {
      let file: number;
      try {
        file = disk.openRead(fileOf(info));
      } catch {
        return null;
      }
      try {
        return readSpine(disk, file, nodes, 0, holds);
      } finally {
        disk.close(file);
      }
    },

    keep(info, nodes, extras) {
      const path = fileOf(info);
      const temporary = temporaryName(path);
      try {
        disk.makeFolder(folder);
        const file = disk.create(temporary);
        try {
          writeSpine(disk, file, nodes, extras);
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
    if (files.length <= MOST_FILES) return;
    const byAge = files
      .map((file) => ({ file, modified: disk.info(file).modified }))
      .sort((a, b) => a.modified - b.modified);
    for (const { file } of byAge.slice(0, files.length - MOST_FILES)) removeQuietly(disk, file);
  }
}
