/** Features of Session Store V2 containers over the wire: the backup of a repair, and checkpoints. */

import { readdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { assistant, user } from "../support/drafts.ts";
import { serveHere, temporaryPlace } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";

test("a container that a cut-off repair left under the name of its backup is opened by the session's path", async () => {
  const place = temporaryPlace();
  const first = serveHere(["--store", "v2"], { place });
  await first.result("append", { entries: [user("one"), assistant("two"), user("three")] });
  const { sessionFile, leafId } = await first.result("get_state");
  await first.finish();
  renameSync(sessionFile, `${sessionFile}.damaged.bak`);
  const server = serveHere(["--session", sessionFile], { place });
  expect(await server.result("get_state")).toMatchObject({ entryCount: 3, leafId });
});

acrossTiers(test, [
  { durability: "sync", times: 2 },
  { durability: "sync", times: 7 },
  { durability: "os", times: 7 },
])("after so much a checkpoint is made, $times times, with --durability $durability", async ({ durability, times }) => {
  const server = serveHere(["--store", "v2", "--events", "none", "--durability", durability]);
  const made = [];
  for (let n = 0; n < times; n++) {
    await server.result("append", { entries: Array.from({ length: 1024 }, (_, i) => user(`${n} ${i}`)) });
    const { sessionFile } = await server.result("get_state");
    made.push(readdirSync(join(sessionFile, "checkpoints")).length);
  }
  expect(made).toEqual([0, 1, 1, 2, 2, 3, 3].slice(0, times));
});
