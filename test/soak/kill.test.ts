/** kill -9 on the real program and the real file system, 200 runs with each durability and store. */

import { expect, test } from "vitest";
import { killRuns } from "../support/proof-kill.ts";
import { forSeedsAsync } from "../support/random.ts";

test.each([
  ["jsonl", "sync"],
  ["jsonl", "os"],
  ["v2", "sync"],
  ["v2", "os"],
])(
  "what was answered is there after kill -9, and what is sent again is there once, --store %s --durability %s",
  async (store, mode) => {
    await forSeedsAsync(4, async (random) => {
      const runs = await killRuns(random, 50, ["--store", store, "--durability", mode]);
      expect(runs.filter(({ sent, answered }) => answered < sent).length).toBeGreaterThan(0);
      const sum = (of: (run: (typeof runs)[0]) => number): number => runs.reduce((all, run) => all + of(run), 0);
      console.info(
        `kill -9, ${store}, ${mode}, seed ${random.seed}: ${runs.length} runs, ${sum(({ sent }) => sent)} requests sent, ` +
          `${sum(({ answered }) => answered)} answered, ${sum(({ recovered }) => recovered)} recovered, ` +
          `${runs.at(-1)?.torn} torn writes`,
      );
    });
  },
);
