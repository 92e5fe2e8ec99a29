/** Several sessions open in one process: each in its own order, none in another's way. */

import { readdirSync } from "node:fs";
import { describe, expect, test, vi } from "vitest";
import { user } from "../support/drafts.ts";
import { gatedDisk } from "../support/gated-disk.ts";
import { makeSessions } from "../support/made-sessions.ts";
import { call, type HereServer, type Json, serveHere, spawnServer, temporaryPlace } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";

/** Makes sessions with one message each. Returns their paths and ids. */
async function make(server: Pick<HereServer, "result">, count: number): Promise<{ path: string; id: string }[]> {
  return (await makeSessions(server, count)).map(({ sessionFile, sessionId }) => ({
    path: sessionFile,
    id: sessionId,
  }));
}

test("a key belongs to the session that a path names", async () => {
  const server = serveHere();
  const [first, second] = await make(server, 2);
  await server.result("open_session", { sessionPath: first.path });
  for (const { path } of [first, second, first])
    await server.result("set_session_name", { sessionPath: path, name: path.slice(-20), idempotencyKey: "k" });
  for (const { id, path } of [first, second])
    expect(await server.result("get_state", { sessionId: id })).toMatchObject({
      sessionName: path.slice(-20),
      entryCount: 2,
    });
});

test("an open session that is named by the path it had stays open", async () => {
  const server = serveHere();
  const [{ path }] = await make(server, 1);
  await server.result("migrate_session");
  await server.result("export_session", { sessionPath: path, format: "markdown" });
  await server.result("append", { entries: [user("more")] });
  await server.result("set_session_name", { sessionPath: path, name: "named" });
  await server.result("append", { entries: [user("and more")] });
  expect(await server.result("get_state")).toMatchObject({ sessionName: "named", entryCount: 4 });
});

describe("open_session", () => {
  test("opens beside the current one, which stays current, once", async () => {
    const server = serveHere();
    const [first, second] = await make(server, 2);
    const opened = await server.result("open_session", { sessionPath: first.path });
    expect(opened).toMatchObject({ sessionId: first.id, sessionFile: first.path, readOnly: false });
    await server.result("open_session", { sessionId: first.id });
    await server.result("append", { sessionId: first.id, entries: [user("more")] });
    expect((await server.result("list_open_sessions")).sessions).toMatchObject([
      { sessionId: second.id, current: true },
      { sessionId: first.id, current: false },
    ]);
    expect((await server.result("get_state", { sessionId: first.id })).entryCount).toBe(2);
    expect(await server.result("get_state")).toMatchObject({ sessionId: second.id, entryCount: 1 });
    expect(server.events.at(-1)).toMatchObject({ method: "session_append", params: { sessionId: first.id } });
  });

  test("can become the current one, with what is under way in it first", async () => {
    const server = serveHere();
    const [{ id: sessionId, path: sessionPath }] = await make(server, 2);
    await server.result("open_session", { sessionPath });
    server.ask("a", "append", { sessionId, entries: [user("x")] });
    server.send(call("s", "switch_session", { sessionId }), call("g", "get_state"));
    expect((await server.reply("g")).result).toMatchObject({ sessionId, entryCount: 2 });
  });
});

test("a session that waits for its disk holds no other up", async () => {
  const { disk, waits } = gatedDisk();
  const place = temporaryPlace();
  const plain = serveHere([], { place });
  const [first, second] = await make(plain, 2);
  await plain.finish();
  const server = serveHere(["--session", second.path], { place, disk });
  await server.result("open_session", { sessionPath: first.path });
  server.ask("slow", "append", { entries: [user("slow")] });
  const gate = await waits();
  expect((await server.result("get_state", { sessionId: first.id })).entryCount).toBe(1);
  gate.pass();
  expect((await server.reply("slow")).result.entryIds).toHaveLength(1);
});

/** Writes to each session. */
const ROUNDS = 2;

test("a hundred sessions with interleaved traffic keep their order, and descriptors stay bounded", SYSTEM, async () => {
  const server = spawnServer(["--durability", "os", "--events", "none"], "lines", temporaryPlace(), 1000);
  const made = await make(server as unknown as HereServer, 100);
  for (const { path } of made) await server.result("open_session", { sessionPath: path });
  const calls: Json[] = [];
  for (let round = 0; round < ROUNDS; round++)
    for (const [index, { id }] of made.entries()) {
      calls.push(call(`a${index}.${round}`, "append", { sessionId: id, entries: [user(`${round}`)] }));
      calls.push(call(`g${index}.${round}`, "get_state", { sessionId: id }));
    }
  server.send(...calls);
  const rounds = new Map<string, number>();
  for (const reply of await server.take(calls.length)) {
    const [session, round] = reply.id.split(".");
    expect(Number(round), session).toBe(rounds.get(session) ?? 0);
    rounds.set(session, Number(round) + 1);
    if (session.startsWith("g")) expect(reply.result.entryCount, reply.id).toBe(Number(round) + 2);
  }
  expect(rounds.size).toBe(200);
  // Those for which half of the descriptors are too few were closed, and open again when they are named.
  const descriptors = (): number => readdirSync(`/proc/${server.process.pid}/fd`).length;
  // Each of 71 has its file, two of its lock and two sockets.
  await vi.waitFor(() => expect(descriptors()).toBeLessThanOrEqual(400), { timeout: 30_000 });
  expect((await server.result("get_state", { sessionId: made[0].id })).entryCount).toBe(1 + ROUNDS);
  expect((await server.finish()).status).toBe(0);
});
