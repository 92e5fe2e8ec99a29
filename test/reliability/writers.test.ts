/** Several writers on one file, with kills in between (short form; 1,000 entries each in soak). */

import { expect, test } from "vitest";
import { forSeedsAsync } from "../support/random.ts";
import { twoServers, withForeignWriter } from "../support/writers.ts";

test("two servers make one chain, and nothing acknowledged is lost", async () => {
  await forSeedsAsync(1, async (random) => {
    const { kills, locked } = await twoServers(random, 60);
    expect(kills).toBeGreaterThan(0);
    expect(locked).toBeGreaterThan(3);
  });
});

test("a program that knows no lock loses nothing and hides nothing", async () => {
  await forSeedsAsync(1, async (random) => {
    const { kills, foreign } = await withForeignWriter(random, 60);
    expect(kills).toBeGreaterThan(0);
    expect(foreign).toBeGreaterThan(20);
  });
});
