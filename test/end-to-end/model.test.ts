/** The whole contract against a simple model: random operations, restarts and kills (short form; long in soak). */

import { test } from "vitest";
import { HereLives } from "../support/proof.ts";
import { runModel } from "../support/proof-model.ts";
import { forSeedsAsync } from "../support/random.ts";

test("300 random operations agree with the model, and every file on the way is plain JSON lines", async () => {
  await forSeedsAsync(1, (random) => runModel(random, new HereLives({ seed: random.seed }), 300));
});

test("150 do so on containers of Store V2", async () => {
  await forSeedsAsync(1, (random) => runModel(random, new HereLives({ seed: random.seed }), 150, { store: "v2" }));
});
