/** Ids that a host gives: the session that has one is opened, or made, and none is made a second time. */

import { cpSync, existsSync, readdirSync } from "node:fs";
import { basename, dirname } from "node:path";
import { describe, expect, test } from "vitest";
import { user } from "../support/drafts.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";

const ID = "01991f6e-1f1d-7c3e-b0a4-0242ac130001";

const start = (place: Place, ...args: string[]): HereServer => serveHere(["--events", "none", ...args], { place });

/** Appends with a key in a server that is started for that, and ends. Answers the state before. */
async function appendOnce(place: Place, text: string, key: string, ...args: string[]): Promise<Json> {
  const server = start(place, ...args);
  const state = await server.result("get_state");
  await server.result("append", { entries: [user(text)], idempotencyKey: key });
  await server.finish();
  return state;
}

async function listed(server: HereServer): Promise<[id: string, messages: number][]> {
  const { sessions } = await server.result("list_sessions");
  return sessions.map(({ sessionId, messageCount }: Json) => [sessionId, messageCount]);
}

describe.each(["jsonl", "v2"])("in the store %s", (store) => {
  const given = ["--store", store, "--session-id", ID];

  test("--session-id opens the session of this directory that has the id, so that a keyed append is done once", async () => {
    const place = temporaryPlace();
    const first = await appendOnce(place, "one", "k1", ...given);
    const again = await appendOnce(place, "one", "k1", ...given);
    expect([first.persisted, again.persisted]).toEqual([false, true]);
    expect(again).toMatchObject({ sessionId: ID, sessionFile: first.sessionFile, entryCount: 1 });
    await appendOnce(place, "two", "k2", ...given);
    expect(await listed(start(place))).toEqual([[ID, 2]]);
  });

  test("it opens one of the other store, too, and an archived one", async () => {
    const place = temporaryPlace();
    await appendOnce(place, "one", "k1", ...given);
    const other = start(place, "--store", store === "v2" ? "jsonl" : "v2", "--session-id", ID);
    expect(await other.result("get_state")).toMatchObject({ sessionId: ID, entryCount: 1 });
    await other.result("new_session", {});
    const { movedTo } = await other.result("archive_session", { sessionId: ID });
    await other.finish();
    expect(await start(place, ...given).result("get_state")).toMatchObject({ sessionFile: movedTo, entryCount: 1 });
  });

  test("a session of another directory with that id is another one", async () => {
    const place = temporaryPlace();
    await appendOnce(place, "one", "k1", ...given);
    const elsewhere = { ...place, cwd: place.home };
    expect(await start(elsewhere, ...given).result("get_state")).toMatchObject({ sessionId: ID, persisted: false });
  });

  test("new_session and --fork refuse an id that a session has, wherever it is", async () => {
    const place = temporaryPlace();
    const { sessionFile } = await appendOnce(place, "one", "k1", ...given);
    const server = start(place, "--store", store);
    const refused = { name: "already_exists", sessionId: ID, sessionPath: sessionFile };
    for (const params of [{}, { cwd: place.home }, { name: "n", idempotencyKey: "other" }])
      expect((await server.failure("new_session", { newSessionId: ID, ...params })).data).toMatchObject(refused);
    const fresh = ID.replace(/1$/, "2");
    await server.result("new_session", { newSessionId: fresh });
    // It has no file yet.
    expect((await server.failure("new_session", { newSessionId: fresh })).data.name).toBe("already_exists");
    await server.finish();
    const forked = start(place, "--store", store, "--fork", sessionFile, "--session-id", ID);
    expect((await forked.failure("get_state")).data).toMatchObject(refused);
    expect(await listed(forked)).toEqual([[ID, 1]]);
  });

  test("the key decides whether new_session is a repeat, after a restart, too, and in the directory that it names", async () => {
    const place = temporaryPlace();
    for (const more of [{}, { cwd: place.home }]) {
      const params = { newSessionId: "cwd" in more ? ID.replace(/1$/, "3") : ID, idempotencyKey: "make", ...more };
      if ("cwd" in more) params.idempotencyKey = "make elsewhere";
      const server = start(place, "--store", store);
      const made = await server.result("new_session", params);
      await server.result("append", { entries: [user("one")] });
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

  test("of two servers that begin it at the same time, the second is refused with its first entry", async () => {
    const place = temporaryPlace();
    const one = start(place, ...given);
    // Session files have names that begin with the time.
    const two = serveHere(["--events", "none", ...given], { place, env: { now: () => Date.now() + 1000 } });
    await one.result("append", { entries: [user("one")] });
    const { data, message } = await two.failure("append", { entries: [user("two")] });
    expect([data.name, message]).toEqual(["already_exists", expect.stringContaining(ID)]);
    const { sessionFile } = await one.result("get_state");
    expect(existsSync(sessionFile)).toBe(true);
    const names = readdirSync(dirname(sessionFile)).filter((name) => /\.(jsonl|v2)$/.test(name));
    expect(names).toEqual([basename(sessionFile)]);
  });
});

test("two sessions of this directory with the id are told apart by their paths", async () => {
  const place = temporaryPlace();
  const { sessionFile } = await appendOnce(place, "one", "k1", "--session-id", "mine");
  cpSync(sessionFile, sessionFile.replace(/\.jsonl$/, "-copy.jsonl"));
  const { data } = await start(place, "--session-id", "mine").failure("get_state");
  expect(data).toMatchObject({ name: "ambiguous_id", matches: 2 });
});

test("without sessions on the disk, an id that is there does not count", async () => {
  const place = temporaryPlace();
  await appendOnce(place, "one", "k1", "--session-id", "mine");
  const server = start(place, "--no-session", "--session-id", "mine");
  expect(await server.result("get_state")).toMatchObject({ sessionId: "mine", sessionFile: null, entryCount: 0 });
});
