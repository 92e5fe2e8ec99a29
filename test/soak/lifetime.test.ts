/** 1,000 servers that end in every way leave no process, and a simulated year leaves nothing behind (acceptance 2). */

import { test } from "vitest";
import { startAndEnd, WAYS } from "../support/ends.ts";
import { forSeedsAsync } from "../support/random.ts";
import { temporaryPlace } from "../support/server.ts";
import { simulatedWeeks } from "../support/weeks.ts";

const RUNS = Number(process.env.SOAK_ENDS ?? 1000);

test(`${RUNS} servers are gone three seconds after their end`, async () => {
  await forSeedsAsync(1, async (random) => {
    const place = temporaryPlace();
    for (let run = 0; run < RUNS; run++) await startAndEnd(random, WAYS[run % WAYS.length], place);
  });
  console.info(`${RUNS} servers ended, none was left`);
});

test("100,000 operations in two simulated weeks leave handles and memory as they were", async () => {
  await forSeedsAsync(1, (random) => simulatedWeeks(random, 100_000));
});
