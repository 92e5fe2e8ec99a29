/** Leaves of their own, over the wire: several connections on branches of one tree, and what becomes of them. */

import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectNumbered, heard, hostOf, pathOf, type Server, STORES, sessionOf, TREE } from "../../support/hosts.ts";
import { put } from "../../support/lifecycle.ts";
import { chain, fileText, headerText, id, userText } from "../../support/lines.ts";
import { type Json, type Place, serveHere, temporaryPlace } from "../../support/server.ts";
import { said } from "../../support/shared-session.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";

/** A file with two entries in a place of its own. */
function twoEntries(name = "s"): { file: string; place: Place } {
  const place = temporaryPlace();
  const text = fileText(headerText({ id: name, cwd: place.cwd }), ...chain(2));
  return { place, file: put(join(place.home, `${name}.jsonl`), text) };
}

acrossTiers(describe, STORES)("two agents on one session of %s", (store) => {
  async function two() {
    const { file, place, open } = sessionOf(store);
    const a = open([]);
    const { leafId: root } = await a.result("append", said("root"));
    const { state } = await a.result("initialize", { leaf: "own", head: "a" });
    expect(state).toMatchObject({ head: "a", leafId: root, sharedLeafId: root });
    await a.result("append", said("a1"));
    const b = await hostOf(file, place, { leaf: "own", head: "b" }, []);
    return { a, b, file, place, root, open };
  }

  test("grow a branch each, hear of each other, and that their own leaf has not moved", async () => {
    const { a, b, root } = await two();
    const { leafId: before } = await a.result("get_state");
    const { leafId: ofB } = await b.result("append", said("b1"));
    const { leafId: ofA } = await a.result("append", said("a2"));
    const by = (server: Server, entryId: string) =>
      heard(server, "session_append", ({ entryIds }) => entryIds.includes(entryId));
    expect(await by(b, ofB)).toMatchObject({ origin: "self", leafId: ofB, head: "b" });
    expect(await by(b, ofA)).toMatchObject({ origin: "peer", leafId: ofB, head: "a" });
    expect(await by(a, ofB)).toMatchObject({ origin: "peer", leafId: before, head: "b" });
    expect(await by(a, ofA)).toMatchObject({ origin: "self", leafId: ofA, head: "a" });
    expect(await pathOf(a)).toEqual(["root", "a1", "a2"]);
    expect(await pathOf(b)).toEqual(["root", "b1"]);
    const heads = ["a", "b"].map((name) => ({ name, connections: 1 }));
    for (const server of [a, b]) expect(await server.result("list_heads")).toMatchObject({ heads, sharedLeafId: root });
    await b.result("branch", { entryId: null });
    const moved = await heard(a, "session_tree", ({ head }) => head === "b");
    expect(moved).toMatchObject({ head: "b", newLeafId: null, leafId: ofA });
    expect((await a.result("get_state")).leafId).toBe(ofA);
    expect((await b.result("get_state")).leafId).toBeNull();
  });

  test("go on when the holder leaves, the shared leaf where it was", async () => {
    const { a, b, open } = await two();
    await b.result("append", said("b1"));
    const shared = open();
    await shared.result("append", said("shared"));
    const { entries } = await b.result("get_entries");
    // Only the holder knows of this move, and its state folder.
    await shared.result("branch", { entryId: entries[1].id });
    await a.finish();
    await b.result("append", said("b2"));
    expect(await pathOf(shared)).toEqual(["root", "a1"]);
    expect((await b.result("get_state")).sharedLeafId).toBe(entries[1].id);
    await shared.result("append", said("shared again"));
    expect(await pathOf(shared)).toEqual(["root", "a1", "shared again"]);
    expect(await pathOf(b)).toEqual(["root", "b1", "b2"]);
  });

  test("are asked by hooks about their own branch, while the others stand where they stood", async () => {
    const { a, b, file, place, root } = await two();
    await Promise.all([a.finish(), b.finish()]);
    // It has the session next to another, whose order is not held up.
    const holder = serveHere([], { place });
    await holder.result("open_session", { sessionPath: file, head: "a" });
    const { sessionId, leafId: ofA } = (await holder.result("list_open_sessions")).sessions[1];
    await holder.result("set_label", { sessionId, entryId: root, label: "held" });
    const { leafId: held } = (await holder.result("list_open_sessions")).sessions[1];
    expect(held).not.toBe(ofA);
    const asked = await hostOf(file, place, { head: "c", ...TREE }, []);
    const { leafId: ofC } = await asked.result("append", said("c1"));
    asked.ask(71, "branch", { entryId: root });
    let question = await asked.next();
    while (question.method !== "session_before_tree") question = await asked.next();
    expect(question.params.preparation).toMatchObject({ oldLeafId: ofC, targetId: root });
    expect((await holder.result("list_open_sessions")).sessions[1]).toMatchObject({ leafId: held, head: "a" });
    asked.answer(question.id, {});
    expect((await asked.reply(71)).result.leafId).toBe(root);
    expect((await holder.result("get_state", { sessionId })).leafId).toBe(held);
    expect((await asked.result("get_state")).leafId).toBe(root);
  });

  test("end their heads when they are done with them", async () => {
    const { a, b, root } = await two();
    const { leafId } = await b.result("append", said("b1"));
    expect(await b.result("delete_head", { head: "a", idempotencyKey: "gone" })).toEqual({ head: "a" });
    // A host with its leaf there goes on.
    expect(await pathOf(a)).toEqual(["root", "a1"]);
    await a.finish();
    expect((await b.result("list_heads")).heads).toMatchObject([{ name: "b", leafId, entryId: leafId }]);
    expect((await b.failure("delete_head", { head: "a" })).data).toMatchObject({ name: "head_not_found", head: "a" });
    expect(await b.result("delete_head", { head: "a", idempotencyKey: "gone" })).toEqual({ head: "a" });
    expect((await b.result("get_tree")).nodes).toHaveLength(3);
    expect((await b.result("get_state")).sharedLeafId).toBe(root);
  });

  test("undo nothing of each other", async () => {
    const { a, b, root } = await two();
    const { leafId: ofB } = await b.result("append", said("b1"));
    const { leafId: ofA } = await a.result("get_state");
    await a.result("branch", { entryId: root });
    await a.result("set_session_name", { name: "named" });
    await a.result("undo");
    expect((await a.result("get_state")).sessionName).toBeNull();
    expect((await a.failure("undo")).data.name).toBe("operation_not_found");
    const { sessionFile: sessionPath } = await a.result("get_state");
    await a.result("open_session", { sessionPath, leaf: "shared" });
    await a.result("branch", { entryId: ofA });
    await heard(b, "session_tree", ({ newLeafId, head }) => newLeafId === ofA && head === undefined);
    await a.result("open_session", { sessionPath, head: "a" });
    expect((await a.failure("undo")).data.name).toBe("ground_moved");
    expect(await b.result("get_state")).toMatchObject({ leafId: ofB, sharedLeafId: ofA });
  });

  test("take their heads along to other stores and back, and not into forks", async () => {
    const { a, b, file, place } = await two();
    await b.result("append", said("b1"));
    await Promise.all([a.finish(), b.finish()]);
    const server = serveHere([], { place });
    const there = await server.result(store === "v2" ? "rollback_migration" : "migrate_session", { sessionPath: file });
    await server.result("switch_session", { sessionPath: there.sessionPath ?? file, head: "b" });
    expect(await pathOf(server)).toEqual(["root", "b1"]);
    const { sessionFile } = await server.result("clone");
    expect(await server.result("get_state")).not.toHaveProperty("head");
    expect(await pathOf(server)).toEqual(["root", "b1"]);
    expect((await server.result("list_heads")).heads).toEqual([]);
    expect(sessionFile).not.toBe(file);
  });
});

