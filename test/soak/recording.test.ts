/** Turns of an agent behind a server, whose server, agent and client are killed at random. */

import type { Random } from "../support/random.ts";
import { type Recorded, recordAtRandom } from "../support/recording.ts";
import { recordAcpAtRandom } from "../support/recording-acp.ts";
import { recordEditorAtRandom } from "../support/recording-editor.ts";
import { soak } from "../support/soak.ts";

/** The doors, one unit each in turn; agents of the Agent Client Protocol on each store. */
const DOORS: readonly ((random: Random) => Promise<Recorded>)[] = [
  (random) => recordAtRandom(random, 25),
  (random) => recordEditorAtRandom(random, 25, { agent: "pi", store: "jsonl" }),
  (random) => recordAcpAtRandom(random, 25, "jsonl"),
  (random) => recordEditorAtRandom(random, 25, { agent: "acp", store: "v2" }),
  (random) => recordAtRandom(random, 25),
  (random) => recordEditorAtRandom(random, 25, { agent: "pi", store: "jsonl" }),
  (random) => recordAcpAtRandom(random, 25, "v2"),
  (random) => recordEditorAtRandom(random, 25, { agent: "acp", store: "jsonl" }),
];

soak("recording", async (random, number) => {
  const { ...figures } = await DOORS[number % DOORS.length](random);
  return figures;
});
