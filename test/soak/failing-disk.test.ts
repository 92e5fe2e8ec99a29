/**
 * Every command over a disk that fails at each of its operations, on both stores, in both dialects. Which of the
 * operations: those of PI_TEST_SEED and every PI_SOAK_STEP-th after it (1, which is all of them; 2.5 hours).
 */

import { describe, test } from "vitest";
import { converse, randomTrial } from "../support/every-command.ts";
import { STROKES } from "../support/failing.ts";
import { forSeedsAsync } from "../support/random.ts";

const STEP = Number(process.env.PI_SOAK_STEP ?? 1);
const FIRST = Number(process.env.PI_TEST_SEED ?? 1);

describe.each(["jsonl", "v2"] as const)("%s", (store) => {
  test.each(STROKES)("%s at each operation", async (stroke) => {
    for (let at = FIRST, reached = at; at <= reached; at += STEP) {
      const dialect = at % 2 === 0 ? "pi" : "jsonrpc";
      const durability = at % 3 === 0 ? "sync" : "os";
      const heldReplyBytes = at % 5 === 0 ? 300 : undefined;
      const strike = (count: number) => (count === at ? stroke : undefined);
      reached = (await converse({ store, dialect, durability, heldReplyBytes, strike })).operations;
    }
  });
});

test("at random operations, several in a conversation", async () => {
  await forSeedsAsync(Math.ceil(2000 / STEP), async (random) => {
    await converse(randomTrial(random));
  });
});
