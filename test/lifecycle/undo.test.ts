/**
 * Undo and redo of random sequences of operations, on every store (test/soak/undo.test.ts goes on with many seeds).
 *
 * @module-tag system
 */

import { describe, expect, test } from "vitest";
import { forSeedsAsync } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";
import { UndoModel, undoTogether } from "../support/undoing.ts";

acrossTiers(describe, ["jsonl", "v2"] as const)("in sessions of %s", (store) => {
  acrossTiers(test, [8, 16])(
    "whatever was done, undo leads to what was before, and redo to what was after (%i)",
    async (count) => {
      await forSeedsAsync(1, async (random) => {
        const model = await UndoModel.begin(random, store);
        while (model.count < count) await model.step();
        await model.end();
      });
    },
  );
});

acrossTiers(test, ["jsonl", "v2"] as const)(
  "several processes that undo at once take each operation back once (%s)",
  (store) => undoTogether(3, 2, store).then((count) => expect(count).toBe(11)),
);
