/** Quarantine and backups. They keep the bytes that a repair removes from a session, so that nothing is lost. */

import { join } from "node:path";
import type { Disk } from "./disk.ts";
import { freeName, isNameTaken, nth, publishBytes } from "./files.ts";

/** Writes bytes to `<name>.bin` in a folder, or `<name>-2.bin` and so on when that is taken. Returns the path. */
export function quarantine(disk: Disk, folder: string, name: string, bytes: Uint8Array): string {
  disk.makeFolder(folder);
  for (let n = 1; ; n++) {
    const path = join(folder, `${nth(name, n, "-")}.bin`);
    try {
      publishBytes(disk, path, bytes, { sync: false });
      return path;
    } catch (error) {
      if (!isNameTaken(error)) throw error;
    }
  }
}

/** Returns a free name for the backup of a session, `<file>.<kind>.bak` or numbered, which no scanner recognizes. */
export function backupName(disk: Disk, file: string, kind: string): string {
  return freeName(disk, (n) => nth(`${file}.${kind}.bak`, n));
}
