/**
 * The machine code that V8 made of a part of the program, kept in a file for the next process. It is derived: without it,
 * the program only starts slower.
 */

import { dirname, join } from "node:path";
import { crc32 } from "node:zlib";
import { type Disk, readWhole, removeQuietly } from "../storage/fs/disk.ts";
import { getInfo, putInPlaceNow } from "../storage/fs/files.ts";

/**
 * Milliseconds after the start at which the growth of the code is checked: after the first requests, after the first
 * requests of a person, and after those during work. A check takes 6 ms.
 */
const LOOKS = [2000, 30_000, 300_000];
/**
 * Growth of the code that makes it worth storing again, now with what the processes before did not need. The first
 * switch_session takes a sixth less when its code is kept, too.
 */
const GROWTH = 1.05;
/** Number of code files that are kept, three for each build, V8 version and architecture. */
const MAX_KEPT = 12;
/** Bytes of the checksum before the code; V8 itself trusts the code that it gets. */
const CHECKSUM = 4;

/** Returns the code in a file; undefined if there is none that can be trusted. */
export function readCode(disk: Disk, file: string): Buffer | undefined {
  try {
    const bytes = readWhole(disk, file);
    // The code is run as it is, so its file must belong to this user.
    if (process.getuid && disk.info(file).owner !== process.getuid()) return undefined;
    const code = Buffer.from(bytes.buffer, CHECKSUM);
    return crc32(code) === new DataView(bytes.buffer).getUint32(0) ? code : undefined;
  } catch {
    // The program has never run here, or nothing can be kept.
    return undefined;
  }
}

/**
 * Saves the code that a process makes: when a check finds more than is saved, and, if none was saved before, at the end
 * of a process that ends before a check. `isTrusted` says that the file has usable code.
 */
export function saveCodeAsItGrows(disk: Disk, file: string, isTrusted: boolean, make: () => Uint8Array): void {
  let isKept = isTrusted;
  const look = (): void => {
    const code = make();
    // Another process may have stored more since this one started.
    const stored = isKept ? (getInfo(disk, file)?.size ?? 0) : 0;
    isKept = true;
    if (code.length > stored * GROWTH) keep(disk, file, code);
  };
  for (const after of LOOKS) setTimeout(look, after).unref();
  process.on("exit", () => isKept || look());
}

function keep(disk: Disk, file: string, code: Uint8Array): void {
  const folder = dirname(file);
  try {
    disk.makeFolder(folder);
    const checksum = new Uint8Array(CHECKSUM);
    new DataView(checksum.buffer).setUint32(0, crc32(code));
    putInPlaceNow(disk, file, Buffer.concat([checksum, code]), { replace: true, sync: false });
    const others = disk.names(folder).map((name) => join(folder, name));
    const byAge = others.map((path) => ({ path, modified: disk.info(path).modified }));
    byAge.sort((a, b) => b.modified - a.modified);
    for (const { path } of byAge.slice(MAX_KEPT)) removeQuietly(disk, path);
  } catch {
    // The next process makes it again.
  }
}
