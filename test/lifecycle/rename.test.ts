/** Naming a session that is not the current one: open next to it, not open at all, or another process's. */

import { renameSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { realDisk } from "../../src/storage/fs/disk.ts";
import { type Locks, makeLocks } from "../../src/storage/locks/locks.ts";
import { nameOf } from "../support/asking.ts";
import { call, linesIn } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { library, putSession, read, sessionId } from "../support/lifecycle.ts";
import { chain, id, userText } from "../support/lines.ts";
import { type HereServer, type Json, type Place, serveHere } from "../support/server.ts";

async function nameIn(server: HereServer): Promise<string> {
  const { sessions } = await server.result("list_sessions");
  return sessions.find((session: Json) => session.sessionId === sessionId(1))?.name;
}

test("a session that is not open gets one entry, and is not open afterwards", async () => {
  const { place, file } = library();
  const before = read(file);
  const server = serveHere([], { place });
  const { entryId } = await server.result("set_session_name", { sessionPath: file, name: "two\nlines" });
  expect(read(file).startsWith(before)).toBe(true);
  const [line, ...others] = linesIn(file).slice(4);
  expect(JSON.parse(line)).toMatchObject({ type: "session_info", id: entryId, parentId: id(2), name: "two lines" });
  expect([others, await nameIn(server)]).toEqual([[], "two lines"]);
  expect((await server.result("list_open_sessions")).sessions.length).toBe(1);
  // Only the caller has to know.
  expect(server.events.map(({ method }) => method)).toEqual(["session_start"]);
});

test("the leaf stays where it is, in the file or in our state folder only", async () => {
  const { place, server, file: placed } = library();
  const branched = putSession(place, 2, { lines: [...chain(3), userText("b0000000", id(0))] });
  const first = serveHere(["--session", placed, "--events", "none"], { place });
  await first.result("branch", { entryId: id(0) });
  await first.finish();
  for (const [sessionPath, n, leaf] of [
    [placed, 1, id(0)],
    [branched, 2, "b0000000"],
  ] as const) {
    const { entryId } = await server.result("set_session_name", { sessionPath, name: "named" });
    const { leafId } = await server.result("open_session", { sessionPath });
    const { entries } = await server.result("get_path", { sessionId: sessionId(n) });
    // The name stands at the leaf and moves along; the conversation is where it was.
    expect([leafId, entries.at(-2).id]).toEqual([entryId, leaf]);
  }
});

test("an open session is named in its own order, and is told of", async () => {
  const { place, files } = library(2);
  const server = serveHere(["--session", files[0]], { place });
  await server.result("open_session", { sessionPath: files[1] });
  const other = { sessionId: sessionId(2) };
  server.send(
    call(1, "append", { ...other, entries: [user("x")] }),
    call(2, "set_session_name", { sessionPath: files[1], name: "beside" }),
    call(3, "get_state", other),
    call(4, "set_session_name", { sessionPath: files[0], name: "current" }),
    call(5, "get_state", {}),
  );
  expect((await server.reply(3)).result).toMatchObject({ sessionName: "beside", entryCount: 5 });
  expect((await server.reply(5)).result).toMatchObject({ sessionName: "current", entryCount: 4 });
  const events = server.events.filter(({ method }) => method === "session_info_changed").map(({ params }) => params);
  const names = events.map(({ sessionId, name }) => `${sessionId} ${name}`).sort();
  expect(names).toEqual([`${sessionId(1)} current`, `${sessionId(2)} beside`]);
});

test("a repeat with the same key writes nothing, and an unexpected leaf nothing either", async () => {
  const { server, file: sessionPath } = library();
  const params = { sessionPath, name: "once", idempotencyKey: "k" };
  const first = await server.result("set_session_name", params);
  const after = read(sessionPath);
  expect(await server.result("set_session_name", params)).toEqual(first);
  const { data } = await server.failure("set_session_name", { sessionPath, name: "x", expectedLeafId: id(0) });
  expect([data.name, data.leafId, read(sessionPath)]).toEqual(["content_modified", first.entryId, after]);
});

test("an old session is published anew, and one of a newer version is left alone", async () => {
  const { place, server, file: old } = library(1, [], undefined, { header: { version: 2 } });
  const newer = putSession(place, 2, { header: { version: 99 } });
  const [bytes, untouched] = [read(old), read(newer)];
  await server.result("set_session_name", { sessionPath: old, name: "old" });
  expect(read(`${old}.v2.bak`)).toBe(bytes);
  const naming = { sessionPath: newer, name: "x" };
  expect(await nameOf(server, "set_session_name", naming)).toBe("unsupported_version");
  expect(read(newer)).toBe(untouched);
});

test("without a current session a name can be given all the same", async () => {
  const { place, file } = library();
  const server = serveHere(["--session", "no-such-id", "--events", "none"], { place });
  await server.result("set_session_name", { sessionPath: file, name: "named" });
  expect(await nameIn(server)).toBe("named");
});

/** A server next to which something happens while it takes a lock. */
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
  const { place, files } = library(2);
  const [file, other] = files;
  const before = read(other);
  const { server, meanwhile } = interrupted(place);
  meanwhile(() => renameSync(other, file));
  const { data, message } = await server.failure("set_session_name", { sessionPath: file, name: "theirs" });
  expect([data.name, message]).toEqual(["session_not_found", expect.stringContaining("Nothing was changed")]);
  expect(read(file)).toBe(before);
});

test("a session that may not be written any more when its lock is had is not changed by an undo", async () => {
  const { place, file } = library();
  const { server, meanwhile } = interrupted(place);
  const { sessionId: id1 } = await server.result("open_session", { sessionPath: file });
  await server.result("branch", { sessionId: id1, entryId: id(0) });
  await server.result("close_session", { sessionId: id1 });
  const newer = read(file).replace('"version":3', '"version":9');
  meanwhile(() => {
    writeFileSync(`${file}.new`, newer);
    renameSync(`${file}.new`, file);
  });
  expect(await nameOf(server, "undo")).toMatch(/unsupported_version|read_only|not_a_session/);
  expect(read(file)).toBe(newer);
  expect((await server.result("list_operations")).operations).toHaveLength(1);
});