test("two connections with one name share that head, as others share the leaf", async () => {
  const { file, place } = twoEntries();
  const start = () => hostOf(file, place, { head: "same" });
  const [first, second] = [await start(), await start()];
  const { leafId } = await first.result("append", said("one"));
  const { leafId: next } = await second.result("append", said("two"));
  expect((await second.result("get_entry", { entryId: next })).entry.parentId).toBe(leafId);
  expect((await first.result("get_state")).leafId).toBe(next);
  expect((await first.result("list_heads")).heads).toMatchObject([{ name: "same", connections: 2 }]);
});

test("a connection that names no head gets a new one, and one that comes back to it begins with its leaf", async () => {
  const { file, place } = twoEntries();
  const first = serveHere(["--session", file], { place });
  const introduced = await first.result("initialize", { leaf: "own", clientInfo: { name: "My editor (beta)" } });
  const { head } = introduced.state;
  expect(head).toMatch(/^My-editor-beta-[0-9a-f]{8}$/);
  const { leafId } = await first.result("append", said("mine"));
  await first.finish();
  const again = serveHere(["--session", file], { place });
  const { state, cursor } = await again.result("initialize", { head });
  const { leafId: ofStart } = await heard(again, "session_start");
  expect([state.leafId, cursor.leafId, ofStart]).toEqual([leafId, leafId, leafId]);
  const ofPi = serveHere(["--session", file, "--mode", "rpc"], { place });
  expect((await ofPi.command("initialize", { head })).data.state).toMatchObject({ head, sharedLeafId: id(1) });
});

