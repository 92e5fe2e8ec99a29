/** Where goes what is taken out of a session: nothing of it is lost. */

import { join } from "node:path";
import { type Disk, exists, publishNew, writeAll } from "./disk.ts";

/** Keeps bytes in a folder under `<name>.bin`, or `<name>-2.bin` and so on where that is taken; answers the path. */
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

/** A free name for what a session was before it was replaced, `<file>.<kind>.bak` or with a number; no scanner takes it for a session. */
export function backupName(disk: Disk, file: string, kind: string): string {
  const name = `${file}.${kind}.bak`;
  for (let n = 1; ; n++) {
    const candidate = n === 1 ? name : `${name}.${n}`;
    if (!exists(disk, candidate)) return candidate;
  }
}
