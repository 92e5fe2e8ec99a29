/**
 * Several hosts on one session, each with a server of its own (1,000 kills in soak).
 *
 * @module-tag system
 */

import { describe, expect, test } from "vitest";
import { forSeedsAsync } from "../support/random.ts";
import { shareAtRandom } from "../support/sharing.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

acrossTiers(describe, ["jsonl", "v2"] as const)("hosts that share a session of %s", (store) => {
  test("are one tree: nothing acknowledged is lost or doubled, also where servers are killed", () =>
    forSeedsAsync(1, async (random) => {
      const { acknowledged, kills } = await shareAtRandom(random, { store, servers: 3, bursts: 6, kills: 0.3 });
      expect(acknowledged).toBeGreaterThan(12);
      expect(kills).toBeGreaterThan(0);
    }));

  test("or several leaves on it: each host with one of its own is where its acknowledged commands led", SWEEP, () =>
    forSeedsAsync(1, async (random) => {
      const options = { store, servers: 3, bursts: 7, kills: 0.3, heads: 1 };
      const { heads } = await shareAtRandom(random, options);
      expect(heads).toBeGreaterThan(0);
    }),
  );
});
