/** The hosts of a shared session, and the author of each change. */

import { once } from "node:events";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { guestAt, heard, hostOf, paramsOf, STORES, sessionOf } from "../../support/hosts.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../../support/server.ts";
import { held, said, turn, two } from "../../support/shared-session.ts";
import { acrossTiers, SYSTEM } from "../../support/tiers.ts";
import { framed, type Guest, guestOf, joined } from "./support/false-processes.ts";

/** The names of clients, and which of them holds the session and which one asks. */
const names = (clients: Json[]): string[] =>
  clients.map(({ name, isHolder, isSelf }) => `${name}${isHolder ? " holds" : ""}${isSelf ? " asks" : ""}`);

async function clientsOf(server: HereServer): Promise<Json[]> {
  return (await server.result("list_clients")).clients;
}

const as = (name: string, version?: string): Json => ({ clientInfo: { name, version } });
const isOf = (name: string) => (params: Json) => params.client?.name === name;

/** A host that introduced itself before its server joined. */
const host = (name: string, file: string, place: Place) => hostOf(file, place, as(name, "1.0"), []);

acrossTiers(describe, STORES)("on a session of %s", (store) => {
  const introduced = () => two(store, [], ["first", "second"]);

  test("a host alone is its only client", async () => {
    const server = sessionOf(store).open([]);
    expect(await clientsOf(server)).toMatchObject([{ name: null, pid: process.pid, isSelf: true, isHolder: false }]);
    await server.result("append", said("first"));
    await server.result("initialize", as("alone", "2"));
    const [client, ...others] = await clientsOf(server);
    expect(client).toMatchObject({ name: "alone", version: "2", pid: process.pid, isHolder: true, isSelf: true });
    expect(client.since).toMatch(/^\d{4}-\d\d-\d\dT/);
    expect(others).toEqual([]);
  });

  test("all are told who is there, who came, and who left", async () => {
    const { first, second, file, place } = await introduced();
    expect((await heard(first, "client_joined")).client).toMatchObject({ name: "second", version: "1.0" });
    expect(names(await clientsOf(first))).toEqual(["first holds asks", "second"]);
    expect(names(await clientsOf(second))).toEqual(["second asks", "first holds"]);
    const third = await host("third", file, place);
    await third.result("append", said("third"));
    const [{ id }] = await clientsOf(third);
    for (const server of [first, second])
      expect((await heard(server, "client_joined", isOf("third"))).client.id).toBe(id);
    expect(paramsOf(third, "client_joined")).toEqual([]);
    await third.finish();
    for (const server of [first, second])
      expect(await heard(server, "client_left")).toMatchObject({ client: { name: "third" }, reason: "left" });
    expect(await clientsOf(second)).toHaveLength(2);
  });

  test("events say whose doing they tell of", async () => {
    const { first, second } = await introduced();
    const { entries } = await first.result("get_entries");
    await second.result("branch", { entryId: entries[0].id });
    await first.result("set_session_name", { name: "ours" });
    expect(await heard(first, "session_append", isOf("second"))).toMatchObject({
      origin: "peer",
      client: { name: "second", pid: process.pid, id: (await clientsOf(second))[0].id },
    });
    await heard(first, "session_tree", isOf("second"));
    await heard(second, "session_info_changed", isOf("first"));
    for (const server of [first, second])
      for (const { params } of server.events) if (params.origin === "self") expect(params).not.toHaveProperty("client");
  });

  test("who stays is the same when another holds, and who held is told to have left", async () => {
    const { first, second, file, place } = await introduced();
    const third = await host("third", file, place);
    await third.result("append", said("third"));
    const before = new Map((await clientsOf(second)).map(({ name, id, since }) => [name, [id, since]]));
    await first.finish();
    for (const server of [second, third]) {
      expect(await heard(server, "client_left")).toMatchObject({ client: { name: "first" }, reason: "left" });
      await server.result("append", said("after"));
      const clients = await clientsOf(server);
      expect(clients.map(({ name }) => name).sort()).toEqual(["second", "third"]);
      expect(clients.filter(({ isHolder }) => isHolder)).toHaveLength(1);
      for (const { name, id, since } of clients) expect([id, since]).toEqual(before.get(name));
    }
    for (const server of [second, third]) expect(paramsOf(server, "client_left")).toHaveLength(1);
    expect(paramsOf(third, "client_joined")).toEqual([]);
  });
});

test("the first request of a host may be who shares the session, and is answered with all", async () => {
  const { file, place } = await held([]);
  const asks = serveHere(["--session", file], { place });
  expect(names(await clientsOf(asks))).toEqual(["null asks", "null holds"]);
  const other = serveHere(["--session", file, "--events", "none"], { place });
  await other.result("open_session", { sessionPath: file, head: "reviewer" });
  expect((await other.result("list_heads")).heads).toMatchObject([{ name: "reviewer", connections: 1 }]);
  expect(await clientsOf(asks)).toHaveLength(3);
});

