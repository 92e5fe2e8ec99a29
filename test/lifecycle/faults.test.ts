/**
 * Commands that move sessions, interrupted at eight of the operations after which a death leaves another disk, and
 * failing once at each place of the sources that asks the disk, in the first request there. The soak test does each
 * scenario at every operation with every power cut.
 */

import { describe, test } from "vitest";
import { checkErrors, checkInterrupted, SCENARIOS } from "../support/lifecycle-faults.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

/** The places that each of the tiers knows. */
const PLACES = { few: new Set<string>(), all: new Set<string>() };

/** One of each kind of move, and of each kind of undo; the others are the same moves from elsewhere, or of a container. */
const REPRESENTATIVES = [
  ...["delete", "delete for good", "restore", "archive", "relocate by id"],
  ...["import", "import of more"],
  ...["relocate of a container by id", "delete of a container", "delete across file systems"],
  ...["undo of delete", "undo of archive", "undo of repair of a container"],
];

/** The scenario with the most places that ask the disk: the sweep has most of them. */
const LONGEST = "undo of repair of a container";

for (const scenario of SCENARIOS)
  describe.each([scenario])("$name", REPRESENTATIVES.includes(scenario.name) ? {} : SWEEP, () => {
    const isRepresentative = REPRESENTATIVES.includes(scenario.name);

    acrossTiers(test, isRepresentative ? [2, 5] : [5])(
      "interrupted keeps everything, and asked for again comes to its end (%i)",
      (count) => checkInterrupted(scenario, count),
    );

    acrossTiers(test, isRepresentative ? [scenario.name === LONGEST ? 24 : 8, 2] : [2])(
      "fails as if it had not been asked for, or is done (one of %i)",
      (ofMany) => checkErrors(scenario, ofMany >= 8 ? PLACES.few : PLACES.all, ofMany),
    );
  });
