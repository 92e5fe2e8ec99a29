/** The real clock, ids and hash. Only this file imports uuid; tests pass a deterministic Env. */

import { hash, randomFillSync } from "node:crypto";
import { v7 as uuidv7 } from "uuid";
import type { Env } from "../core/ports/env.ts";
import { unpackId } from "../core/tree/nodes.ts";

/** Random bytes, drawn many at a time: the call costs more than the bytes. */
const drawn = Buffer.alloc(4096);
let used = drawn.length;

export const realEnv: Env = {
  now: () => Date.now(),
  sessionId: () => uuidv7(),
  entryId() {
    if (used === drawn.length) {
      randomFillSync(drawn);
      used = 0;
    }
    used += 4;
    return unpackId(drawn.readUInt32BE(used - 4));
  },
  // Takes a third of the time of a Hash object for something as short as an id.
  sha256: (bytes) => hash("sha256", bytes),
};
