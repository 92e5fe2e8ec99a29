/**
 * Whatever moves sessions, interrupted at eight of the operations after which a death leaves another disk, and failing
 * once at each place of the sources that asks the disk, whichever request came there first. The soak test does each
 * scenario at every operation with every power cut.
 */

import { describe, test } from "vitest";
import { checkErrors, checkInterrupted, SCENARIOS } from "../support/lifecycle-faults.ts";

const places = new Set<string>();

describe.each(SCENARIOS)("$name", (scenario) => {
  test("interrupted keeps everything, and asked for again comes to its end", () => checkInterrupted(scenario));

  test("fails as if it had not been asked for, or is done", () => checkErrors(scenario, places));
});
