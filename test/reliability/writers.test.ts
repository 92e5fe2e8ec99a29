/** Another writer comes between our look at a file and our lock. */

import { appendFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Locks } from "../../src/storage/locks/locks.ts";
import { call, linesIn, serveLines } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { chain, id, userText } from "../support/lines.ts";
import { kinds } from "../support/server.ts";

test.each([
  ["is what the next entry continues", undefined],
  ["makes an expected leaf another", id(2)],
])("what another server wrote until it gave up the lock %s", async (_what, expectedLeafId) => {
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
