/** A session that is watched while its writer and the connection are killed: everything is shown, in its order. */

import { expect } from "vitest";
import { stopTimers } from "../support/server.ts";
import { soak } from "../support/soak.ts";
import { watchedThroughKills } from "../support/viewing.ts";

/** Kills of the writer, and appends before each. */
const ROUNDS = 10;
const EACH = 100;

soak("view", async (random, number) => {
  stopTimers();
  const store = number % 2 === 0 ? "jsonl" : "v2";
  const { shown, expected, acknowledged } = await watchedThroughKills(random, store, ROUNDS, EACH);
  expect(shown).toEqual(expected);
  return { acknowledged, kills: ROUNDS, entries: expected.length };
});
