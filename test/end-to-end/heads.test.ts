/** Leaves of their own, over the wire: several connections on branches of one tree, and what becomes of them. */

import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { put } from "../support/lifecycle.ts";
import { chain, fileText, headerText, id, userText } from "../support/lines.ts";
import {
  type HereServer,
  type Json,
  type Place,
  type SpawnedServer,
  serveHere,
  spawnServer,
  temporaryPlace,
} from "../support/server.ts";
import { QUIET, said, turn } from "../support/shared-session.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

type Server = HereServer | SpawnedServer;

/** A host on a session that introduces itself so. */
async function host(file: string, place: Place, params: Json, args: string[] = []): Promise<HereServer> {
  const server = serveHere(["--session", file, ...args], { place });
  await server.result("initialize", params);
  return server;
}

/** What the path to a connection's leaf says. */
async function path(server: Server): Promise<string[]> {
  const { messages } = await server.result("get_messages");
  return messages.map(({ content }: Json) => content);
}

/** A file with two entries in a place of its own. */
function twoEntries(name = "s"): { file: string; place: Place } {
  const place = temporaryPlace();
  const text = fileText(headerText({ id: name, cwd: place.cwd }), ...chain(2));
  return { place, file: put(join(place.home, `${name}.jsonl`), text) };
}

/** Waits until a server has sent an event that passes. What other servers do is heard of soon after their replies. */
async function until(server: Server, name: string, isMeant: (params: Json) => boolean): Promise<void> {
  while (!told(server, name).some(isMeant)) {
    await turn();
    await server.result("get_state");
  }
}

function told(server: Server, name: string): Json[] {
  return server.events.filter(({ method }) => method === name).map(({ params }) => params);
}

acrossTiers(describe, ["jsonl", "v2"] as const)("two agents on one session of %s", (store) => {
  async function two(place = temporaryPlace()) {
    const file = join(place.home, `heads.${store}`);
    const a = serveHere(["--session", file, "--store", store], { place });
    const { leafId: root } = await a.result("append", said("root"));
    expect((await a.result("initialize", { leaf: "own", head: "a" })).state).toMatchObject({
      head: "a",
      leafId: root,
      sharedLeafId: root,
    });
    await a.result("append", said("a1"));
    const b = await host(file, place, { leaf: "own", head: "b" });
    return { a, b, file, place, root };
  }

  test("grow a branch each, hear of each other, and that their own leaf has not moved", async () => {
    const { a, b, root } = await two();
    const { leafId: before } = await a.result("get_state");
    const { leafId: ofB } = await b.result("append", said("b1"));
    const { leafId: ofA } = await a.result("append", said("a2"));
    for (const server of [a, b])
      for (const entryId of [ofA, ofB])
        await until(server, "session_append", ({ entryIds }) => entryIds.includes(entryId));
    const by = (server: Server, entryId: string): Json =>
      told(server, "session_append").find(({ entryIds }) => entryIds.includes(entryId));
    expect(by(b, ofB)).toMatchObject({ origin: "self", leafId: ofB, head: "b" });
    expect(by(b, ofA)).toMatchObject({ origin: "peer", leafId: ofB, head: "a" });
    expect(by(a, ofB)).toMatchObject({ origin: "peer", leafId: before, head: "b" });
    expect(by(a, ofA)).toMatchObject({ origin: "self", leafId: ofA, head: "a" });
    expect([await path(a), await path(b)]).toEqual([
      ["root", "a1", "a2"],
      ["root", "b1"],
    ]);
    const heads = ["a", "b"].map((name) => ({ name, connections: 1 }));
    for (const server of [a, b]) expect(await server.result("list_heads")).toMatchObject({ heads, sharedLeafId: root });
    await b.result("branch", { entryId: null });
    await until(a, "session_tree", ({ head }) => head === "b");
    expect(told(a, "session_tree").at(-1)).toMatchObject({ head: "b", newLeafId: null, leafId: ofA });
    expect((await a.result("get_state")).leafId).toBe(ofA);
    expect((await b.result("get_state")).leafId).toBeNull();
  });

  test("are where they were after the death of both", async () => {
    const { a, b, file, place, root } = await two();
    await b.result("append", said("b1"));
    await b.result("branch", { entryId: root });
    await Promise.all([a.finish(), b.finish()]);
    const again = serveHere(["--session", file], { place });
    expect((await again.result("get_state")).leafId).toBe(root);
    expect((await again.result("initialize", { head: "a" })).state.head).toBe("a");
    expect(await path(again)).toEqual(["root", "a1"]);
    const other = await host(file, place, { head: "b" });
    expect((await other.result("append", said("b2"))).leafId).toBeDefined();
    expect(await path(other)).toEqual(["root", "b2"]);
    expect(await path(again)).toEqual(["root", "a1"]);
  });

  test("go on when the holder leaves, the shared leaf where it was", async () => {
    const { a, b, file, place } = await two();
    await b.result("append", said("b1"));
    const shared = serveHere(["--session", file], { place });
    const { leafId: ofShared } = await shared.result("append", said("shared"));
    const { entries } = await b.result("get_entries");
    // Only the holder knows of this move, and its state folder.
    await shared.result("branch", { entryId: entries[1].id });
    await a.finish();
    await b.result("append", said("b2"));
    expect(await path(b)).toEqual(["root", "b1", "b2"]);
    expect(await path(shared)).toEqual(["root", "a1"]);
    expect((await b.result("get_state")).sharedLeafId).toBe(entries[1].id);
    expect(ofShared).not.toBe(entries[1].id);
    await shared.result("append", said("shared again"));
    expect(await path(shared)).toEqual(["root", "a1", "shared again"]);
    expect(await path(b)).toEqual(["root", "b1", "b2"]);
  });

  test("are asked by hooks about their own branch, while the others stand where they stood", async () => {
    const { a, b, file, place, root } = await two();
    await Promise.all([a.finish(), b.finish()]);
    // It has the session beside another, whose order is not held up.
    const holder = serveHere([], { place });
    await holder.result("open_session", { sessionPath: file, head: "a" });
    const { sessionId, leafId: ofA } = (await holder.result("list_open_sessions")).sessions[1];
    await holder.result("set_label", { sessionId, entryId: root, label: "held" });
    const { leafId: held } = (await holder.result("list_open_sessions")).sessions[1];
    expect(held).not.toBe(ofA);
    const asked = await host(file, place, { head: "c", capabilities: { hooks: [{ name: "session_before_tree" }] } });
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
    // Who stands there goes on.
    expect(await path(a)).toEqual(["root", "a1"]);
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
    await a.result("open_session", { sessionPath: (await a.result("get_state")).sessionFile, leaf: "shared" });
    await a.result("branch", { entryId: ofA });
    await until(b, "session_tree", ({ newLeafId, head }) => newLeafId === ofA && head === undefined);
    await a.result("open_session", { sessionPath: (await a.result("get_state")).sessionFile, head: "a" });
    expect((await a.failure("undo")).data.name).toBe("ground_moved");
    expect((await b.result("get_state")).leafId).toBe(ofB);
    expect((await b.result("get_state")).sharedLeafId).toBe(ofA);
  });

  test("take their heads along to other stores and back, and not into forks", async () => {
    const { a, b, file, place } = await two();
    await b.result("append", said("b1"));
    await Promise.all([a.finish(), b.finish()]);
    const server = serveHere([], { place });
    const there = await server.result(store === "v2" ? "rollback_migration" : "migrate_session", { sessionPath: file });
    await server.result("switch_session", { sessionPath: there.sessionPath ?? file, head: "b" });
    expect(await path(server)).toEqual(["root", "b1"]);
    const { sessionFile } = await server.result("clone");
    expect(await server.result("get_state")).not.toHaveProperty("head");
    expect(await path(server)).toEqual(["root", "b1"]);
    expect((await server.result("list_heads")).heads).toEqual([]);
    expect(sessionFile).not.toBe(file);
  });
});

