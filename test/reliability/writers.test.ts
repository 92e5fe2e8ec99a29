/** Several writers on one file, with kills in between (short form; 1,000 entries each in soak). */

import { appendFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Locks } from "../../src/storage/locks/locks.ts";
import { call, linesIn, serveLines } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { chain, id, userText } from "../support/lines.ts";
import { forSeedsAsync } from "../support/random.ts";
import { kinds } from "../support/server.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";
import { twoServers, withForeignWriter } from "../support/writers.ts";

test.each(["jsonl", "v2"] as const)("two servers make one chain, and nothing is lost, --store %s", SWEEP, (store) =>
  forSeedsAsync(1, async (random) => {
    const { kills, locked } = await twoServers(random, 24, store);
    // They did meet.
    expect(kills).toBeGreaterThan(0);
    expect(locked).toBeGreaterThan(3);
  }),
);

test("a program that knows no lock loses nothing and hides nothing", SYSTEM, () =>
  forSeedsAsync(1, async (random) => {
    const { kills, foreign } = await withForeignWriter(random, 30);
    expect(kills).toBeGreaterThan(0);
    expect(foreign).toBeGreaterThan(10);
  }),
);

test.each([
  ["is what the next entry continues", undefined],
  ["makes an expected leaf another", id(2)],
])("what another server wrote until it gave up the lock %s", async (_what, expectedLeafId) => {
  // The other one writes and ends between our look at the file and our taking the lock.
  const locks: Locks = {
    acquire() {
      appendFileSync(file, `${userText(id(3), id(2))}\n`);
      return { release() {} };
    },
    holder: () => null,
  };
  const { server, file } = serveLines(chain(3), { locks });
  server.send(call(1, "append", { entries: [user("mine", { id: "mine" })], expectedLeafId }));
  const messages = await server.take(3);
  expect(kinds(messages)).toEqual(["session_start", "session_append", "#1"]);
  expect(messages[1].params).toMatchObject({ origin: "foreign", entryIds: [id(3)], leafId: id(3) });
  const last = JSON.parse(linesIn(file).at(-1) as string);
  if (expectedLeafId === undefined) expect(last).toMatchObject({ id: "mine", parentId: id(3) });
  else {
    expect(messages[2].error.data).toMatchObject({ name: "content_modified", leafId: id(3) });
    expect(last.id).toBe(id(3));
  }
});
