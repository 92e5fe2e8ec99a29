/** Links in confined paths, long form: before every operation of every command, and by a program that swaps all the time. */

import { describe, test } from "vitest";
import { forSeedsAsync } from "../support/random.ts";
import { ATTEMPTS, makeGround, type Race, race, tryAll } from "../support/swaps.ts";

/** Requests to the real program while links are swapped, and how many of them a server gets. */
const REQUESTS = Number(process.env.SOAK_RACES ?? 10_000);
const EACH = 200;

describe.each(["jsonl", "v2"] as const)("on %s", (store) => {
  test.each(ATTEMPTS)("a link before any operation leads nowhere: $name", async (attempt) => {
    const tries = await tryAll(await makeGround(store), attempt);
    console.info(`${attempt.name}, ${store}: ${tries} swaps`);
  });

  test("a racing program leads nowhere", async () => {
    const total: Race = { requests: 0, refused: 0, swaps: 0 };
    const ground = await makeGround(store);
    await forSeedsAsync(Math.ceil(REQUESTS / 2 / EACH), async (random) => {
      const { requests, refused, swaps } = await race(ground, random, EACH);
      total.requests += requests;
      total.refused += refused;
      total.swaps += swaps;
    });
    console.info(`${store}: ${total.requests} requests, ${total.refused} refused, ${total.swaps} links came and went`);
  });
});
