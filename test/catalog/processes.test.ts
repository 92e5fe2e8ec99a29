/**
 * Many servers at once on the same sessions and the same state folder (150 sessions in soak).
 *
 * @module-tag sweep
 */

import { test } from "vitest";
import { indexTogether } from "../support/listing.ts";
import { forSeedsAsync } from "../support/random.ts";

test("4 processes index and list at once: no row is lost, nobody sees an error", async () => {
  await forSeedsAsync(1, (random) => indexTogether(random, 4, 40, 2));
});
