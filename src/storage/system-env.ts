/** The real clock, ids and hash. Only this file imports uuid; tests pass a deterministic Env. */

import { hash, randomFillSync } from "node:crypto";
import { v7 as uuidv7 } from "uuid";
import type { Env } from "../core/ports/env.ts";
import { unpackId } from "../core/tree/nodes.ts";
import { closeQuietly, realDisk } from "./fs/disk.ts";

/** Random bytes, drawn many at a time: the call costs more than the bytes. */
const drawn = Buffer.alloc(4096);
let used = drawn.length;

/** Returns where so many of them begin that were not used before. */
function draw(count: number): number {
  if (used + count > drawn.length) {
    if (!fillFromDevice()) randomFillSync(drawn);
    used = 0;
  }
  used += count;
  return used - count;
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

/** Time and number of the latest session id: of two in one millisecond, the later one is greater. */
const latest = { msecs: 0, seq: 0 };

export const realEnv: Env = {
  now: () => Date.now(),
  // With random bytes of ours: those that uuid draws take Web Crypto, which is loaded in 5 ms.
  sessionId() {
    const at = draw(16);
    const random = drawn.subarray(at, at + 16);
    const now = Date.now();
    if (now > latest.msecs) Object.assign(latest, { msecs: now, seq: random.readUInt32BE(6) >>> 1 });
    else latest.seq++;
    return uuidv7({ random, ...latest });
  },
  entryId: () => unpackId(drawn.readUInt32BE(draw(4))),
  // Takes a third of the time of a Hash object for something as short as an id.
  sha256: (bytes) => hash("sha256", bytes),
};
