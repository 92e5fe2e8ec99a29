/** Whatever moves sessions, interrupted; the soak tests do it at every operation with every power cut. */

import { describe, test } from "vitest";
import { checkErrors, checkInterrupted, SCENARIOS } from "../support/lifecycle-faults.ts";

describe.each(SCENARIOS)("$name", (scenario) => {
  test("interrupted keeps everything, and asked for again comes to its end", () => checkInterrupted(scenario, false));

  test("fails as if it had not been asked for, or is done", () => checkErrors(scenario, false));
});
