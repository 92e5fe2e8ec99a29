/** Two to eight hosts on one session, whose servers are killed at random, on both stores. */

import { shareAtRandom } from "../support/sharing.ts";
import { soak } from "../support/soak.ts";

soak("sharing", async (random, number) => {
  const store = number % 2 === 0 ? "v2" : "jsonl";
  const durability = number % 3 === 0 ? "sync" : "os";
  const heads = number % 4 < 2 ? 0 : 0.6;
  return shareAtRandom(random, { store, durability, servers: 2 + (number % 7), bursts: 40, kills: 0.4, heads });
});
