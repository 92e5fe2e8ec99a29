/** Several writers on one file, with kills in between (short form; 1,000 entries each in soak). */

import { appendFileSync } from "node:fs";
import { PassThrough } from "node:stream";
import { expect, onTestFinished, test } from "vitest";
import { parseArguments } from "../../src/cli/options.ts";
import { serve } from "../../src/server/main.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import type { Locks } from "../../src/storage/locks/locks.ts";
import { linesIn, sessionFile } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { chain, id, userText } from "../support/lines.ts";
import { forSeedsAsync } from "../support/random.ts";
import { countingEnv, kinds, temporaryPlace, Wire } from "../support/server.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";
import { twoServers, withForeignWriter } from "../support/writers.ts";

test.each(["jsonl", "v2"] as const)(
  "two servers make one chain, and nothing is lost, --store %s",
  SWEEP,
  async (store) => {
    const sums = { kills: 0, locked: 0 };
    await forSeedsAsync(1, async (random) => {
      const { kills, locked } = await twoServers(random, 24, store);
      sums.kills += kills;
      sums.locked += locked;
    });
    // They did meet.
    expect(sums.kills).toBeGreaterThan(0);
    expect(sums.locked).toBeGreaterThan(3);
  },
);

test("a program that knows no lock loses nothing and hides nothing", SYSTEM, async () => {
  const sums = { kills: 0, foreign: 0 };
  await forSeedsAsync(1, async (random) => {
    const { kills, foreign } = await withForeignWriter(random, 30);
    sums.kills += kills;
    sums.foreign += foreign;
  });
  expect(sums.kills).toBeGreaterThan(0);
  expect(sums.foreign).toBeGreaterThan(10);
});

test.each([
  ["is what the next entry continues", undefined],
  ["makes an expected leaf another", id(2)],
])("what another server wrote until it gave up the lock %s", async (_what, expectedLeafId) => {
  const place = temporaryPlace();
  const file = sessionFile(place, chain(3));
  // The other one writes and ends between our look at the file and our taking the lock.
  const locks: Locks = {
    acquire() {
      appendFileSync(file, `${userText(id(3), id(2))}\n`);
      return { release() {} };
    },
    holder: () => null,
  };
  const [input, output] = [new PassThrough(), new PassThrough()];
  const service = serve(parseArguments(["--session", file]), {
    input,
    output,
    env: countingEnv(),
    disk: realDisk,
    variables: place.variables,
    cwd: place.cwd,
    version: "0.0.0-test",
    printError: () => {},
    settingsFile: () => undefined,
    locks,
  });
  onTestFinished(async () => {
    input.end();
    output.resume();
    await service.done;
  });
  const wire = new Wire(input, output, "lines");
  wire.send({
    jsonrpc: "2.0",
    id: 1,
    method: "append",
    params: { entries: [user("mine", { id: "mine" })], expectedLeafId },
  });
  const messages = await wire.take(3);
  expect(kinds(messages)).toEqual(["session_start", "session_append", "#1"]);
  expect(messages[1].params).toMatchObject({ origin: "foreign", entryIds: [id(3)], leafId: id(3) });
  const last = JSON.parse(linesIn(file).at(-1) as string);
  if (expectedLeafId === undefined) expect(last).toMatchObject({ id: "mine", parentId: id(3) });
  else {
    expect(messages[2].error.data).toMatchObject({ name: "content_modified", leafId: id(3) });
    expect(last.id).toBe(id(3));
  }
});
