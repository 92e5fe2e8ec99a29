/** Paths that are confined: whatever links come in their place, and whenever, nothing outside is read or written. */

import { describe, expect, test } from "vitest";
import { putSession, serveLibrary, sessionId } from "./support/lifecycle.ts";
import { forSeedsAsync } from "./support/random.ts";
import { temporaryPlace } from "./support/server.ts";
import { ATTEMPTS, makeGround, tryAll } from "./support/swaps.ts";
import { acrossTiers, SYSTEM } from "./support/tiers.ts";

/** Part of the soak, which tries every component before every operation: one of them for each command. */
describe("on every store", SYSTEM, () => {
  const cases = [
    { store: "jsonl", ofMany: 5 },
    { store: "jsonl", ofMany: 1 },
    { store: "v2", ofMany: 1 },
  ] as const;

  acrossTiers(test, cases)(
    "on $store, a link that comes before any operation leads nowhere (one of $ofMany)",
    async ({ store, ofMany }) => {
      const ground = await makeGround(store);
      for (const attempt of ATTEMPTS.filter((_, n) => n % ofMany === 0))
        await forSeedsAsync(1, async (random) => {
          await tryAll(ground, attempt, { random, count: 1 });
        });
    },
  );
});

test("a session is found by its id from a folder that is not allowed", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const server = serveLibrary(place, ["--confine", "--session", sessionId(1)]);
  expect((await server.result("get_state")).sessionFile).toBe(file);
});
