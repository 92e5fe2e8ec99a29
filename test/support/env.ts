/** A clock and ids that are the same at every run. */

import { createHash } from "node:crypto";
import type { Env } from "../../src/core/ports/env.ts";
import { Random } from "./random.ts";

export const BEGINNING = Date.parse("2026-01-24T16:22:26.831Z");

export function testEnv(seed = 1): Env {
  const random = new Random(seed ^ 0x5e551011);
  let now = BEGINNING;
  return {
    now: () => (now += 1000),
    sessionId: () =>
      `01991f6e-${random.hex(4)}-7${random.hex(3)}-${random.pick(["8", "9", "a", "b"])}${random.hex(3)}-${random.hex(12)}`,
    entryId: () => random.hex(8),
    sha256: (bytes) => createHash("sha256").update(bytes).digest("hex"),
  };
}
