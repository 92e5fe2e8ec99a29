/** Naming a session that is not the current one: open beside it, not open at all, or another process's. */

import { renameSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { type Locks, makeLocks } from "../../src/storage/locks/locks.ts";
import { linesIn } from "../support/cases.ts";
import { contentsOf, putSession, read, rootOf, serveLibrary, sessionId } from "../support/lifecycle.ts";
import { chain, id, userText } from "../support/lines.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";

async function nameOf(server: HereServer, n: number): Promise<string> {
  const { sessions } = await server.result("list_sessions");
  return sessions.find((session: Json) => session.sessionId === sessionId(n))?.name;
}

test("a session that is not open gets one entry, and is not open afterwards", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const before = read(file);
  const server = serveHere([], { place });
  const { entryId } = await server.result("set_session_name", { sessionPath: file, name: "two\nlines" });
  expect(read(file).startsWith(before)).toBe(true);
  const [line, ...others] = linesIn(file).slice(4);
  expect(JSON.parse(line)).toMatchObject({ type: "session_info", id: entryId, parentId: id(2), name: "two lines" });
  expect([others, await nameOf(server, 1)]).toEqual([[], "two lines"]);
  expect((await server.result("list_open_sessions")).sessions.length).toBe(1);
  // Nobody but the caller has to know.
  expect(server.events.map(({ method }) => method)).toEqual(["session_start"]);
});

test("the leaf stays where it is, in the file or in our state folder only", async () => {
  const place = temporaryPlace();
  const branched = putSession(place, 1, { lines: [...chain(3), userText("b0000000", id(0))] });
  const placed = putSession(place, 2);
  const first = serveHere(["--session", placed, "--events", "none"], { place });
  await first.result("branch", { entryId: id(0) });
  await first.finish();
  const server = serveLibrary(place);
  for (const [sessionPath, leaf] of [
    [branched, "b0000000"],
    [placed, id(0)],
  ]) {
    const { entryId } = await server.result("set_session_name", { sessionPath, name: "named" });
    const { leafId } = await server.result("open_session", { sessionPath });
    const opened = sessionPath === branched ? sessionId(1) : sessionId(2);
    const { entries } = await server.result("get_path", { sessionId: opened });
    // The name stands at the leaf and moves along; the conversation is where it was.
    expect([leafId, entries.at(-2).id]).toEqual([entryId, leaf]);
  }
});

test("a session that another process writes to is refused, and the reply names that", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const holder = serveHere(["--session", file, "--events", "none"], { place });
  await holder.result("set_label", { entryId: id(0), label: "mine" });
  const before = contentsOf(rootOf(place));
  const server = serveLibrary(place);
  const { data, message } = await server.failure("set_session_name", { sessionPath: file, name: "theirs" });
  expect(data).toMatchObject({
    name: "session_locked",
    holder: { client: "pi-session-server 0.0.0-test", pid: process.pid },
  });
  expect(message).toContain(`process ${process.pid}`);
  expect(contentsOf(rootOf(place))).toEqual(before);
  await holder.finish();
  await server.result("set_session_name", { sessionPath: file, name: "ours" });
  expect(await nameOf(server, 1)).toBe("ours");
});

test("what another process wrote meanwhile is continued, not overwritten", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const other = serveHere(["--session", file, "--events", "none"], { place });
  const server = serveLibrary(place);
  await server.result("set_session_name", { sessionPath: file, name: "first" });
  await other.result("append", { entries: [{ type: "message", message: { role: "user", content: "theirs" } }] });
  await other.finish();
  await server.result("set_session_name", { sessionPath: file, name: "second" });
  expect(linesIn(file).length).toBe(7);
  const { damage } = await server.result("verify_session", { sessionPath: file });
  expect([damage, await nameOf(server, 1)]).toEqual([[], "second"]);
});

