/** Turns of an agent behind a server, whose server, agent and client are killed at random. */

import { recordAtRandom } from "../support/recording.ts";
import { recordAcpAtRandom } from "../support/recording-acp.ts";
import { soak } from "../support/soak.ts";

soak("recording", async (random, number) => {
  // Of three units, one has an agent of the Agent Client Protocol, on each store in turn.
  const { ...figures } =
    number % 3 === 0
      ? await recordAcpAtRandom(random, 25, number % 2 === 0 ? "v2" : "jsonl")
      : await recordAtRandom(random, 25);
  return figures;
});
