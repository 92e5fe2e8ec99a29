/** A million entries in several shapes, walked by the built program within Node's default heap. */

import { expect } from "vitest";
import { SpawnedLives } from "../support/proof.ts";
import { SHAPES, walk } from "../support/proof-scale.ts";
import { soak } from "../support/soak.ts";

const ENTRIES = 1_000_000;

soak("scale", async (_random, number) => {
  const shapes = Object.keys(SHAPES);
  const shape = shapes[(number - 1) % shapes.length];
  const lives = new SpawnedLives();
  const { megabytes, peakMegabytes, took } = await walk(lives, ENTRIES, shape, 20_000, () => lives.pid);
  console.info(`${shape}, ${megabytes} MB, peak ${peakMegabytes} MB, ms: ${JSON.stringify(took)}`);
  // Replies are built in memory, the session's bodies are not kept there.
  expect(peakMegabytes).toBeLessThan(2000);
  return { runs: 1, entries: ENTRIES };
});
