/**
 * Whatever moves sessions, interrupted at eight of the operations after which a death leaves another disk, and failing
 * once at each place of the sources that asks the disk, whichever request came there first. The soak test does each
 * scenario at every operation with every power cut.
 */

import { describe, test } from "vitest";
import { checkErrors, checkInterrupted, SCENARIOS } from "../support/lifecycle-faults.ts";
import { SWEEP } from "../support/tiers.ts";

const places = new Set<string>();

/** One of each kind of move, and of each kind of undo; the others are the same moves from elsewhere, or of a container. */
const REPRESENTATIVES = [
  ...["delete", "delete for good", "restore", "archive", "relocate by id"],
  ...["import", "import of more"],
  ...["relocate of a container by id", "delete of a container", "delete across file systems"],
  ...["undo of delete", "undo of archive", "undo of repair of a container"],
];

for (const scenario of SCENARIOS)
  describe.each([scenario])("$name", REPRESENTATIVES.includes(scenario.name) ? {} : SWEEP, () => {
    test("interrupted keeps everything, and asked for again comes to its end", () => checkInterrupted(scenario));

    test("fails as if it had not been asked for, or is done", () => checkErrors(scenario, places));
  });