test("a host that names itself after its server joined is told on then", async () => {
  const { file, holder, place } = await held([]);
  const other = serveHere(["--session", file], { place });
  await other.result("append", said("joined"));
  expect((await heard(holder, "client_joined")).client).toMatchObject({ name: null });
  await other.result("initialize", as("late"));
  await heard(holder, "client_joined", isOf("late"));
  await holder.result("initialize", as("the holder"));
  await heard(other, "client_joined", isOf("the holder"));
  for (const server of [holder, other])
    expect((await clientsOf(server)).map(({ name }) => name).sort()).toEqual(["late", "the holder"]);
});

test("a host that names itself while its server joins is known by that name", async () => {
  const { file, holder, place } = await held([]);
  const other = serveHere(["--session", file], { place });
  // The first read lets it join, which takes a while.
  await other.result("get_state");
  await turn();
  await other.result("initialize", as("meanwhile"));
  await heard(holder, "client_joined", isOf("meanwhile"));
});

test("a host that has not spoken yet learns, once it does, what others wrote, and its server ends with its input", async () => {
  const { file, holder, place } = await held();
  for (const speaks of [true, false]) {
    const forked = serveHere(["--fork", file, "--name", "forked"], { place });
    let found: Json;
    while (!found) {
      const { sessions } = await holder.result("list_sessions");
      found = sessions.find(({ name }: Json) => name === "forked");
      await turn();
    }
    const other = await host("other", found.sessionPath, place);
    const { entryIds } = await other.result("append", said("to the silent one's session"));
    if (speaks) {
      for (let last: Json; last !== entryIds[0]; await turn())
        last = (await forked.command("get_entries")).data.entries.at(-1).id;
      expect(forked.events[0].type).toBe("session_start");
    }
    expect((await forked.finish()).status).toBe(0);
    expect(await other.result("append", said("goes on"))).toHaveProperty("entryIds");
    await other.result("set_session_name", { name: "not forked" });
    await other.finish();
  }
});

test("who is killed is told to have died, by whoever holds the session then", SYSTEM, async () => {
  const { file, place, spawn } = sessionOf("jsonl");
  const first = spawn();
  await first.result("initialize", as("first"));
  await first.result("append", said("first"));
  const second = await host("second", file, place);
  await second.result("append", said("second"));
  const third = spawn();
  await third.result("initialize", as("third"));
  await third.result("append", said("third"));
  third.process.kill("SIGKILL");
  expect(await heard(second, "client_left", isOf("third"))).toMatchObject({ reason: "died" });
  first.process.kill("SIGKILL");
  expect(await heard(second, "client_left", isOf("first"))).toMatchObject({ reason: "died" });
  await second.result("append", said("alone"));
  expect(names(await clientsOf(second))).toEqual(["second holds asks"]);
});

