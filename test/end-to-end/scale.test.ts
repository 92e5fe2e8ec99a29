/** Every shape, and the extreme ones at 13,000 entries, more than the stack holds calls (a million in soak). */

import { test } from "vitest";
import { HereLives } from "../support/proof.ts";
import { SHAPES, walk } from "../support/proof-scale.ts";
import { SWEEP } from "../support/tiers.ts";

test.each(["a chain", "children of one node"])("13,000 entries as %s", SWEEP, async (shape) => {
  await walk(new HereLives(), 13_000, shape, 2000);
});

test.each(Object.keys(SHAPES))("2,000 entries as %s", async (shape) => {
  await walk(new HereLives(), 2000, shape, 150);
});