test("no head has a path, an empty, long or odd text as its name, nor is one on the shared leaf", async () => {
  const server = serveHere(["--no-session"]);
  const names = ["../x", "", "x".repeat(65), "a\0b"];
  for (const params of [...names.map((head) => ({ head })), { leaf: "shared", head: "a" }])
    expect((await server.failure("initialize", params)).code, JSON.stringify(params)).toBe(-32602);
});

test("Pi, which sees the last line, goes on there, and the shared leaf goes with it where it continues it", async () => {
  const { file, place } = twoEntries();
  const server = await hostOf(file, place, { head: "a" });
  const { leafId } = await server.result("append", said("mine"));
  appendFileSync(file, fileText(userText(id(7), leafId)));
  const state = await server.result("get_state");
  expect(state).toMatchObject({ leafId, sharedLeafId: id(1) });
  await server.finish();
  // The next opening finds what Pi finds: the last line that no head wrote.
  const next = serveHere(["--session", file], { place });
  expect((await next.result("get_state")).leafId).toBe(id(7));
  expect((await next.result("list_heads")).heads).toMatchObject([{ name: "a", leafId }]);
});

test("sessions that are opened beside the current one have a head of the same name, unless another is asked for", async () => {
  const [one, two, three] = ["1", "2", "3"].map((name) => twoEntries(name).file);
  const server = serveHere(["--session", one]);
  await server.result("initialize", { head: "a" });
  expect(await server.result("open_session", { sessionPath: two })).toMatchObject({ head: "a" });
  expect(await server.result("open_session", { sessionPath: three, leaf: "shared" })).not.toHaveProperty("head");
  expect(await server.result("open_session", { sessionPath: two, head: "b" })).toMatchObject({ head: "b" });
  expect(await server.result("open_session", { sessionPath: two })).toMatchObject({ head: "b" });
  await server.result("append", { ...said("in two"), sessionId: "2" });
  expect((await server.result("list_heads", { sessionId: "2" })).heads).toMatchObject([{ name: "b" }]);
  expect((await server.result("get_state", { sessionId: "1" })).leafId).toBe(id(1));
});

