/** Whatever moves sessions, interrupted at every operation. */

import { checkErrors, checkInterrupted, SCENARIOS } from "../support/lifecycle-faults.ts";
import { soak } from "../support/soak.ts";

soak("lifecycle", async (_random, number) => {
  const check = number % 2 === 1 ? checkInterrupted : checkErrors;
  await check(SCENARIOS[((number - 1) >> 1) % SCENARIOS.length], true);
  return { runs: 1 };
});
