/** Changes of files next to the tested store: another program writes to them, or the disk refuses. */

import { toBytes } from "../../src/core/json/json.ts";
import { type Disk, writeAll } from "../../src/storage/fs/disk.ts";

/** Writes at the end of a file as another program does; with `kept`, in the place of all but so many of its bytes. */
export function writeBehind(disk: Disk, path: string, text: string | Uint8Array, kept?: number): void {
  const fd = disk.openAppend(path);
  if (kept !== undefined) disk.truncate(fd, kept);
  if (text.length > 0) writeAll(disk, fd, typeof text === "string" ? toBytes(text) : text);
  disk.close(fd);
}

export const diskError = (code = "EIO") => Object.assign(new Error(`the disk says ${code}`), { code });

/** Returns an operation of a disk that is refused. */
export const refusing =
  (code = "EIO") =>
  (): never => {
    throw diskError(code);
  };
