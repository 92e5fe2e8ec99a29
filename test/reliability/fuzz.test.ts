/** Messages of any kind to one server: each that can be answered is, once, and nothing stays behind (1,000,000 in soak). */

import { expect, test } from "vitest";
import { fuzz } from "../support/fuzz.ts";
import { forSeedsAsync } from "../support/random.ts";

test.each([
  ["lines", "jsonrpc"],
  ["lines", "pi"],
  ["headers", "jsonrpc"],
  ["headers", "pi"],
] as const)("1,000 frames: %s in the dialect %s", async (framing, dialect) => {
  await forSeedsAsync(1, async (random) => {
    expect(await fuzz(random, framing, dialect, 1000)).toBeGreaterThan(500);
  });
});
