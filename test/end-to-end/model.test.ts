/** The whole contract against a simple model: random operations, restarts and kills (short form; long in soak). */

import { test } from "vitest";
import { HereLives } from "../support/proof.ts";
import { runModel } from "../support/proof-model.ts";
import { forSeedsAsync } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

acrossTiers(test, [30, 300])(
  "%i random operations agree with the model, and every file on the way is plain JSON lines",
  async (count) => {
    await forSeedsAsync(1, (random) => runModel(random, new HereLives({ seed: random.seed }), count));
  },
);

acrossTiers(test, [20, 150])("%i do so on containers of Store V2", async (count) => {
  await forSeedsAsync(1, (random) => runModel(random, new HereLives({ seed: random.seed }), count, { store: "v2" }));
});
