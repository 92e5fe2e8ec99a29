/** Every shape, and the extreme ones at 13,000 entries, more than the stack holds calls (a million in soak). */

import { describe, test } from "vitest";
import { HereLives } from "../support/proof.ts";
import { SHAPES, walk } from "../support/proof-scale.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

test.each(["a chain", "children of one node"])("13,000 entries as %s", SWEEP, async (shape) => {
  await walk(new HereLives(), 13_000, shape, 2000);
});

describe.each(Object.keys(SHAPES))("%s", (shape) => {
  acrossTiers(test, [
    { count: 500, every: 125 },
    { count: 2000, every: 150 },
  ])("of $count entries", async ({ count, every }) => {
    await walk(new HereLives(), count, shape, every);
  });
});
