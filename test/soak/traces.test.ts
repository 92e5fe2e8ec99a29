/** Many traces of the model, run with the real stores: `SOAK_TRACES` for each kind of session, 2,000 by default. */

import { test } from "vitest";
import { explore } from "../model/explorer.ts";
import { ruleOf, type World } from "../model/rule.ts";
import { requireOrder, type Setup } from "../model/runner.ts";
import { FOUND, sample, walk } from "../model/traces.ts";
import { SMALL } from "../model/worlds.ts";
import { forSeedsAsync, Random } from "../support/random.ts";

const TRACES = Number(process.env.SOAK_TRACES ?? 2000);

test.each(["jsonl", "v2"] as const)("nothing is lost in traces at random with a %s log", async (store) => {
  await forSeedsAsync(TRACES, async (random) => {
    const world: World = {
      store,
      processes: random.pick([2, 3, 4]),
      appends: 8,
      pairs: 4,
      failures: random.chance(0.7),
      foreign: store === "jsonl" && random.chance(0.2) ? 2 : 0,
    };
    const setup: Setup = {
      store,
      durability: random.pick(["sync", "os"]),
      asSession: random.chance(0.5),
      changesATick: random.pick([1, 1, 20]),
      ...(random.chance(0.3) ? { segmentBytes: 1200 } : {}),
      ...(random.chance(0.3) ? { checkpointEvery: 2 } : {}),
    };
    await requireOrder(setup, walk(world, random, 20 + random.int(60)), random);
  });
});

test.each(SMALL)("nothing is lost on the way to states of the model: $store", async (world) => {
  const explored = explore(ruleOf(world));
  const random = new Random(1);
  for (const trace of sample(explored, random, TRACES / 4)) {
    const durability = random.pick(["sync", "os"] as const);
    await requireOrder({ store: world.store, durability, asSession: random.chance(0.5) }, trace, random);
  }
});

test.each(Object.entries(FOUND))("nothing is lost wherever others come in when %s", async (_name, trace) => {
  for (const store of ["jsonl", "v2"] as const)
    for (const durability of ["sync", "os"] as const)
      for (let pauseAt = 0; pauseAt < 40; pauseAt++)
        await requireOrder({ store, durability, asSession: true, pauseAt }, trace, new Random(1));
});
