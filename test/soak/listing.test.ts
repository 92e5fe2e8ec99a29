/** 32 processes that list at the same time (reliability case X8, long form). */

import { test } from "vitest";
import { listTogether } from "../support/listing.ts";

test("32 processes see 1,000 sessions each, ten times", async () => {
  for (let round = 0; round < 10; round++) await listTogether(32, 1000);
});