test("a head is kept when servers are killed, whoever holds the session", SYSTEM, async () => {
  const { file, place } = twoEntries();
  const start = async (head: string): Promise<SpawnedServer> => {
    const server = spawnServer(["--session", file, ...QUIET], "lines", place);
    await server.result("initialize", { leaf: "own", head });
    return server;
  };
  const [a, b] = [await start("a"), await start("b")];
  for (const n of [1, 2, 3]) {
    await a.result("append", said(`a${n}`));
    await b.result("append", said(`b${n}`));
  }
  const begun = [0, 1].map((n) => `say ${id(n)}`);
  a.process.kill("SIGKILL");
  await b.result("append", said("b4"));
  const again = await start("a");
  expect(await path(again)).toEqual([...begun, "a1", "a2", "a3"]);
  await again.result("append", said("a4"));
  b.process.kill("SIGKILL");
  await again.result("append", said("a5"));
  expect(await path(again)).toEqual([...begun, "a1", "a2", "a3", "a4", "a5"]);
  const anew = await start("b");
  expect(await path(anew)).toEqual([...begun, "b1", "b2", "b3", "b4"]);
});

test("two connections with one name share that head, as others share the leaf", async () => {
  const { file, place } = twoEntries();
  const [first, second] = [1, 2].map(() => serveHere(["--session", file], { place }));
  for (const server of [first, second]) await server.result("initialize", { head: "same" });
  const { leafId } = await first.result("append", said("one"));
  const { leafId: next } = await second.result("append", said("two"));
  expect((await second.result("get_entry", { entryId: next })).entry.parentId).toBe(leafId);
  expect((await first.result("get_state")).leafId).toBe(next);
  expect((await first.result("list_heads")).heads).toMatchObject([{ name: "same", connections: 2 }]);
});

