/** Sentences of failures as a person reads them who typed a verb. */

import { expect, test } from "vitest";
import { inVerbs } from "../../src/cli/wording.ts";
import { runProgram, temporaryPlace } from "../support/server.ts";

test.each([
  ["No such session. list_sessions shows those that exist.", "No such session. list shows those that exist."],
  ["A and B. get_entries and get_tree show the ids.", "A and B. tree shows the ids."],
  ["Use clone or fork to continue in a copy.", "Use fork to continue in a copy."],
  ["repair_session gives it a new one; clone copies it.", "repair gives it a new one; fork copies it."],
  ["rollback_migration (pi-session-server rollback) completes it.", "rollback completes it."],
  ["migrate_session (pi-session-server migrate --apply) moves it.", "migrate --apply moves it."],
  ["At /clone/list_sessions/clone it is. Set overwrite.", "At /clone/list_sessions/clone it is. Use --overwrite."],
])("%s", (onTheWire, typed) => {
  expect(inVerbs(onTheWire)).toBe(typed);
});

test("a verb that fails names verbs, and with --json commands", async () => {
  const place = temporaryPlace();
  expect((await runProgram("", ["show", "nowhere"], place)).stderr).toContain(". list shows those that exist.");
  expect((await runProgram("", ["show", "nowhere", "--json"], place)).stdout).toContain(". list_sessions shows those");
});
