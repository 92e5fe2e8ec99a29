/** Random operations, undos and redos against the model, and several processes that undo at once. */

import { soak } from "../support/soak.ts";
import { UndoModel, undoTogether } from "../support/undoing.ts";

soak("undo", async (random, number) => {
  if (number % 10 === 0) {
    const store = number % 20 === 0 ? "jsonl" : "v2";
    return { operations: await undoTogether(4, 8, store), runs: 1 };
  }
  const model = await UndoModel.begin(random, number % 2 === 0 ? "jsonl" : "v2");
  const steps = 10 + random.int(60);
  while (model.count < steps) await model.step();
  await model.end();
  return { operations: steps, runs: 1 };
});
