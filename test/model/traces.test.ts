/** Traces of the model, run with the real stores: acknowledged entries are there once, and no process is stuck. */

import { describe, test } from "vitest";
import { forSeedsAsync, Random } from "../support/random.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";
import { requireOrder } from "./runner.ts";
import { FOUND, walk } from "./traces.ts";

/** Places in a read at which others come in: its beginning, and two between the reads of a V2 log. */
const PAUSES = [0, 9, 15];

describe.each(["jsonl", "v2"] as const)("with a %s log", (store) => {
  for (const [name, trace] of Object.entries(FOUND)) {
    const cases = [
      { durability: "sync", pauses: PAUSES.slice(0, 2) },
      { durability: "sync", pauses: PAUSES },
      { durability: "os", pauses: PAUSES },
    ] as const;

    acrossTiers(test, cases)(`nothing is lost when ${name} ($durability, $pauses)`, async ({ durability, pauses }) => {
      for (const pauseAt of pauses)
        await requireOrder({ store, durability, asSession: durability === "sync", pauseAt }, trace, new Random(1));
    });

    // Two records of a batch in two segments.
    if (store === "v2")
      test(`nothing is lost in small segments when ${name}`, SWEEP, () =>
        requireOrder({ store, durability: "sync", asSession: true, segmentBytes: 1200 }, trace, new Random(1)),
      );
  }

  test.each(["sync", "os"] as const)("traces of one process at a time leave all in order: %s", async (durability) => {
    await forSeedsAsync(2, async (random) => {
      const trace = walk({ store, processes: 1, appends: 4, pairs: 2, failures: true }, random, 40);
      await requireOrder({ store, durability, asSession: true, isAlone: true }, trace, random);
    });
  });

  test("nothing is lost in traces at random", async () => {
    await forSeedsAsync(2, async (random) => {
      const trace = walk({ store, processes: 2, appends: 4, pairs: 2, failures: true }, random, 40);
      await requireOrder(
        { store, durability: random.pick(["sync", "os"]), asSession: random.chance(0.5) },
        trace,
        random,
      );
    });
  });
});
