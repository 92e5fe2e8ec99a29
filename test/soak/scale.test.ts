/** A million entries in several shapes, walked by the built program within Node's default heap. */

import { expect, test } from "vitest";
import { SpawnedLives } from "../support/proof.ts";
import { SHAPES, walk } from "../support/proof-scale.ts";

test.each(Object.keys(SHAPES))("a million entries as %s", async (shape) => {
  const lives = new SpawnedLives();
  const { megabytes, peakMegabytes, took } = await walk(lives, 1_000_000, shape, 20_000, () => lives.pid);
  console.info(`${shape}, ${megabytes} MB, peak ${peakMegabytes} MB, ms: ${JSON.stringify(took)}`);
  // Replies are built in memory, the session's bodies are not kept there.
  expect(peakMegabytes).toBeLessThan(2000);
});
