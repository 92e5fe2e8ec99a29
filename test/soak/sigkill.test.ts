/** SIGKILL at any time on the real file system, both stores and durabilities in turn: what was answered is there. */

import { expect } from "vitest";
import { type Killed, killRuns } from "../support/proof-kill.ts";
import { Random } from "../support/random.ts";
import { soak } from "../support/soak.ts";

/** Kills on one session, which grows with them. */
const ON_ONE = 25;

soak("sigkill", async (_random, number) => {
  const args = ["--store", number % 2 === 0 ? "jsonl" : "v2", "--durability", number % 4 < 2 ? "sync" : "os"];
  // Two servers at a time, each on a session of its own.
  const lane = (n: number) => killRuns(new Random(number * 2 + n), ON_ONE, args);
  const runs = (await Promise.all([lane(0), lane(1)])).flat();
  const sum = (of: (run: Killed) => number): number => runs.reduce((all, run) => all + of(run), 0);
  expect(runs.filter(({ answered, recovered }) => recovered < answered)).toEqual([]);
  // A run in which all was answered before the kill shows nothing; on a machine with other work to do they are many.
  expect(runs.filter(({ sent, answered }) => answered < sent).length).toBeGreaterThan(runs.length / 4);
  return {
    kills: runs.length,
    sent: sum(({ sent }) => sent),
    answered: sum(({ answered }) => answered),
    recovered: sum(({ recovered }) => recovered),
    lost: sum(({ answered, recovered }) => Math.max(0, answered - recovered)),
  };
});
