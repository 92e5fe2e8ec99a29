/** The files of the care of a fleet: sessions in a folder of any shape, and whole files that are written once. */

import { dirname, join } from "node:path";
import { isContainerName } from "../fs/container-paths.ts";
import { type Disk, exists, readWhole } from "../fs/disk.ts";
import { infoOrNull } from "../fs/files.ts";
import { writeOutput } from "../lifecycle/output-file.ts";

/** Yields the session files and containers in a folder and in those in it; links to folders are not followed. */
export function* sessionsIn(disk: Disk, folder: string): Generator<string> {
  for (const name of disk.names(folder)) {
    const path = join(folder, name);
    if (name.endsWith(".jsonl") || isContainerName(name)) yield path;
    else if (infoOrNull(disk, path, true)?.kind === "folder") yield* sessionsIn(disk, path);
  }
}

/** Returns whether a file has these bytes; undefined where there is none. */
export function hasBytes(disk: Disk, file: string, bytes: readonly Uint8Array[]): boolean | undefined {
  if (!exists(disk, file)) return undefined;
  return Buffer.concat(bytes).equals(readWhole(disk, file));
}

/** Writes a file that is not there yet, in a folder that is made where it is missing. Throws already_exists. */
export async function writeOnce(
  disk: Disk,
  file: string,
  bytes: readonly Uint8Array[],
  isDurable: boolean,
): Promise<void> {
  disk.makeFolder(dirname(file));
  await writeOutput(disk, file, bytes, "refuse", undefined, isDurable);
}