describe("of a stranger at the socket", () => {
  const enter = (file: string, self: Json): Promise<Guest> => guestOf(file, { self });

  const LONG = "n".repeat(1 << 16);

  test.each([
    ["a long name", { id: "a", name: LONG, version: LONG, pid: 5 }, { name: "n".repeat(200), pid: 5 }],
    ["marks that move a cursor", { id: "a", name: "a\u001b[2Jb\u202e\n" }, { name: "a\u{fffd}[2Jb\u{fffd}\u{fffd}" }],
    ["a negative process", { id: "a", name: "x", pid: -1 }, { name: "x", pid: 0 }],
    ["a fraction of one", { id: "a", name: "x", pid: 1.5, since: "yesterday" }, { name: "x", pid: 0 }],
    ["names of another kind", { id: 7, name: { a: 1 }, version: [], pid: "5" }, { name: null, pid: 0 }],
    ["a long id", { id: LONG, name: "x" }, { name: null, pid: 0 }],
    ["nothing", undefined, { name: null, pid: 0 }],
    ["no object", "self", { name: null, pid: 0 }],
  ])("%s is told on as far as it can be shown", async (_, self, expected) => {
    const { file, holder } = await held([]);
    const { socket, say } = await enter(file, self);
    const { client } = await heard(holder, "client_joined");
    expect(client).toMatchObject(expected);
    expect(client.since).toMatch(/^2026-/);
    expect(JSON.stringify(client).length).toBeLessThan(1000);
    say({ self: { id: "other", name: LONG } }, { self: 7 });
    const isAgain = ({ client: { name } }: Json): boolean => name !== expected.name || name?.length === 200;
    expect((await heard(holder, "client_joined", isAgain)).client.id).toBe(client.id);
    socket.destroy();
    expect(await heard(holder, "client_left")).toMatchObject({ client: { id: client.id }, reason: "died" });
    expect(await clientsOf(holder)).toHaveLength(1);
  });

  test("who comes and goes says nothing of where the session is, which may be told later", async () => {
    const { file, holder, place } = await held();
    const { hear } = await enter(file, { id: "observer", name: "observer", pid: 1 });
    const other = await host("other", file, place);
    const { entryIds } = await other.result("append", said("joined"));
    await other.finish();
    const messages = (await hear("client_left")).split(/Content-Length: \d+\r\n\r\n/).slice(1);
    const leaves = messages.map((text) => JSON.parse(text)).map(({ event, leafId }) => [event, leafId]);
    expect(leaves).toContainEqual(["client_joined", undefined]);
    expect(leaves).toContainEqual(["client_left", undefined]);
    expect(leaves).toContainEqual(["session_append", entryIds[0]]);
    expect((await holder.result("get_state")).leafId).toBe(entryIds[0]);
  });

  test("an answer to a hook that is none stops the command", async () => {
    const { file, holder } = await held();
    const { say, hear } = await guestOf(file, { hooks: ["session_before_tree"] });
    const [{ id }] = (await holder.result("get_entries")).entries;
    const wrong = { cancelled: false, answer: { summary: { summary: 7 } } };
    const lies = [null, 7, {}, wrong, { cancelled: true, reason: 1 }, { cancelled: false, answer: 7 }];
    for (const [index, result] of lies.entries()) {
      const moved = holder.request("branch", { entryId: id });
      await hear(`"ask":${index + 1}`);
      say({ answer: index + 1, result });
      expect((await moved).result, JSON.stringify(result)).toMatchObject({ cancelled: true });
    }
  });

  test("an id that another has is not given twice", async () => {
    const { file, holder, place } = await held([]);
    const other = await guestAt(file, place, as("other"));
    for (const { id } of await clientsOf(holder)) await enter(file, { id, name: "thief", pid: 1 });
    const clients = await clientsOf(holder);
    expect(new Set(clients.map(({ id }) => id)).size).toBe(4);
    expect(clients.filter(({ name }) => name === "thief")).toHaveLength(2);
    expect(names(await clientsOf(other)).filter((name) => name.startsWith("other"))).toEqual(["other asks"]);
  });

  acrossTiers(test, [40, 200])("coming and going %i times leaves nothing behind", async (times) => {
    const { file, holder } = await held([]);
    for (let n = 0; n < times; n++) {
      const { socket } = await guestOf(file, { self: { id: `g${n}`, name: `g${n}` } });
      socket.end(framed('{"bye":true}'));
      await once(socket, "close");
    }
    await heard(holder, "client_left", isOf(`g${times - 1}`));
    const left = paramsOf(holder, "client_left").map(({ client, reason }) => `${client.name} ${reason}`);
    expect(left).toEqual(Array.from({ length: times }, (_, n) => `g${n} left`));
    expect(await clientsOf(holder)).toHaveLength(1);
  });
});

test("a holder that lies of who is there is believed within limits", async () => {
  const { other, asked, say, end, leafId } = await joined();
  await other.result("initialize", as("honest"));
  await turn();
  const write = other.request("append", said("asked"));
  await asked("asked");
  const long = { id: "h", name: "n".repeat(1 << 16), pid: 1e300 };
  const list = [long, 7, null, { id: "../x", name: "no" }, { name: "none" }];
  say(
    { lost: 3, leafId, lastId: leafId, clients: list },
    { event: "client_left", leafId, payload: { client: { id: "q" } } },
  );
  say({ event: "client_joined", leafId, payload: {} }, { event: "client_left", leafId, payload: { client: null } });
  const client = { id: "h", name: "m".repeat(1 << 20) };
  say({ event: "session_append", leafId, payload: { entryIds: [], origin: "peer", client } });
  say({ reply: 1, leafId, result: { entryIds: ["x"], leafId } });
  expect(await write).toHaveProperty("result");
  expect((await heard(other, "client_joined")).client).toMatchObject({ id: "h", name: "n".repeat(200), pid: 0 });
  expect((await heard(other, "session_append", ({ client }) => client)).client.name).toHaveLength(200);
  expect(names(await clientsOf(other))).toEqual(["honest asks", "n".repeat(200)]);
  expect(paramsOf(other, "client_left")).toEqual([]);
  const during = (async () => {
    const lists: Json[] = [];
    for (let n = 0; n < 20; n++) lists.push(await clientsOf(other));
    return lists;
  })();
  await end();
  for (const clients of await during) expect(clients.filter(({ isSelf }: Json) => isSelf)).toHaveLength(1);
});

test("sessions in memory, and of servers that share none, have one client", async () => {
  for (const args of [["--no-session"], ["--attach", "off"]]) {
    const server = serveHere(args);
    await server.result("initialize", as("alone"));
    expect(names(await clientsOf(server))).toEqual(["alone asks"]);
  }
  const none = serveHere(["--session", join(temporaryPlace().home, "missing", "none.txt")]);
  rmSync(none.place.home, { recursive: true });
  expect((await none.failure("list_clients", { sessionId: "none" })).data.name).toBe("session_not_found");
});
