/** The whole contract against a simple model, long: many seeds here, and the built program killed by SIGKILL. */

import { test } from "vitest";
import { HereLives, SpawnedLives } from "../support/proof.ts";
import { runModel } from "../support/proof-model.ts";
import { forSeedsAsync } from "../support/random.ts";

test("250,000 random operations agree with the model", async () => {
  await forSeedsAsync(200, (random) => runModel(random, new HereLives({ seed: random.seed }), 1250));
});

test("10,000 random operations agree with the model while the program is killed", async () => {
  await forSeedsAsync(8, (random) => runModel(random, new SpawnedLives(), 1250, { slow: true }));
});

test("50,000 random operations on containers of Store V2 agree with the model", async () => {
  await forSeedsAsync(40, (random) => runModel(random, new HereLives({ seed: random.seed }), 1250, { store: "v2" }));
});
