/** Quarantine and backups. They keep the bytes that a repair removes from a session, so that nothing is lost. */

import { join } from "node:path";
import { type Disk, exists, publishNew, writeAll } from "./disk.ts";

/** Writes bytes to `<name>.bin` in a folder, or `<name>-2.bin` and so on when that is taken. Returns the path. */
export function keepAside(disk: Disk, folder: string, name: string, bytes: Uint8Array): string {
  disk.makeFolder(folder);
  for (let n = 1; ; n++) {
    const path = join(folder, `${name}${n === 1 ? "" : `-${n}`}.bin`);
    try {
      disk.close(publishNew(disk, path, (fd) => writeAll(disk, fd, bytes)));
      return path;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
  }
}

/**
 * Returns a free name for the backup of a session that is about to be replaced: `<file>.<kind>.bak`, or with a number
 * after it. No scanner recognizes it as a session.
 */
export function backupName(disk: Disk, file: string, kind: string): string {
  const name = `${file}.${kind}.bak`;
  for (let n = 1; ; n++) {
    const candidate = n === 1 ? name : `${name}.${n}`;
    if (!exists(disk, candidate)) return candidate;
  }
}