describe("servers that are processes", SYSTEM, () => {
  acrossTiers(test, STORES)(
    "a host at a head that loses events hears which numbers, and is where its head is (%s)",
    async (store) => {
      const { file, place, open, spawn } = sessionOf(store);
      const holder = open();
      const { leafId: root } = await holder.result("append", said("root"));
      const slow = spawn([]);
      await slow.result("initialize", { head: "mine" });
      const { leafId: first } = await slow.result("append", said("first"));
      const second = await hostOf(file, place, { head: "mine" });
      slow.process.kill("SIGSTOP");
      slow.ask("asked", "append", said("asked while it was stopped"));
      // The event of a compaction has the compaction in it.
      const compaction = { summary: "x".repeat(400_000), firstKeptEntryId: root, tokensBefore: 1 };
      for (let n = 0; n < 12; n++)
        for (const server of [second, holder]) await server.result("compact_append", compaction);
      // No event about either leaf can have reached this host yet.
      await second.result("branch", { entryId: first });
      const { leafId: ofHead } = await second.result("append", said("second"));
      const { leafId: shared } = await holder.result("branch", { entryId: root });
      slow.process.kill("SIGCONT");
      const asked = (await slow.reply("asked")).result;
      expect(asked.leafId).toBe(asked.entryIds[0]);
      await heard(slow, "events_lost");
      const state = await slow.result("get_state");
      expect(state).toMatchObject({ head: "mine", leafId: asked.leafId, sharedLeafId: shared });
      expect(await pathOf(slow)).toEqual(["root", "first", "second", "asked while it was stopped"]);
      expect((await slow.result("get_entry", { entryId: asked.leafId })).entry.parentId).toBe(ofHead);
      expect((await slow.result("append", said("third"))).leafId).toBe((await slow.result("get_state")).leafId);
      expect((await pathOf(slow)).at(-1)).toBe("third");
      expect(await pathOf(second)).toEqual(await pathOf(slow));
      expectNumbered(slow);
    },
  );

  acrossTiers(test, STORES)(
    "who stands at a head that was deleted stands there still when a third takes the holder's place (%s)",
    async (store) => {
      const { open, spawn } = sessionOf(store);
      const holder = spawn();
      await holder.result("append", said("root"));
      const third = open();
      await third.result("append", said("shared"));
      const other = spawn();
      await other.result("initialize", { head: "mine" });
      const { leafId } = await other.result("append", said("mine"));
      await holder.result("delete_head", { head: "mine" });
      // It has read nothing since, and its successor knows no such head.
      other.process.kill("SIGSTOP");
      holder.process.kill("SIGKILL");
      await third.result("append", said("shared again"));
      other.process.kill("SIGCONT");
      await other.result("append", said("mine again"));
      const { head, leafId: now } = await other.result("get_state");
      expect(head).toBe("mine");
      expect((await other.result("get_entry", { entryId: now })).entry.parentId).toBe(leafId);
      expect(await pathOf(other)).toEqual(["root", "shared", "mine", "mine again"]);
      expect(await pathOf(third)).toEqual(["root", "shared", "shared again"]);
    },
  );
});

acrossTiers(describe, STORES)("a host that resumes on a session of %s", (store) => {
  test("is told of what was written elsewhere than it stands, and that its own leaf has not moved by that", async () => {
    const session = sessionOf(store);
    const open = (): Server => session.open([]);
    const first = open();
    const { leafId: root } = await first.result("append", said("root"));
    const { cursor } = await first.result("initialize");
    const second = open();
    const { cursor: ofHead } = await second.result("initialize", { head: "a" });
    await second.result("append", said("of a"));
    const resumed = async (params: Json): Promise<Json[]> => (await open().result("initialize", params)).resumed.events;
    expect(await resumed({ resume: cursor })).toMatchObject([{ event: "session_append", leafId: root }]);
    const { leafId: shared } = await first.result("append", said("of all"));
    expect(await resumed({ resume: cursor })).toMatchObject([{ event: "session_append", leafId: shared }]);
    await second.result("branch", { entryId: root });
    expect(await resumed({ head: "a", resume: ofHead })).toMatchObject([
      { event: "session_append" },
      { event: "session_tree", head: "a", leafId: root, newLeafId: root },
    ]);
  });
});
