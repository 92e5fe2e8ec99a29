/** The whole contract against a simple model, on both stores, and at times with the built program killed by SIGKILL. */

import { HereLives, SpawnedLives } from "../support/proof.ts";
import { runModel } from "../support/proof-model.ts";
import { soak } from "../support/soak.ts";

const OPERATIONS = 1250;

soak("model", async (random, number) => {
  const store = number % 2 === 0 ? "jsonl" : "v2";
  const slow = number % 51 === 0;
  await runModel(random, slow ? new SpawnedLives() : new HereLives({ seed: number }), OPERATIONS, { store, slow });
  return { operations: OPERATIONS };
});
