/**
 * The life of the process: its end, its use of the processor while idle, and that it does not grow.
 *
 * @module-tag system
 */

import { readFileSync } from "node:fs";
import { setTimeout as pass } from "node:timers/promises";
import { expect, test } from "vitest";
import { linesIn, sessionFile } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { chain, id } from "../support/lines.ts";
import { simulatedWeeks } from "../support/long-use.ts";
import { LINUX, needs } from "../support/needs.ts";
import { isMarker } from "../support/proof.ts";
import { Random } from "../support/random.ts";
import { countingEnv, serveHere, spawnServer, temporaryPlace } from "../support/server.ts";
import { startAndEnd, WAYS } from "../support/server-ends.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

/** One way of each kind: the input ends, the reader goes, or a signal comes. */
const OF_EACH_KIND = ["the end of input inside a frame", "a reader that goes", "SIGTERM"];

for (const way of WAYS)
  test.each([way])(
    "nothing is left of a server three seconds after %s",
    OF_EACH_KIND.includes(way) ? {} : SWEEP,
    async () => {
      await startAndEnd(new Random(WAYS.indexOf(way) + 1), way, temporaryPlace());
    },
  );

/** Hundredths of a second that a process has computed. */
function cpuTime(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /, "")
    .split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

test("a server that nobody asks does next to nothing", needs(LINUX), async () => {
  const place = temporaryPlace();
  const server = spawnServer(["--session", sessionFile(place, chain(1000))], "lines", place);
  await server.result("get_state");
  const pid = server.process.pid as number;
  // The start is over when it has computed nothing for a moment.
  for (let before = -1; before !== cpuTime(pid); await pass(100)) before = cpuTime(pid);
  const before = cpuTime(pid);
  // The test is about time itself.
  await pass(1500);
  expect(cpuTime(pid) - before).toBeLessThan(15);
});

test("after five minutes without a command others may write, and the next change takes the lock again", async () => {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(3));
  let skipped = 0;
  const { now } = countingEnv();
  const wire = serveHere(["--session", file, "--events", "none", "--attach", "off"], {
    ...{ place, env: { now: () => now() + skipped } },
  });
  await wire.result("append", { entries: [user("mine", { id: "mine" })] });
  await wire.result("branch", { entryId: id(1) });
  const other = spawnServer(["--session", file, "--events", "none", "--attach", "off"], "lines", place);
  const append = (name: string) => other.request("append", { entries: [user(name, { id: name })] });
  expect((await append("early")).error.data.name).toBe("session_locked");
  const before = linesIn(file).length;
  skipped = 5 * 60_000;
  // It looks after itself twice a second.
  let reply = await append("theirs");
  while (reply.error) reply = await append("theirs");
  expect(reply.result.leafId).toBe("theirs");
  // Its position is written down before it lets go, and the other one continues there.
  const written = linesIn(file)
    .slice(before)
    .map((line) => JSON.parse(line));
  expect(written.map(isMarker)).toEqual([true, false]);
  expect((await wire.failure("append", { entries: [user("x")] })).data.name).toBe("session_locked");
  expect((await other.finish()).status).toBe(0);
  const { leafId } = await wire.result("append", { entries: [user("again", { id: "again" })] });
  expect(leafId).toBe("again");
  expect((await wire.result("get_state")).lock).toEqual(expect.any(String));
});

acrossTiers(test, [250, 500])(
  "two simulated weeks leave handles and memory as they were (%i steps, long form in soak)",
  async (steps) => {
    await simulatedWeeks(new Random(14), steps);
  },
);