test("a connection that begins at a head is told of the session with its own leaf", async () => {
  const { file, place } = twoEntries();
  const first = await host(file, place, { head: "mine" });
  const { leafId } = await first.result("append", said("mine"));
  await first.finish();
  const again = serveHere(["--session", file], { place });
  const { state, cursor } = await again.result("initialize", { head: "mine" });
  await until(again, "session_start", () => true);
  expect([state.leafId, cursor.leafId, told(again, "session_start")[0].leafId]).toEqual([leafId, leafId, leafId]);
});

test("a connection that names no head gets a new one, which it can come back to", async () => {
  const { file, place } = twoEntries();
  const first = serveHere(["--session", file], { place });
  const { state } = await first.result("initialize", { leaf: "own", clientInfo: { name: "My editor (beta)" } });
  expect(state.head).toMatch(/^My-editor-beta-[0-9a-f]{8}$/);
  await first.result("append", said("mine"));
  await first.finish();
  const again = serveHere(["--session", file, "--mode", "rpc"], { place });
  const { data } = await again.command("initialize", { head: state.head });
  expect(data.state).toMatchObject({ head: state.head, sharedLeafId: id(1) });
});

test("no head has a path, an empty, long or odd text as its name, nor is one on the shared leaf", async () => {
  const server = serveHere(["--no-session"]);
  const names = ["../x", "", "x".repeat(65), "a\0b"];
  for (const params of [...names.map((head) => ({ head })), { leaf: "shared", head: "a" }])
    expect((await server.failure("initialize", params)).code, JSON.stringify(params)).toBe(-32602);
});

test("Pi, which sees the last line, goes on there, and the shared leaf goes with it where it continues it", async () => {
  const { file, place } = twoEntries();
  const server = await host(file, place, { head: "a" });
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
  acrossTiers(test, ["jsonl", "v2"] as const)(
    "a host at a head that loses events hears which numbers, and is where its head is (%s)",
    async (store) => {
      const place = temporaryPlace();
      const file = join(place.home, `heads.${store}`);
      const holder = serveHere(["--session", file, "--store", store, ...QUIET], { place });
      const { leafId: root } = await holder.result("append", said("root"));
      const slow = spawnServer(["--session", file], "lines", place);
      await slow.result("initialize", { head: "mine" });
      const { leafId: first } = await slow.result("append", said("first"));
      const beside = await host(file, place, { head: "mine" }, QUIET);
      slow.process.kill("SIGSTOP");
      slow.ask("asked", "append", said("asked while it was stopped"));
      // What tells of a compaction has it in it.
      const compaction = { summary: "x".repeat(400_000), firstKeptEntryId: root, tokensBefore: 1 };
      for (let n = 0; n < 12; n++)
        for (const server of [beside, holder]) await server.result("compact_append", compaction);
      // Of neither leaf anything can be told that it will hear.
      await beside.result("branch", { entryId: first });
      const { leafId: ofHead } = await beside.result("append", said("second"));
      const { leafId: shared } = await holder.result("branch", { entryId: root });
      slow.process.kill("SIGCONT");
      const asked = (await slow.reply("asked")).result;
      expect(asked.leafId).toBe(asked.entryIds[0]);
      await until(slow, "events_lost", () => true);
      const state = await slow.result("get_state");
      expect(state).toMatchObject({ head: "mine", leafId: asked.leafId, sharedLeafId: shared });
      const { entries } = await slow.result("get_path");
      const contents = entries.map(({ message }: Json) => message.content).join();
      expect(contents).toBe("root,first,second,asked while it was stopped");
      expect(entries.at(-2).id).toBe(ofHead);
      expect((await slow.result("append", said("third"))).leafId).toBe((await slow.result("get_state")).leafId);
      expect((await path(slow)).at(-1)).toBe("third");
      expect(await path(beside)).toEqual(await path(slow));
      const events = [...slow.events].filter(({ method }) => method !== undefined);
      let expected = 1;
      for (const { method, params } of events) {
        if (method === "events_lost") {
          expect(params.from).toBe(expected);
          expected = params.to + 1;
        }
        expect(params.seq).toBe(expected++);
      }
    },
  );

  acrossTiers(test, ["jsonl", "v2"] as const)(
    "who stands at a head that was deleted stands there still when a third takes the holder's place (%s)",
    async (store) => {
      const place = temporaryPlace();
      const file = join(place.home, `heads.${store}`);
      const holder = spawnServer(["--session", file, "--store", store, ...QUIET], "lines", place);
      await holder.result("append", said("root"));
      const third = serveHere(["--session", file, ...QUIET], { place });
      await third.result("append", said("shared"));
      const other = spawnServer(["--session", file, ...QUIET], "lines", place);
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
      expect(await path(other)).toEqual(["root", "shared", "mine", "mine again"]);
      expect(await path(third)).toEqual(["root", "shared", "shared again"]);
    },
  );
});
