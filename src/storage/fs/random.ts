/** Random bytes of the system. */

import { randomFillSync } from "node:crypto";
import { closeQuietly, realDisk } from "./disk.ts";

/** Bytes drawn many at a time: the call costs more than the bytes. */
const drawn = Buffer.alloc(4096);
let used = drawn.length;

/** Returns the start of this many unused bytes. */
function drawAt(count: number): number {
  if (used + count > drawn.length) {
    if (!fillFromDevice()) randomFillSync(drawn);
    used = 0;
  }
  used += count;
  return used - count;
}

/** Returns random bytes, which stay only until the next call. */
export function drawBytes(count: number): Buffer {
  const at = drawAt(count);
  return drawn.subarray(at, at + count);
}

/** Returns a random number of 32 bits. */
export function drawNumber(): number {
  return drawn.readUInt32BE(drawAt(4));
}

/** Draws from the system's device, if there is one: `node:crypto`, which has the same bytes, is loaded in 4 ms. */
function fillFromDevice(): boolean {
  let fd = -1;
  try {
    fd = realDisk.openRead("/dev/urandom");
    return realDisk.infoOf(fd).kind === "other" && realDisk.read(fd, drawn, 0, drawn.length, 0) === drawn.length;
  } catch {
    return false;
  } finally {
    if (fd >= 0) closeQuietly(realDisk, fd);
  }
}
