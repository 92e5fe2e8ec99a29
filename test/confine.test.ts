/** Paths that are confined: whatever links come in their place, and whenever, nothing outside is read or written. */

import { test } from "vitest";
import { forSeedsAsync } from "./support/random.ts";
import { ATTEMPTS, makeGround, tryAll } from "./support/swaps.ts";

/** Of the soak, which tries every component before every operation: one of them for each command. */
test.each(["jsonl", "v2"] as const)("on %s, a link that comes before any operation leads nowhere", async (store) => {
  const ground = await makeGround(store);
  for (const attempt of ATTEMPTS)
    await forSeedsAsync(1, async (random) => {
      await tryAll(ground, attempt, { random, count: 1 });
    });
});
