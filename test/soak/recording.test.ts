/** Turns of an agent behind a server, whose server, agent and client are killed at random. */

import { recordAtRandom } from "../support/recording.ts";
import { soak } from "../support/soak.ts";

soak("recording", async (random) => ({ ...(await recordAtRandom(random, 25)) }));
