/**
 * SIGKILL at any time, 10,000 runs on the real file system, half of them with each durability: what was acknowledged
 * is recovered every time (acceptance 2). `SOAK_KILLS` sets how many.
 */

import { expect, test } from "vitest";
import { type Killed, killRuns } from "../support/proof-kill.ts";
import { Random } from "../support/random.ts";

const KILLS = Number(process.env.SOAK_KILLS ?? 10_000);
/** Runs on one session, which grows with them. */
const ON_ONE = 100;
/** Servers at a time. */
const LANES = 2;

test(`every answered change is there after each of ${KILLS} kills`, async () => {
  const runs: Killed[] = [];
  let seed = Number(process.env.PI_TEST_SEED ?? 1);
  const lane = async (): Promise<void> => {
    while (runs.length < KILLS) {
      const random = new Random(seed++);
      const durability = random.seed % 2 === 0 ? "sync" : "os";
      try {
        runs.push(...(await killRuns(random, Math.min(ON_ONE, KILLS), ["--durability", durability])));
        // A run of this length that is cut short has still shown something.
        if (runs.length % 1000 === 0) console.info(`${runs.length} kills`);
      } catch (error) {
        if (error instanceof Error) error.message = `PI_TEST_SEED=${random.seed}: ${error.message}`;
        throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  const sum = (of: (run: Killed) => number): number => runs.reduce((all, run) => all + of(run), 0);
  console.info(
    `${runs.length} kills: ${sum(({ sent }) => sent)} requests sent, ${sum(({ answered }) => answered)} answered, ` +
      `${sum(({ recovered }) => recovered)} recovered`,
  );
  expect(runs.filter(({ answered, recovered }) => recovered < answered)).toEqual([]);
  // A run in which all was answered before the kill shows nothing.
  expect(runs.filter(({ sent, answered }) => answered < sent).length).toBeGreaterThan(runs.length / 2);
});
