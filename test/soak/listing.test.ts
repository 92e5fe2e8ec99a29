/** Many processes that list and search at the same time (reliability case X8, long form). */

import { test } from "vitest";
import { indexTogether, listTogether } from "../support/listing.ts";
import { forSeedsAsync } from "../support/random.ts";

test("32 processes see 1,000 sessions each, ten times", async () => {
  for (let round = 0; round < 10; round++) await listTogether(32, 1000);
});

test("8 processes index and list 150 sessions that grow", async () => {
  await forSeedsAsync(10, (random) => indexTogether(random, 8, 150, 3));
});
