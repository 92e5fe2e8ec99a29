/** New sessions: nothing on disk before there is something to keep; an id that a host gives is made once. */

import { cpSync, existsSync, readdirSync } from "node:fs";
import { basename, dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { append, nameOf } from "../support/asking.ts";
import { linesIn } from "../support/cases.ts";
import { user } from "../support/drafts.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";

const lines = (file: string): Json[] => linesIn(file).map((line) => JSON.parse(line));

test("its file is named after the time and its id; one that is left before an entry has none", async () => {
  const server = serveHere(["--events", "none"]);
  const left = await server.result("new_session");
  const { sessionId, sessionFile } = await server.result("new_session");
  const name = new RegExp(`^\\d{4}-\\d\\d-\\d\\dT\\d\\d-\\d\\d-\\d\\d-\\d{3}Z_${sessionId}\\.jsonl$`);
  expect([basename(sessionFile), left.sessionId === sessionId]).toEqual([expect.stringMatching(name), false]);
  await server.finish();
  for (const file of [left.sessionFile, sessionFile]) expect(existsSync(dirname(file))).toBe(false);
});

test("what set it up is gone when nothing followed", async () => {
  const server = serveHere(["--events", "none", "--name", "never"]);
  const { sessionFile } = await server.result("get_state");
  await server.finish();
  expect(existsSync(sessionFile)).toBe(false);
});

test("its params go into its header", async () => {
  const server = serveHere(["--events", "none"]);
  const about = { parentSession: "/elsewhere/old.jsonl", cwd: "/some/project" };
  const { sessionFile, sessionId } = await server.result("new_session", { ...about, newSessionId: "my.own_id-1" });
  expect([sessionId, basename(dirname(sessionFile))]).toEqual(["my.own_id-1", "--some-project--"]);
  await server.result("append", { entries: [user("x")] });
  expect(lines(sessionFile)[0]).toMatchObject({ id: "my.own_id-1", ...about });
  expect(await server.result("get_state")).toMatchObject(about);
});

const ID = "01991f6e-1f1d-7c3e-b0a4-0242ac130001";

const start = (place: Place, ...args: string[]): HereServer => serveHere(["--events", "none", ...args], { place });

/** Appends with a key in a server that is started for that, and ends. Answers the state before. */
async function appendOnce(place: Place, text: string, args: string[]): Promise<Json> {
  const server = start(place, ...args);
  const state = await server.result("get_state");
  await server.result("append", { entries: [user(text)], idempotencyKey: text });
  await server.finish();
  return state;
}

async function listed(server: HereServer): Promise<[id: string, messages: number][]> {
  const { sessions } = await server.result("list_sessions");
  return sessions.map(({ sessionId, messageCount }: Json) => [sessionId, messageCount]);
}

describe.each(["jsonl", "v2"])("in the store %s", (store) => {
  const given = ["--store", store, "--session-id", ID];

  test("--session-id opens the session of this directory that has the id, of the other store or archived, too", async () => {
    const place = temporaryPlace();
    const first = await appendOnce(place, "one", given);
    const again = await appendOnce(place, "one", given);
    expect([first.persisted, again.persisted]).toEqual([false, true]);
    const { sessionFile } = first;
    expect(again).toMatchObject({ sessionId: ID, sessionFile, entryCount: 1 });
    await appendOnce(place, "two", given);
    expect(await listed(start(place))).toEqual([[ID, 2]]);
    // A session of another directory with that id is another one.
    const elsewhere = await start({ ...place, cwd: place.home }, ...given).result("get_state");
    expect(elsewhere).toMatchObject({ sessionId: ID, persisted: false });
    const other = start(place, "--store", store === "v2" ? "jsonl" : "v2", "--session-id", ID);
    expect(await other.result("get_state")).toMatchObject({ sessionId: ID, entryCount: 2 });
    await other.result("new_session", {});
    const { movedTo } = await other.result("archive_session", { sessionId: ID });
    await other.finish();
    expect(await start(place, ...given).result("get_state")).toMatchObject({ sessionFile: movedTo, entryCount: 2 });
  });

  test("new_session and --fork refuse an id that a session has, wherever it is", async () => {
    const place = temporaryPlace();
    const { sessionFile } = await appendOnce(place, "one", given);
    const server = start(place, "--store", store);
    const refused = { name: "already_exists", sessionId: ID, sessionPath: sessionFile };
    for (const params of [{}, { cwd: place.home }, { name: "n", idempotencyKey: "other" }])
      expect((await server.failure("new_session", { newSessionId: ID, ...params })).data).toMatchObject(refused);
    const fresh = { newSessionId: ID.replace(/1$/, "2") };
    await server.result("new_session", fresh);
    // It has no file yet.
    expect(await nameOf(server, "new_session", fresh)).toBe("already_exists");
    await server.finish();
    const forked = start(place, "--store", store, "--fork", sessionFile, "--session-id", ID);
    expect((await forked.failure("get_state")).data).toMatchObject(refused);
    expect(await listed(forked)).toEqual([[ID, 1]]);
  });

  test("the key decides whether new_session is a repeat, after a restart, too, and in the directory that it names", async () => {
    const place = temporaryPlace();
    for (const params of [
      { newSessionId: ID, idempotencyKey: "make" },
      { newSessionId: ID.replace(/1$/, "3"), idempotencyKey: "make elsewhere", cwd: place.home },
    ]) {
      const server = start(place, "--store", store);
      const made = await server.result("new_session", params);
      await append(server, user("one"));
      await server.result("new_session", {});
      expect(await server.result("new_session", params)).toEqual(made);
      await server.finish();
      const next = start(place, "--store", store);
      expect(await next.result("new_session", params)).toEqual(made);
      expect(await next.result("get_state")).toMatchObject({ sessionFile: made.sessionFile, entryCount: 1 });
      await next.finish();
    }
    expect(await listed(start(place))).toHaveLength(2);
  });

  test("of two servers that begin it at the same time, the second goes on in it with its first entry", async () => {
    const place = temporaryPlace();
    const one = start(place, ...given);
    // Session files have names that begin with the time.
    const two = serveHere(["--events", "none", ...given], { place, env: { now: () => Date.now() + 1000 } });
    await append(one, user("one"));
    await append(two, user("two"));
    const { sessionFile } = await one.result("get_state");
    expect(existsSync(sessionFile)).toBe(true);
    const names = readdirSync(dirname(sessionFile)).filter((name) => /\.(jsonl|v2)$/.test(name));
    expect(names).toEqual([basename(sessionFile)]);
    expect(await two.result("get_state")).toMatchObject({ sessionFile, entryCount: 2 });
    expect(await listed(start(place))).toEqual([[ID, 2]]);
  });
});

test("two sessions of this directory with the id are told apart by their paths; in memory they do not count", async () => {
  const place = temporaryPlace();
  const { sessionFile } = await appendOnce(place, "one", ["--session-id", "mine"]);
  const inMemory = await start(place, "--no-session", "--session-id", "mine").result("get_state");
  expect(inMemory).toMatchObject({ sessionId: "mine", sessionFile: null, entryCount: 0 });
  cpSync(sessionFile, sessionFile.replace(/\.jsonl$/, "-copy.jsonl"));
  const { data } = await start(place, "--session-id", "mine").failure("get_state");
  expect(data).toMatchObject({ name: "ambiguous_id", matches: 2 });
});
