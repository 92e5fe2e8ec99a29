/** 1,000,000 random and spoiled frames, in both framings and dialects (acceptance 6, long form). */

import { test } from "vitest";
import { fuzz } from "../support/fuzz.ts";
import { forSeedsAsync } from "../support/random.ts";

const FRAMES = Number(process.env.SOAK_FRAMES ?? 1_000_000);

test.each([
  ["lines", "jsonrpc"],
  ["lines", "pi"],
  ["headers", "jsonrpc"],
  ["headers", "pi"],
] as const)("%s in the dialect %s", async (framing, dialect) => {
  await forSeedsAsync(1, async (random) => {
    const answered = await fuzz(random, framing, dialect, Math.ceil(FRAMES / 4));
    console.info(`${framing}, ${dialect}, seed ${random.seed}: ${answered} requests answered once each`);
  });
});
