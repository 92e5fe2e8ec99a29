/** Several writers on one file, with kills in between, until 1,000 entries are acknowledged (acceptance 4, long form). */

import { test } from "vitest";
import { forSeedsAsync } from "../support/random.ts";
import { twoServers, type Written, withForeignWriter } from "../support/writers.ts";

const WANTED = Number(process.env.SOAK_APPENDS ?? 1000);

function tell(what: string, seed: number, { appends, acknowledged, locked, kills, foreign, torn }: Written): void {
  console.info(
    `${what}, seed ${seed}: ${appends} appends, ${acknowledged} entries acknowledged, ${locked} refused for the lock, ` +
      `${kills} kills, ${foreign} entries of the other program, ${torn} of them torn`,
  );
}

test("two servers make one chain, and nothing acknowledged is lost", async () => {
  await forSeedsAsync(3, async (random) => tell("two servers", random.seed, await twoServers(random, WANTED)));
});

test("a program that knows no lock loses nothing and hides nothing", async () => {
  await forSeedsAsync(3, async (random) =>
    tell("a foreign writer", random.seed, await withForeignWriter(random, WANTED)),
  );
});
