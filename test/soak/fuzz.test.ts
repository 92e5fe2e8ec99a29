/** Random and spoiled frames, in both framings, both dialects and on every store in turn. */

import { fuzz } from "../support/fuzz.ts";
import { soak } from "../support/soak.ts";

const FRAMES = 10_000;
/** Mostly in memory: what a frame is taken for does not depend on where sessions are, and files take their time. */
const STORES = ["memory", "memory", "jsonl", "memory", "memory", "v2"] as const;

soak("fuzz", async (random, number) => {
  const framing = number % 2 === 0 ? "lines" : "headers";
  const dialect = number % 4 < 2 ? "jsonrpc" : "pi";
  const answered = await fuzz(random, framing, dialect, FRAMES, STORES[number % STORES.length]);
  return { frames: FRAMES, answered };
});
