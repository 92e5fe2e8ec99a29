/** The real clock, ids and hash. Only this file imports uuid; tests pass a deterministic Env. */

import { hash } from "node:crypto";
import { v7 as uuidv7 } from "uuid";
import type { Env } from "../core/ports/env.ts";
import { unpackId } from "../core/tree/nodes.ts";
import { drawBytes, drawNumber } from "./fs/random.ts";

/** Time and number of the latest session id: of two in one millisecond, the later one is greater. */
const latest = { msecs: 0, seq: 0 };

export const realEnv: Env = {
  now: () => Date.now(),
  // With random bytes of ours: those that uuid draws take Web Crypto, which is loaded in 5 ms.
  sessionId() {
    const random = drawBytes(16);
    const now = Date.now();
    if (now > latest.msecs) Object.assign(latest, { msecs: now, seq: random.readUInt32BE(6) >>> 1 });
    else latest.seq++;
    return uuidv7({ random, ...latest });
  },
  entryId: () => unpackId(drawNumber()),
  // Takes a third of the time of a Hash object for something as short as an id.
  sha256: (bytes) => hash("sha256", bytes),
};
