/** 1,000 servers that end in every way leave no process, and a simulated year leaves nothing behind. */

import { startAndEnd, WAYS } from "../support/ends.ts";
import { temporaryPlace } from "../support/server.ts";
import { soak } from "../support/soak.ts";
import { simulatedWeeks } from "../support/weeks.ts";

const ENDS = 50;
const OPERATIONS = 100_000;

soak("lifetime", async (random, number) => {
  if (number % 21 === 0) {
    await simulatedWeeks(random, OPERATIONS);
    return { runs: 1, operations: OPERATIONS };
  }
  const place = temporaryPlace();
  for (let run = 0; run < ENDS; run++) await startAndEnd(random, WAYS[(number * ENDS + run) % WAYS.length], place);
  return { runs: 1, ended: ENDS };
});
