/** Finds the last valid checkpoint of a container. Whatever a checkpoint names was on the medium before it. */

import { isMissing, isNoFile } from "../../core/errno.ts";
import { checkpointFile, checkpointFolder, numberOf } from "../fs/container-paths.ts";
import { type Disk, readWhole } from "../fs/disk.ts";
import { type Checkpoint, parseCheckpoint } from "./documents.ts";
import { Malformed } from "./frame.ts";

/** Returns the numbers of the checkpoints that are there, the last one first. */
export function checkpointSeqs(disk: Disk, container: string): number[] {
  try {
    return disk
      .names(checkpointFolder(container))
      .map((name) => numberOf(name, "json"))
      .filter((seq) => seq > 0)
      .sort((a, b) => b - a);
  } catch (error) {
    // A copy that leaves out empty folders has no such folder.
    if (isMissing(error) || isNoFile(error)) return [];
    throw error;
  }
}

/**
 * Returns a checkpoint, or null when it is missing or invalid: a partial one is ignored (seed 003, "Checkpoint
 * failure").
 */
export function checkpointAt(disk: Disk, container: string, seq: number): Checkpoint | null {
  try {
    return parseCheckpoint(readWhole(disk, checkpointFile(container, seq)), seq);
  } catch (error) {
    if (error instanceof Malformed || isNoFile(error)) return null;
    throw error;
  }
}

export function lastCheckpoint(disk: Disk, container: string): Checkpoint | null {
  for (const seq of checkpointSeqs(disk, container)) {
    const checkpoint = checkpointAt(disk, container, seq);
    if (checkpoint !== null) return checkpoint;
  }
  return null;
}
