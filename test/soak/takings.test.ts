/** One lock, taken by processes in different namespaces that are killed meanwhile: no two hold it at once. */

import { expect, test } from "vitest";
import { takings } from "../support/lock-contention.ts";
import { apart } from "../support/namespaces.ts";
import { forSeedsAsync } from "../support/random.ts";

const WANTED = Number(process.env.SOAK_TAKINGS ?? 5000);
/** Other versions of Node, to be mixed with this one. */
const NODES = [process.execPath, ...(process.env.PI_TEST_OTHER_NODE?.split(":") ?? [])];

test.skipIf(apart("network and pids") === null)("one at a time has the lock", async () => {
  await forSeedsAsync(1, async (random) => {
    const { taken, refused, kills } = await takings(random, WANTED, NODES);
    console.info(`seed ${random.seed}: ${taken} takings, ${refused} refused, ${kills} kills, ${NODES.length} versions`);
    expect(kills).toBeGreaterThan(0);
  });
});
