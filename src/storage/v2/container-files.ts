/** The files that a container consists of, as far as its entries are in them. */

import { join } from "node:path";
import { getPointerFile, headerFile, isContainerName, segmentFolder } from "../fs/container-paths.ts";
import type { Disk, FileInfo } from "../fs/disk.ts";
import { getInfo } from "../fs/files.ts";
import { listNames } from "../fs/folders.ts";

/**
 * Returns the time of a session's last change in milliseconds; undefined when it is missing. In a container only the
 * files that contain the session count: checkpoints, manifest and index are also written when it is closed.
 */
export function getChangeTime(disk: Disk, path: string): number | undefined {
  try {
    if (!isContainerName(path)) return disk.info(path).modified;
    return Math.max(...listContainerFiles(disk, path, getPointerFile(path)).map(({ modified }) => modified));
  } catch {
    // It was removed, or may not be read.
    return undefined;
  }
}

/** Returns the files that contain a session, header first, and of these others the ones that exist. */
export function listContainerFiles(disk: Disk, path: string, ...others: string[]): FileInfo[] {
  // A copy of a session without entries may lack the folder of the segments.
  const segments = listNames(disk, segmentFolder(path)).filter((name) => name.endsWith(".seg"));
  return [
    disk.info(headerFile(path)),
    ...segments.map((name) => disk.info(join(segmentFolder(path), name))),
    ...others.map((part) => getInfo(disk, part)).filter((info) => info !== null),
  ];
}
