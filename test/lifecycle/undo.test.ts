/** Undo and redo of random sequences of operations, on every store (test/soak/undo.test.ts goes on with many seeds). */

import { describe, test } from "vitest";
import { forSeedsAsync } from "../support/random.ts";
import { UndoModel } from "../support/undoing.ts";

describe.each(["jsonl", "v2"] as const)("in sessions of %s", (store) => {
  test("whatever was done, undo leads to what was before, and redo to what was after", async () => {
    await forSeedsAsync(2, async (random) => {
      const model = await UndoModel.begin(random, store);
      while (model.count < 18) await model.step();
      await model.end();
    });
  });
});
