/**
 * kill -9 on the real program and the real file system (short form; 10,100 runs in soak).
 *
 * @module-tag system
 */

import { expect, test } from "vitest";
import { killRuns } from "../support/proof-kill.ts";
import { forSeedsAsync } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

acrossTiers(test, ["jsonl", "v2"])(
  "what was answered is there after kill -9, --store %s, and what is sent again once",
  async (store) => {
    await forSeedsAsync(1, async (random) => {
      const runs = await killRuns(random, 3, ["--store", store]);
      // A run with all answers before the kill shows nothing.
      expect(runs.filter(({ sent, answered }) => answered < sent).length).toBeGreaterThan(0);
    });
  },
);
