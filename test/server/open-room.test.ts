/** Many sessions in one server: those that there is no room for are closed, and are there when they are named. */

import { renameSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { OpenRoom } from "../../src/server/dispatch/open-room.ts";
import { user } from "../support/drafts.ts";
import { failingDisk } from "../support/failing.ts";
import { filesOf, makeSession, makeSessions, openSessions } from "../support/made-sessions.ts";
import { closedAfterALook, LOOKS_EVERY } from "../support/open-sessions.ts";
import { copyTo, otherName, type StoreName, writeElsewhere } from "../support/other-programs.ts";
import { imprint } from "../support/proof.ts";
import {
  call,
  type HereServer,
  type Json,
  serveHere,
  spawnServer,
  stopTimers,
  temporaryPlace,
  type Wire,
} from "../support/server.ts";
import { turns } from "../support/shared-session.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

const STORES: readonly StoreName[] = ["jsonl", "v2"];

const AMPLE = { bytes: Number.POSITIVE_INFINITY, handles: Number.POSITIVE_INFINITY };

/** Room for the current session. */
const NO_ROOM = (): OpenRoom => new OpenRoom(1, () => ({ bytes: 0, handles: 0 }));

/** Makes sessions, each with one message, and opens them one after the other. Returns their ids. */
async function opened(server: Wire, count: number): Promise<string[]> {
  const made = await makeSessions(server, count);
  await openSessions(server, ...made.map(({ sessionFile }) => sessionFile));
  return made.map(({ sessionId }) => sessionId);
}

/** Asks the same of many sessions in one write. Returns the results in the order of the sessions. */
async function together(server: Wire, method: string, ids: readonly string[], params: object = {}): Promise<Json[]> {
  server.send(...ids.map((sessionId) => call(sessionId, method, { sessionId, ...params })));
  const results = new Map<string, Json>();
  while (results.size < ids.length) {
    const { id, error, result } = await server.next();
    expect(error, id).toBeUndefined();
    if (ids.includes(id)) results.set(id, result);
  }
  return ids.map((id) => results.get(id));
}

/** Has the server look after its sessions until so many are open. Returns their ids. */
async function openAfterALook(server: HereServer, count: number): Promise<Set<string>> {
  vi.advanceTimersByTime(LOOKS_EVERY);
  const open = async (): Promise<Json[]> => (await server.result("list_open_sessions")).sessions;
  await vi.waitUntil(async () => (await open()).length === count, { interval: 2 });
  return new Set((await open()).map(({ sessionId }) => sessionId));
}

acrossTiers(describe, STORES)("sessions on %s", (store) => {
  const served = (room: OpenRoom): HereServer => {
    stopTimers();
    return serveHere(["--store", store], { room });
  };

  test.each([
    ["as long as there is room for them", 2, AMPLE, 9],
    ["if they are among those used last, whatever they take", 4, { bytes: 0, handles: 28 }, 4],
  ])("stay open %s", async (_what, last, limits, stay) => {
    const server = served(new OpenRoom(last, () => limits));
    const ids = await opened(server, 9);
    expect(await openAfterALook(server, stay)).toEqual(new Set(ids.slice(-stay)));
  });

  test.each([
    ["handles", { ...AMPLE, handles: 36 }],
    ["memory", { ...AMPLE, bytes: 1_600_000 }],
  ])("are closed where %s are too little, but for those used last", async (_what, limits) => {
    const server = served(new OpenRoom(2, () => limits));
    const ids = await opened(server, 9);
    await server.result("get_state", { sessionId: ids[0] });
    // The ninth is the current one.
    expect(await openAfterALook(server, 5)).toEqual(new Set([ids[0], ids[5], ids[6], ids[7], ids[8]]));
    for (const [n, sessionId] of ids.entries())
      expect((await server.result("append", { sessionId, entries: [user(`more of ${n}`)] })).entryIds).toHaveLength(1);
    for (const sessionId of ids)
      expect((await server.result("get_state", { sessionId })).entryCount, sessionId).toBe(2);
  });

  test("are all followed, those used longest ago in turn with as many others", async () => {
    const server = served(new OpenRoom(2, () => AMPLE, 8));
    const ids = await opened(server, 20);
    const { sessionFile, leafId } = await server.result("get_state", { sessionId: ids[0] });
    for (const sessionId of ids.slice(1)) await server.result("get_state", { sessionId });
    writeElsewhere(store, sessionFile, "ffffffff", leafId);
    // Those between are 11, of which 8 are looked at at a time; a reply shows that a look is over.
    for (let looks = 0; looks < 3; looks++) {
      vi.advanceTimersByTime(LOOKS_EVERY);
      await server.result("list_open_sessions");
    }
    const told = server.events.filter(({ params }) => params?.origin === "foreign");
    expect(told.map(({ params }) => params.sessionId)).toEqual([ids[0]]);
  });

  test("are forked once with one key, also when the one that was forked was closed meanwhile", async () => {
    const server = served(NO_ROOM());
    const { sessionFile } = await server.result("get_state");
    await server.result("append", { entries: [user("current")] });
    const { sessionId, sessionFile: file } = await server.result("new_session", { cwd: "/home/me/elsewhere" });
    const { entryIds } = await server.result("append", { entries: [user("one"), user("two")] });
    await server.result("switch_session", { sessionPath: sessionFile });
    await server.result("open_session", { sessionId });
    const params = { sessionId, entryId: entryIds[1], idempotencyKey: "once" };
    const first = await server.result("fork", params);
    await server.result("switch_session", { sessionPath: sessionFile });
    await opened(server, 2);
    await server.result("switch_session", { sessionPath: sessionFile });
    await closedAfterALook(server, sessionId);
    expect(await server.result("fork", params)).toEqual(first);
    // Where its file is gone, what was made of it is found in the folder of the current session.
    const other = await server.result("fork", { ...params, idempotencyKey: "again" });
    await opened(server, 2);
    await closedAfterALook(server, sessionId);
    renameSync(file, `${file}.away`);
    expect((await server.failure("fork", params)).data.name).toBe("session_not_found");
    await server.result("switch_session", { sessionPath: other.sessionFile });
    expect(await server.result("fork", params)).toEqual(first);
  });

  test.each(["sessionId", "sessionPath"] as const)("are opened again by %s where their host stood", async (named) => {
    stopTimers();
    const place = temporaryPlace();
    const sessionPath = join(place.home, `elsewhere${store === "v2" ? ".v2" : ".jsonl"}`);
    const room = NO_ROOM();
    const maker = serveHere(["--store", store, "--session", sessionPath], { place });
    const { sessionId } = await maker.result("get_state");
    await maker.result("append", { entries: [user("first", { id: "first" }), user("second", { id: "second" })] });
    await maker.finish();
    const server = serveHere(["--store", store], { room, place });
    const [current] = await opened(server, 2);
    await server.result("open_session", { sessionPath, leaf: "own", head: "mine" });
    await server.result("branch", { sessionId, entryId: "first" });
    await server.result("append", { sessionId, entries: [user("mine", { id: "mine" })] });
    await server.result("get_state", { sessionId: current });
    await closedAfterALook(server, sessionId);
    const where = named === "sessionId" ? { sessionId } : { sessionPath };
    expect(await server.result("open_session", where)).toMatchObject({ sessionId, leafId: "mine" });
    await server.result("append", { sessionId, entries: [user("more", { id: "more" })] });
    const { heads } = await server.result("list_heads", { sessionId });
    expect(heads).toMatchObject([{ name: "mine", leafId: "more" }]);
  });

  /** A session with one entry beside the current one, closed to make room. */
  async function resting(server: HereServer, readOnly = false): Promise<{ sessionId: string; sessionFile: string }> {
    const { sessionId, sessionFile } = await makeSession(server, user("first", { id: "first" }));
    await makeSession(server, "current");
    await server.result("open_session", { sessionPath: sessionFile, readOnly });
    await opened(server, 2);
    await closedAfterALook(server, sessionId);
    return { sessionId, sessionFile };
  }

  test("are not opened in the place of another session that was put there", async () => {
    const server = served(NO_ROOM());
    const { sessionId, sessionFile } = await resting(server);
    const { sessionId: otherId, sessionFile: other } = await makeSession(server, "of the other");
    await server.result("new_session");
    copyTo(other, sessionFile);
    const before = imprint(sessionFile);
    for (const name of ["once", "again"])
      expect((await server.failure("set_session_name", { sessionId, name })).data.name).toBe("session_not_found");
    expect(imprint(sessionFile)).toEqual(before);
    expect(await server.result("open_session", { sessionPath: sessionFile })).toMatchObject({ sessionId: otherId });
  });

  test("are read only again when they were opened so", async () => {
    const server = served(NO_ROOM());
    const { sessionId, sessionFile } = await resting(server, true);
    await server.result("open_session", { sessionPath: sessionFile, readOnly: true });
    expect((await server.failure("append", { sessionId, entries: [user("x")] })).data.name).toBe("read_only");
  });

  test("do not come in the place of another one with their id that is open", async () => {
    const server = served(NO_ROOM());
    const { sessionId, sessionFile } = await resting(server);
    const copy = join(dirname(sessionFile), `copy${extname(sessionFile)}`);
    copyTo(sessionFile, copy);
    await server.result("switch_session", { sessionPath: copy });
    expect(await server.result("open_session", { sessionId })).toMatchObject({ sessionFile: copy });
    await server.result("append", { sessionId, entries: [user("in the copy", { id: "copy" })] });
    expect((await server.result("get_state")).leafId).toBe("copy");
  });

  test("are named by every name of their file, also when they were closed", async () => {
    const server = served(NO_ROOM());
    const [first] = await opened(server, 3);
    const { sessionFile } = await server.result("get_state", { sessionId: first });
    await openAfterALook(server, 1);
    const sessionPath = otherName(sessionFile);
    for (const time of ["closed", "open"]) {
      await server.result("set_session_name", { sessionPath, name: time });
      expect(await server.result("open_session", { sessionPath }), time).toMatchObject({ sessionId: first });
    }
    expect(await filesOf(server, first)).toHaveLength(1);
  });
});

test.each([
  ["opened, which waits for no look", 8, 35, 6],
  ["written to", 6, 21, 4],
])("no more sessions stay open than there are handles for, where they are %s", async (what, count, handles, most) => {
  stopTimers();
  const server = serveHere([], { room: new OpenRoom(64, () => ({ ...AMPLE, handles })) });
  const ids = await opened(server, count);
  for (const sessionId of ids) {
    if (what === "written to") await server.result("append", { sessionId, entries: [user("more")] });
    await turns(20);
  }
  expect((await server.result("list_open_sessions")).sessions.length).toBeLessThanOrEqual(most);
  expect((await server.result("get_state", { sessionId: ids[0] })).entryCount).toBe(what === "written to" ? 2 : 1);
});

acrossTiers(describe, STORES)("sessions on %s that are opened together", (store) => {
  /** A server with room for three sessions, whose disk opens no more files than these take. */
  function tight(most: number): HereServer {
    stopTimers();
    const few = failingDisk((_, operation) =>
      /^open|^create$/.test(operation) && few.open() >= most ? "EMFILE" : undefined,
    );
    return serveHere(["--store", store], { disk: few.disk, room: new OpenRoom(64, () => ({ ...AMPLE, handles: 21 })) });
  }

  test.each(["append", "open_session"])("wait until others are closed, and all of %s is done", async (method) => {
    const server = tight(store === "v2" ? 18 : 8);
    const ids = await opened(server, 7);
    const params = method === "append" ? { entries: [user("more")] } : {};
    await together(server, method, ids, params);
    const states = await together(server, "get_state", ids);
    expect(states.map(({ entryCount }) => entryCount)).toEqual(ids.map(() => (method === "append" ? 2 : 1)));
  });
});

test("a session waits for no other whose host does not answer", async () => {
  stopTimers();
  const server = serveHere([], { room: new OpenRoom(64, () => ({ ...AMPLE, handles: 14 })) });
  await server.result("initialize", { capabilities: { hooks: [{ name: "session_before_tree" }] } });
  const ids = await opened(server, 3);
  server.ask("asked", "branch", { sessionId: ids[1], entryId: null });
  for (const sessionId of ids.filter((_, n) => n !== 1))
    expect(await server.result("get_state", { sessionId })).toMatchObject({ entryCount: 1 });
});

test.each(["append", "new_session"])(
  "%s writes nothing where too few files may be open, and names the limit",
  async (method) => {
    let count = 25;
    const room = new OpenRoom(64, () => AMPLE, 64, { most: () => 30, count: () => count });
    const server = serveHere([], { room });
    const params = method === "append" ? { entries: [user("one")] } : {};
    const refused = await server.failure(method, params);
    expect(refused.data).toMatchObject({ name: "storage_failed", errno: "EMFILE", limit: 30 });
    expect(refused.message).toMatch(/30 files.*Nothing was written.*ulimit -n/);
    count = 10;
    await server.result(method, params);
    expect(await server.result("get_state")).toMatchObject({ entryCount: method === "append" ? 1 : 0 });
  },
);

test.each(STORES)("100 sessions on %s are written to at a time where 300 files may be open", SWEEP, async (store) => {
  const server = spawnServer(["--events", "none", "--store", store], "lines", temporaryPlace(), 300);
  const ids = await opened(server, 100);
  await together(server, "append", ids, { entries: [user("more")] });
  await server.finish();
});