test("an open session is named in its own order, and is told of", async () => {
  const place = temporaryPlace();
  const files = [putSession(place, 1), putSession(place, 2)];
  const server = serveHere(["--session", files[0]], { place });
  await server.result("open_session", { sessionPath: files[1] });
  const call = (n: number, method: string, params: object): Json => ({ jsonrpc: "2.0", id: n, method, params });
  server.send(
    call(1, "append", {
      sessionId: sessionId(2),
      entries: [{ type: "message", message: { role: "user", content: "x" } }],
    }),
    call(2, "set_session_name", { sessionPath: files[1], name: "beside" }),
    call(3, "get_state", { sessionId: sessionId(2) }),
    call(4, "set_session_name", { sessionPath: files[0], name: "current" }),
    call(5, "get_state", {}),
  );
  expect((await server.reply(3)).result).toMatchObject({ sessionName: "beside", entryCount: 5 });
  expect((await server.reply(5)).result).toMatchObject({ sessionName: "current", entryCount: 4 });
  const told = server.events.filter(({ method }) => method === "session_info_changed").map(({ params }) => params);
  expect(told.map(({ sessionId, name }) => [sessionId, name]).sort()).toEqual(
    [
      [sessionId(1), "current"],
      [sessionId(2), "beside"],
    ].sort(),
  );
});

test("a repeat with the same key writes nothing, and an unexpected leaf nothing either", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const server = serveLibrary(place);
  const params = { sessionPath: file, name: "once", idempotencyKey: "k" };
  const first = await server.result("set_session_name", params);
  const after = read(file);
  expect(await server.result("set_session_name", params)).toEqual(first);
  const { data } = await server.failure("set_session_name", { sessionPath: file, name: "x", expectedLeafId: id(0) });
  expect([data.name, data.leafId, read(file)]).toEqual(["content_modified", first.entryId, after]);
});

test("an old session is published anew, and what is no session is left alone", async () => {
  const place = temporaryPlace();
  const old = putSession(place, 1, { header: { version: 2 } });
  const newer = putSession(place, 2, { header: { version: 99 } });
  const [bytes, untouched] = [read(old), read(newer)];
  const server = serveLibrary(place);
  await server.result("set_session_name", { sessionPath: old, name: "old" });
  expect(read(`${old}.v2.bak`)).toBe(bytes);
  expect((await server.failure("set_session_name", { sessionPath: newer, name: "x" })).data.name).toBe(
    "unsupported_version",
  );
  expect((await server.failure("set_session_name", { sessionPath: place.cwd, name: "x" })).data.name).toBe(
    "not_a_session",
  );
  expect((await server.failure("set_session_name", { sessionPath: `${old}x`, name: "x" })).data.name).toBe(
    "session_not_found",
  );
  expect(read(newer)).toBe(untouched);
});

test("without a current session a name can be given all the same", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const server = serveHere(["--session", "no-such-id", "--events", "none"], { place });
  await server.result("set_session_name", { sessionPath: file, name: "named" });
  expect(await nameOf(server, 1)).toBe("named");
});

/** A server beside which something happens while it takes a lock. */
function interrupted(place: Place): { server: HereServer; meanwhile: (act: () => void) => void } {
  const real = makeLocks({ disk: realDisk, stateFolder: place.state, client: "a server", now: () => "" });
  let next = (): void => {};
  const acquire: Locks["acquire"] = (key, at) => {
    next();
    next = () => {};
    return real.acquire(key, at);
  };
  const server = serveHere([], { place, locks: { ...real, acquire } });
  return { server, meanwhile: (act) => (next = act) };
}

test("another session that takes the place of a session before its lock is had gets no name", async () => {
  const place = temporaryPlace();
  const [file, other] = [putSession(place, 1), putSession(place, 2)];
  const before = read(other);
  const { server, meanwhile } = interrupted(place);
  meanwhile(() => renameSync(other, file));
  const { data, message } = await server.failure("set_session_name", { sessionPath: file, name: "theirs" });
  expect([data.name, message]).toEqual(["session_not_found", expect.stringContaining("Nothing was changed")]);
  expect(read(file)).toBe(before);
});

test("a session that may not be written any more when its lock is had is not changed by an undo", async () => {
  const place = temporaryPlace();
  const file = putSession(place, 1);
  const { server, meanwhile } = interrupted(place);
  const { sessionId: id1 } = await server.result("open_session", { sessionPath: file });
  await server.result("branch", { sessionId: id1, entryId: id(0) });
  await server.result("close_session", { sessionId: id1 });
  const newer = read(file).replace('"version":3', '"version":9');
  meanwhile(() => {
    writeFileSync(`${file}.new`, newer);
    renameSync(`${file}.new`, file);
  });
  expect((await server.failure("undo")).data.name).toMatch(/unsupported_version|read_only|not_a_session/);
  expect(read(file)).toBe(newer);
  expect((await server.result("list_operations")).operations).toHaveLength(1);
});
