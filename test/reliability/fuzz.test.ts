/**
 * Messages of any kind to one server: each that can be answered is, once, and nothing stays behind (1,000,000 in soak).
 *
 * @module-tag system
 */

import { expect, test } from "vitest";
import { fuzz } from "../support/fuzz.ts";
import { forSeedsAsync } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

acrossTiers(test, [
  { framing: "lines", dialect: "jsonrpc" },
  { framing: "lines", dialect: "pi" },
  { framing: "headers", dialect: "jsonrpc" },
  { framing: "headers", dialect: "pi" },
] as const)("1,000 frames: $framing in the dialect $dialect", async ({ framing, dialect }) => {
  await forSeedsAsync(1, async (random) => {
    expect(await fuzz(random, framing, dialect, 1000)).toBeGreaterThan(500);
  });
});
