/** Whatever moves sessions, interrupted at every operation. */

import { checkErrors, checkInterrupted, SCENARIOS } from "../support/lifecycle-faults.ts";
import { soak } from "../support/soak.ts";

process.env.PI_TEST_EVERY = "1";

soak("lifecycle", async (_random, number) => {
  const scenario = SCENARIOS[((number - 1) >> 1) % SCENARIOS.length];
  if (number % 2 === 1) await checkInterrupted(scenario);
  else await checkErrors(scenario, new Set());
  return { runs: 1 };
});
