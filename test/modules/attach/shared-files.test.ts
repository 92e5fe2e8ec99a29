/** Commands that replace or move the files of a session that several hosts share, and those of its holder alone. */

import { existsSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { assistantExample } from "../../../src/handlers/shared/shapes.ts";
import { commandTable } from "../../../src/handlers/shared/table.ts";
import { STORES, sessionOf } from "../../support/hosts.ts";
import { put } from "../../support/lifecycle.ts";
import { chain, fileText, headerText } from "../../support/lines.ts";
import { type Json, serveHere } from "../../support/server.ts";
import { QUIET, request, said, texts, turn, two } from "../../support/shared-session.ts";
import { acrossTiers } from "../../support/tiers.ts";

/** Commands that a guest has done by the holder, and those that only the holder's own host has done. */
const DONE_FOR_GUESTS = (
  "append branch compact compact_append delete_head edit_context merge_branch set_label set_model set_session_name " +
  "set_thinking_level"
).split(" ");
const DONE_BY_THE_HOLDER: Readonly<Record<string, Json>> = {
  create_checkpoint: {},
  migrate_session: {},
  // The kept file lies on the machine of the server that was asked.
  recover_kept: { keptAt: "/nowhere/kept.jsonl" },
  redo: {},
  repair_session: {},
  rollback_migration: {},
  undo: {},
};

test("every command that writes is decided on", () => {
  const writes = commandTable.filter(({ effect }) => effect === "write").map(({ name }) => name);
  expect(writes.sort()).toEqual([...DONE_FOR_GUESTS, ...Object.keys(DONE_BY_THE_HOLDER)].sort());
});

acrossTiers(describe, STORES)("a session of %s that two hosts share", (store) => {
  const named = () => two(store, QUIET, ["my-editor", "nightly-agent"]);
  const convert = store === "v2" ? "rollback_migration" : "migrate_session";

  test("a guest is told who does what it cannot have done", async () => {
    const { first, second } = await named();
    const { entries } = await second.result("get_entries");
    await second.result("branch", { entryId: entries[0].id });
    for (const [name, params] of Object.entries(DONE_BY_THE_HOLDER)) {
      const { message, data } = await second.failure(name, params);
      expect(data, name).toMatchObject({
        name: "session_locked",
        retryable: false,
        holder: { pid: process.pid, name: "my-editor" },
      });
      expect(message).toContain(`${name} must be run by my-editor (process ${process.pid}), which holds this session`);
    }
    expect((await second.failure("undo")).message).toContain("by its opposite: branch,");
    expect(await second.result("repair_session", { dryRun: true })).toMatchObject({ repaired: [] });
    expect(await second.result("migrate_session", { dryRun: true })).toMatchObject({ dryRun: true });
    expect(await first.result("undo")).toMatchObject({ kind: "branch" });
    // It goes on there once it has heard of it.
    while ((await second.result("get_state")).leafId !== entries.at(-1).id) await turn();
  });

  test("its files stay where they are while others share them", async () => {
    const { first, second, file } = await named();
    const { message, data } = await first.failure(convert);
    expect(data).toMatchObject({ name: "session_locked", clients: [{ name: "nightly-agent", pid: process.pid }] });
    expect(message).toContain(`nightly-agent (process ${process.pid}) shares this session`);
    expect(existsSync(file)).toBe(true);
    await second.result("append", said("third"));
    await second.finish();
    await first.result("get_state");
    while ((await first.result("list_clients")).clients.length > 1) await turn();
    expect((await first.result(convert)).sessionPath).not.toBe(file);
    expect(await texts(first)).toEqual(["first", "second", "third"]);
    await first.result("append", said("fourth"));
    expect(await texts(first)).toEqual(["first", "second", "third", "fourth"]);
  });

  test("nobody comes while it is moved, and who comes then goes on in its new place", async () => {
    const { first, second, file, place } = await named();
    await second.finish();
    while ((await first.result("list_clients")).clients.length > 1) await turn();
    const late = serveHere(["--session", file, ...QUIET], { place });
    await late.result("get_state");
    first.send(request(1, convert), request(2, "append", said("moved")));
    const replies: Json[] = [];
    for (let n = 0; n < 5; n++) replies.push(await late.request("append", said(`late ${n}`)));
    // A host that comes before it begins keeps it from being moved.
    const { error } = await first.reply(1);
    if (error) expect(error.data.name).toBe("session_locked");
    const written = await first.reply(2);
    if (written.error) expect(written.error.data.name).toBe("session_locked");
    const { sessionFile } = await first.result("get_state");
    const reader = serveHere(["--session", sessionFile, "--read-only"], { place });
    const there = await texts(reader);
    for (const [n, { result }] of replies.entries()) expect(there.includes(`late ${n}`), `late ${n}`).toBe(!!result);
    expect(there.includes("moved")).toBe(!written.error);
  });

  test("what the holder closes and archives at once is lost to nobody", async () => {
    const { first, second, file, place } = await named();
    const { sessionId } = await first.result("get_state");
    first.send(request(1, "new_session"), request(2, "close_session", { sessionId }));
    first.send(request(3, "archive_session", { sessionPath: file }));
    const replies: Json[] = [];
    for (let n = 0; n < 5; n++) replies.push(await second.request("append", said(`after ${n}`)));
    await first.reply(1);
    const { result: archived } = await first.reply(3);
    const reader = serveHere(["--session", archived?.movedTo ?? file, "--read-only"], { place });
    const there = await texts(reader);
    expect(there.slice(0, 2)).toEqual(["first", "second"]);
    for (const [n, { result }] of replies.entries())
      expect(there.includes(`after ${n}`), `after ${n}: ${JSON.stringify(replies)}`).toBe(!!result);
  });
});

acrossTiers(test, STORES)("a shared session of %s is repaired by its holder, and all go on in it", async (store) => {
  const { file, place, open } = sessionOf(store);
  const [one, two, three] = chain(3);
  if (store === "jsonl") put(file, fileText(headerText({ id: "bad", cwd: place.cwd }), one, two, "{not JSON", three));
  const call = { type: "toolCall", id: "t1", name: "read", arguments: {} };
  const earlier = open();
  await earlier.result("append", said("first"));
  const message = { ...assistantExample, content: [call], stopReason: "toolUse" };
  await earlier.result("append", { entries: [{ type: "message", message }] });
  await earlier.finish();
  const first = open();
  await first.result("set_session_name", { name: "held" });
  const second = open();
  await second.result("set_session_name", { name: "joined" });
  const ids = async (): Promise<string[]> =>
    (await second.result("get_entries")).entries.map(({ id }: Json): string => id);
  const before = await ids();
  const { repaired, answered } = await first.result("repair_session");
  expect(repaired).toHaveLength(store === "v2" ? 0 : 1);
  expect(answered).toHaveLength(1);
  await second.result("append", said("second"));
  expect((await ids()).slice(0, before.length + 1)).toEqual([...before, answered[0].resultId]);
  await first.finish();
  await second.result("append", said("third"));
  const reader = serveHere(["--session", file, "--read-only"], { place });
  for (const server of [second, reader]) expect((await texts(server)).slice(-3)).toEqual(["first", "second", "third"]);
  expect((await reader.result("get_state")).diagnostics).toEqual([]);
});
