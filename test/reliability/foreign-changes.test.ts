/**
 * Files that are changed under an open server, in every way (short form; 10,000 changes in soak).
 *
 * @module-tag system
 */

import { describe, test } from "vitest";
import { changeUnderneath, expectSound } from "../support/foreign-changes.ts";
import { KINDS } from "../support/foreign-kinds.ts";
import { forSeedsAsync } from "../support/random.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

acrossTiers(describe, ["jsonl", "v2"] as const)("--store %s", (store) => {
  test("every request is answered, with what the file said or as damage, and what is acknowledged can be read", () =>
    forSeedsAsync(1, async (random) => {
      const changes = Object.keys(KINDS).length;
      expectSound(await changeUnderneath(random, { store, framing: "lines", dialect: "jsonrpc", changes }));
    }));
});

test.each([
  ["jsonl", "headers", "jsonrpc"],
  ["v2", "lines", "pi"],
] as const)("so it is on %s with %s in the dialect %s (and more in soak)", SWEEP, (store, framing, dialect) =>
  forSeedsAsync(1, async (random) => {
    expectSound(await changeUnderneath(random, { store, framing, dialect, changes: 8 }));
  }),
);
