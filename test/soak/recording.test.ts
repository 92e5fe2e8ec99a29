/** Turns of an agent behind a server, whose server, agent and client are killed at random. */

import { type Door, recordAtRandom, recordEditorAtRandom } from "../support/recording.ts";
import { soak } from "../support/soak.ts";

/** The doors of editors, one unit each in turn; every other unit is in Pi's place, or Pi is behind. */
const DOORS: readonly (Door | undefined)[] = [
  undefined,
  { agent: "pi", store: "jsonl" },
  { agent: "proxy", store: "jsonl" },
  { agent: "acp", store: "v2" },
  undefined,
  { agent: "pi", store: "jsonl" },
  { agent: "proxy", store: "v2" },
  { agent: "acp", store: "jsonl" },
];

soak("recording", async (random, number) => {
  const door = DOORS[number % DOORS.length];
  return { ...(await (door ? recordEditorAtRandom(random, 25, door) : recordAtRandom(random, 25))) };
});
