/**
 * A disk that fails anywhere, under every command there is: each request is answered once and the server lives.
 *
 * @module-tag system
 */

import { expect, test } from "vitest";
import { converse, MOST_OPERATIONS, randomTrial } from "../support/every-command.ts";
import { forSeedsAsync } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

acrossTiers(test, ["jsonl", "v2"] as const)("no failure is met in a conversation on %s without one", async (store) => {
  const { operations, met } = await converse({ store, dialect: "jsonrpc", durability: "os", strike: () => undefined });
  expect(met).toBe("");
  expect(operations).toBeGreaterThan(500);
  expect(operations).toBeLessThan(MOST_OPERATIONS);
});

acrossTiers(test, [1, 2])("every request is answered once, in order, and nothing is a bug: %i", async (seeds) => {
  await forSeedsAsync(seeds, async (random) => {
    await converse(randomTrial(random));
  });
});
