/** The real clock, ids and hash. Only this file imports uuid; tests pass a deterministic Env. */

import { hash, randomFillSync } from "node:crypto";
import { v7 as uuidv7 } from "uuid";
import type { Env } from "../core/ports/env.ts";
import { unpackId } from "../core/tree/nodes.ts";

/** Random bytes, drawn many at a time: the call costs more than the bytes. */
const drawn = Buffer.alloc(4096);
let used = drawn.length;

/** Returns where so many of them begin that were not used before. */
function draw(count: number): number {
  if (used + count > drawn.length) {
    randomFillSync(drawn);
    used = 0;
  }
  used += count;
  return used - count;
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
