/** Two to six containers on one volume share a session, and are killed at random, on both stores. */

import { containers } from "../support/containers.ts";
import { shareAtRandom } from "../support/sharing.ts";
import { soak } from "../support/soak.ts";

soak("containers", async (random, number) => {
  const store = number % 2 === 0 ? "v2" : "jsonl";
  const durability = number % 3 === 0 ? "sync" : "os";
  const where = containers(random);
  return shareAtRandom(random, {
    store,
    durability,
    where,
    servers: 2 + (number % 5),
    bursts: 40,
    kills: 0.4,
    stops: 0.1,
  });
});
