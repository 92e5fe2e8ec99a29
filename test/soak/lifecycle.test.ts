/** Whatever moves sessions, interrupted at every operation. */

import { describe, test } from "vitest";
import { checkErrors, checkInterrupted, SCENARIOS } from "../support/lifecycle-faults.ts";

describe.each(SCENARIOS)("$name", (scenario) => {
  test("interrupted anywhere keeps everything, and asked for again comes to its end", () =>
    checkInterrupted(scenario, true));

  test("fails anywhere as if it had not been asked for, or is done", () => checkErrors(scenario, true));
});
