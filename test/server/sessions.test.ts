/** Several sessions open in one process: each in its own order, none in another's way, and each the one that it is. */

import { cpSync, readdirSync, readFileSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { describe, expect, test, vi } from "vitest";
import { OpenLimit } from "../../src/server/dispatch/open-limit.ts";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { assistant, user } from "../support/drafts.ts";
import { failingDisk } from "../support/failing.ts";
import { gatedDisk } from "../support/gated-disk.ts";
import { put } from "../support/lifecycle.ts";
import { fileText, headerText, userText } from "../support/lines.ts";
import { filesOf, makeSession, makeSessions, openSessions } from "../support/made-sessions.ts";
import { closedAfterALook, LOOKS_EVERY } from "../support/open-sessions.ts";
import { copyTo, otherName, type StoreName, writeElsewhere } from "../support/other-programs.ts";
import { imprint } from "../support/proof.ts";
import { call, type Json, serveHere, spawnServer, stopTimers, temporaryPlace, type Wire } from "../support/server.ts";
import { turns } from "../support/shared-session.ts";
import { acrossTiers, SWEEP, SYSTEM } from "../support/tiers.ts";

const STORES: readonly StoreName[] = ["jsonl", "v2"];

test("a key belongs to the session that a path names", async () => {
  const server = serveHere();
  const [first, second] = await makeSessions(server, 2);
  await server.result("open_session", { sessionPath: first.sessionFile });
  for (const { sessionFile: path } of [first, second, first])
    await server.result("set_session_name", { sessionPath: path, name: path.slice(-20), idempotencyKey: "k" });
  for (const { sessionId: id, sessionFile: path } of [first, second])
    expect(await server.result("get_state", { sessionId: id })).toMatchObject({
      sessionName: path.slice(-20),
      entryCount: 2,
    });
});

test("an open session that is named by the path it had stays open", async () => {
  const server = serveHere();
  const [{ sessionFile: path }] = await makeSessions(server, 1);
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
    const [first, second] = await makeSessions(server, 2);
    const opened = await server.result("open_session", { sessionPath: first.sessionFile });
    expect(opened).toMatchObject({ sessionId: first.sessionId, sessionFile: first.sessionFile, readOnly: false });
    await server.result("open_session", { sessionId: first.sessionId });
    await server.result("append", { sessionId: first.sessionId, entries: [user("more")] });
    expect((await server.result("list_open_sessions")).sessions).toMatchObject([
      { sessionId: second.sessionId, current: true },
      { sessionId: first.sessionId, current: false },
    ]);
    expect((await server.result("get_state", { sessionId: first.sessionId })).entryCount).toBe(2);
    expect(await server.result("get_state")).toMatchObject({ sessionId: second.sessionId, entryCount: 1 });
    expect(server.events.at(-1)).toMatchObject({ method: "session_append", params: { sessionId: first.sessionId } });
  });

  test("can become the current one, with what is under way in it first", async () => {
    const server = serveHere();
    const [{ sessionId, sessionFile: sessionPath }] = await makeSessions(server, 2);
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
  const [first, second] = await makeSessions(plain, 2);
  await plain.finish();
  const server = serveHere(["--session", second.sessionFile], { place, disk });
  await server.result("open_session", { sessionPath: first.sessionFile });
  server.ask("slow", "append", { entries: [user("slow")] });
  const gate = await waits();
  expect((await server.result("get_state", { sessionId: first.sessionId })).entryCount).toBe(1);
  gate.pass();
  expect((await server.reply("slow")).result.entryIds).toHaveLength(1);
});

/** Writes to each session. */
const ROUNDS = 2;

test("a hundred sessions with interleaved traffic keep their order, and descriptors stay bounded", SYSTEM, async () => {
  const server = spawnServer(["--durability", "os", "--events", "none"], "lines", temporaryPlace(), 1000);
  const made = await makeSessions(server, 100);
  await openSessions(server, ...made.map(({ sessionFile }) => sessionFile));
  const calls: Json[] = [];
  for (let round = 0; round < ROUNDS; round++)
    for (const [index, { sessionId: id }] of made.entries()) {
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
  expect((await server.result("get_state", { sessionId: made[0].sessionId })).entryCount).toBe(1 + ROUNDS);
  expect((await server.finish()).status).toBe(0);
});

// Files that get other names, other numbers on the disk or other contents.

const idOf = (n: number): string => `01991f6e-aaaa-7000-8000-${String(n).padStart(12, "0")}`;

/** Puts a session there that this server has not made. Returns its path. */
function putSession({ place: { cwd } }: { place: { cwd: string } }, n: number, version = 3): string {
  const header = headerText({ version, id: idOf(n), cwd });
  return put(join(cwd, `${n}.jsonl`), fileText(header, userText(`aaaa000${n}`, null, `of ${n}`)));
}

/** Makes sessions of a store; the first two are open next to the current one, which is the last. */
async function withSessions(store: string, count: number, disk: Disk = realDisk) {
  const server = serveHere(["--store", store], { disk });
  const made = await makeSessions(server, count);
  await openSessions(server, made[0].sessionFile, made[1].sessionFile);
  return { server, made };
}

/** Puts a copy of a file or folder in the place of another, or of itself. */
function takePlace(from: string, path: string): void {
  cpSync(from, `${path}.tmp`, { recursive: true });
  rmSync(path, { recursive: true });
  renameSync(`${path}.tmp`, path);
}

/** Returns the files of a session. */
function filesIn(path: string): string[] {
  if (statSync(path).isFile()) return [path];
  return readdirSync(path, { recursive: true, encoding: "utf8" })
    .map((name) => join(path, name))
    .filter((file) => statSync(file).isFile());
}

/** Has the server look at its files until so many sessions with an id are open. */
async function openWithIdAfterALook(server: Wire, sessionId: string, count = 1): Promise<void> {
  vi.advanceTimersByTime(LOOKS_EVERY);
  await vi.waitUntil(async () => (await filesOf(server, sessionId)).length === count);
}

/** A disk on which a path has the number of a deleted file, which the system gives to the next new file. */
function reusing(): { disk: Disk; setInode: (path: string, inode: number) => void } {
  const given = new Map<string, number>();
  const info: Disk["info"] = (path, plain) => {
    const found = realDisk.info(path, plain);
    return { ...found, inode: given.get(path) ?? found.inode };
  };
  return { disk: { ...realDisk, info }, setInode: (path, inode) => given.set(path, inode) };
}

test("a session that was written anew, as its first change does with an older version, is not its original, which is kept", async () => {
  const server = serveHere();
  const { cwd } = server.place;
  const [first, second] = [putSession(server, 1, 2), putSession(server, 2)];
  await openSessions(server, first, second);
  await server.result("append", { sessionId: idOf(1), entries: [user("more")] });
  const original = join(cwd, "original.jsonl");
  renameSync(join(cwd, readdirSync(cwd).find((name) => name.endsWith(".bak")) as string), original);
  await server.result("set_session_name", { sessionPath: original, name: "the original" });
  expect(readFileSync(first, "utf8")).not.toContain("the original");
  expect(readFileSync(original, "utf8")).toContain("the original");
  // It is found by each of its names.
  const sessionPath = otherName(first);
  await server.result("set_session_name", { sessionPath, name: "by its other name" });
  await server.result("open_session", { sessionPath });
  expect(await filesOf(server, idOf(1))).toEqual([first]);
  await server.result("append", { sessionId: idOf(1), entries: [user("again")] });
  await server.result("close_session", { sessionId: idOf(1) });
  await server.result("delete_session", { sessionPath: first });
});

acrossTiers(test, STORES)("a session on %s that was replaced just now is found by each name", async (store) => {
  const { server, made } = await withSessions(store, 3);
  const [{ sessionFile, sessionId }] = made;
  takePlace(sessionFile, sessionFile);
  await openSessions(server, otherName(sessionFile));
  expect(await filesOf(server, sessionId)).toEqual([sessionFile]);
});

test("a session that was closed to make room, and deleted, is not the one that has its number on the disk now", async () => {
  stopTimers();
  const { disk, setInode } = reusing();
  const server = serveHere([], { disk, room: new OpenLimit(1, () => ({ bytes: 0, handles: 0 })) });
  const paths = [1, 2, 3].map((n) => putSession(server, n));
  await openSessions(server, ...paths);
  await openWithIdAfterALook(server, idOf(1), 0);
  const { ino } = statSync(paths[0]);
  rmSync(paths[0]);
  const next = putSession(server, 4);
  setInode(next, ino);
  await server.result("delete_session", { sessionPath: next });
});

acrossTiers(test, STORES)("a session on %s that was deleted is not the one with its number now", async (store) => {
  const { disk, setInode } = reusing();
  const { server, made } = await withSessions(store, 4, disk);
  const { ino } = statSync(made[0].sessionFile);
  rmSync(made[0].sessionFile, { recursive: true });
  setInode(made[2].sessionFile, ino);
  const there = await server.result("open_session", { sessionPath: made[2].sessionFile });
  expect(there.sessionId).toBe(made[2].sessionId);
});

test("a write to one that got another id is durable when it is acknowledged", SYSTEM, async () => {
  let syncs = 0;
  const counted =
    <T>(sync: (fd: number) => T) =>
    (fd: number): T => {
      syncs++;
      return sync(fd);
    };
  const disk = { ...realDisk, sync: counted(realDisk.sync), syncNow: counted(realDisk.syncNow) };
  const server = serveHere([], { disk });
  const path = putSession(server, 1);
  await openSessions(server, path);
  await server.result("append", { sessionId: idOf(1), entries: [user("more")] });
  writeFileSync(`${path}.tmp`, readFileSync(path, "utf8").replaceAll(idOf(1), idOf(7)));
  renameSync(`${path}.tmp`, path);
  await vi.waitUntil(async () => (await filesOf(server, idOf(7))).length > 0, { timeout: 30_000 });
  for (const name of ["one", "two"]) {
    const before = syncs;
    await server.result("set_session_name", { sessionPath: path, name });
    expect(syncs, name).toBeGreaterThan(before);
  }
});

acrossTiers(test, STORES)("a session on %s that became a copy of another is not taken for that one", async (store) => {
  stopTimers();
  const { server, made } = await withSessions(store, 3);
  const [first, second] = made;
  takePlace(second.sessionFile, first.sessionFile);
  vi.advanceTimersByTime(LOOKS_EVERY);
  await server.request("get_state", { sessionId: first.sessionId });
  await server.result("append", { sessionId: second.sessionId, entries: [user("for the second")] });
  const has = (path: string): boolean =>
    filesIn(path).some((file) => readFileSync(file, "utf8").includes("for the second"));
  expect([has(first.sessionFile), has(second.sessionFile)]).toEqual([false, true]);
});

/** Puts another session, that is not open, in the place of the first, which is. Returns its id and the path that it has now. */
async function withAnotherInPlace(store: string) {
  stopTimers();
  const { server, made } = await withSessions(store, 4);
  const [{ sessionFile }, , { sessionId, sessionFile: from }] = made;
  takePlace(from, sessionFile);
  rmSync(from, { recursive: true });
  return { server, sessionId, sessionFile };
}

acrossTiers(test, STORES)(
  "a write to a session never goes to another one on %s that is in its place",
  async (store) => {
    stopTimers();
    const { server, made } = await withSessions(store, 3);
    const [{ sessionId, sessionFile }, , { sessionFile: from }] = made;
    takePlace(from, sessionFile);
    // The note of the lock's holder may be another.
    const read = () =>
      filesIn(sessionFile).flatMap((file) => (/holder/.test(file) ? [] : readFileSync(file, "latin1")));
    const before = read();
    const write = (idempotencyKey?: string) => ({ sessionId, entries: [user("for the first")], idempotencyKey });
    server.send(call("one", "append", write("key")), call("two", "append", write()));
    for (const id of ["one", "two"]) expect((await server.reply(id)).error.data.name).toBe("session_not_found");
    expect(read()).toEqual(before);
  },
);

acrossTiers(test, STORES)("a session on %s in another's place is closed for good, and opened again", async (store) => {
  const { server, sessionId, sessionFile } = await withAnotherInPlace(store);
  await openWithIdAfterALook(server, sessionId);
  expect(await server.result("open_session", { sessionPath: sessionFile })).toMatchObject({ sessionId });
  await server.result("close_session", { sessionId });
  expect(await filesOf(server, sessionId)).toEqual([]);
  expect(await server.result("open_session", { sessionPath: sessionFile })).toMatchObject({ sessionId });
  await server.result("append", { sessionId, entries: [user("more")] });
  await server.result("switch_session", { sessionPath: sessionFile });
  expect((await server.result("append", { entries: [user("and more")] })).entryIds).toHaveLength(1);
});

acrossTiers(test, STORES)("two on %s with one id are open by their paths until both close", async (store) => {
  stopTimers();
  const { server, made } = await withSessions(store, 3);
  const [first, second] = made;
  const { sessionId } = second;
  takePlace(second.sessionFile, first.sessionFile);
  await openWithIdAfterALook(server, sessionId, 2);
  const paths = [first.sessionFile, second.sessionFile];
  for (const sessionPath of [...paths, ...paths]) {
    await openSessions(server, sessionPath);
    expect((await filesOf(server, sessionId)).sort()).toEqual([...paths].sort());
    // The one that was opened last has the id.
    await server.result("append", { sessionId, entries: [user("for this one")] });
    expect((await server.result("get_state", { sessionId })).sessionFile).toBe(sessionPath);
  }
  for (const left of [1, 0]) {
    await server.result("close_session", { sessionId });
    expect(await filesOf(server, sessionId)).toHaveLength(left);
  }
});

test.each([
  ["v2", otherName],
  ["jsonl", (path: string) => `${path}.link.jsonl`],
] as const)("a session on %s in another's place just now is found by each name", async (store, nameOf) => {
  const { server, sessionId, sessionFile } = await withAnotherInPlace(store);
  if (store === "jsonl") symlinkSync(sessionFile, nameOf(sessionFile));
  await openSessions(server, nameOf(sessionFile));
  await openWithIdAfterALook(server, sessionId);
  expect(await filesOf(server, sessionId)).toEqual([sessionFile]);
  await server.result("append", { sessionId, entries: [user("more")] });
});

// Those that there is no room for are closed, and are there when they are named.

const AMPLE = { bytes: Number.POSITIVE_INFINITY, handles: Number.POSITIVE_INFINITY };

/** Room for the current session. */
const FULL = (): OpenLimit => new OpenLimit(1, () => ({ bytes: 0, handles: 0 }));

/** Makes sessions, each with one message, and opens them one after the other. Returns their ids. */
async function opened(server: Wire, count: number): Promise<string[]> {
  const made = await makeSessions(server, count);
  for (const { sessionId } of made) await server.result("open_session", { sessionId });
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
async function openAfterALook(server: Wire, count: number): Promise<Set<string>> {
  vi.advanceTimersByTime(LOOKS_EVERY);
  const open = async (): Promise<Json[]> => (await server.result("list_open_sessions")).sessions;
  await vi.waitUntil(async () => (await open()).length === count, { interval: 2 });
  return new Set((await open()).map(({ sessionId }) => sessionId));
}

acrossTiers(describe, STORES)("sessions on %s", (store) => {
  const served = (limit: OpenLimit) => {
    stopTimers();
    return serveHere(["--store", store], { room: limit });
  };

  test.each([
    ["as long as there is room for them", 2, AMPLE, 9],
    ["if they are among those used last, whatever they take", 4, { bytes: 0, handles: 28 }, 4],
  ])("stay open %s", async (_what, last, limits, isKept) => {
    const server = served(new OpenLimit(last, () => limits));
    const ids = await opened(server, 9);
    expect(await openAfterALook(server, isKept)).toEqual(new Set(ids.slice(-isKept)));
  });

  test.each([
    ["handles", { ...AMPLE, handles: 36 }],
    ["memory", { ...AMPLE, bytes: 1_600_000 }],
  ])("are closed where %s are too little, but for those used last", async (_what, limits) => {
    const server = served(new OpenLimit(2, () => limits));
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
    const server = served(new OpenLimit(2, () => AMPLE, 8));
    const ids = await opened(server, 20);
    const { sessionFile, leafId } = await server.result("get_state", { sessionId: ids[0] });
    for (const sessionId of ids.slice(1)) await server.result("get_state", { sessionId });
    writeElsewhere(store, sessionFile, "ffffffff", leafId);
    // Those between are 11; a look takes 8 at a time; a reply shows that a look is over.
    for (let looks = 0; looks < 3; looks++) {
      vi.advanceTimersByTime(LOOKS_EVERY);
      await server.result("list_open_sessions");
    }
    const events = server.events.filter(({ params }) => params?.origin === "foreign");
    expect(events.map(({ params }) => params.sessionId)).toEqual([ids[0]]);
  });

  test("are forked once with one key, also when the one that was forked was closed meanwhile", async () => {
    const server = served(FULL());
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
    // If its file is gone, its copy is found: the id follows from the request.
    await server.result("switch_session", { sessionPath: sessionFile });
    await opened(server, 2);
    await closedAfterALook(server, sessionId);
    renameSync(file, `${file}.away`);
    expect(await server.result("fork", params)).toEqual(first);
  });

  test.each(["sessionId", "sessionPath"] as const)("are opened again by %s where their host stood", async (named) => {
    stopTimers();
    const place = temporaryPlace();
    const sessionPath = join(place.home, `elsewhere${store === "v2" ? ".v2" : ".jsonl"}`);
    const limit = FULL();
    const maker = serveHere(["--store", store, "--session", sessionPath], { place });
    const { sessionId } = await maker.result("get_state");
    await maker.result("append", { entries: [user("first", { id: "first" }), user("second", { id: "second" })] });
    await maker.finish();
    const server = serveHere(["--store", store], { room: limit, place });
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

  /** A session with one entry next to the current one, closed to make room. */
  async function resting(server: ReturnType<typeof served>, readOnly = false) {
    const { sessionId, sessionFile } = await makeSession(server, user("first", { id: "first" }));
    await makeSession(server, "current");
    await server.result("open_session", { sessionPath: sessionFile, readOnly });
    await opened(server, 2);
    await closedAfterALook(server, sessionId);
    return { sessionId, sessionFile };
  }

  test("are not opened in the place of another session that was put there", async () => {
    const server = served(FULL());
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
    const server = served(FULL());
    const { sessionId, sessionFile } = await resting(server, true);
    const opened = await server.result("open_session", { sessionPath: sessionFile, readOnly: true });
    expect(opened.readOnly).toBe(true);
    expect((await server.failure("append", { sessionId, entries: [user("x")] })).data.name).toBe("read_only");
  });

  test("do not come in the place of another one with their id that is open", async () => {
    const server = served(FULL());
    const { sessionId, sessionFile } = await resting(server);
    const copy = join(dirname(sessionFile), `copy${extname(sessionFile)}`);
    copyTo(sessionFile, copy);
    await server.result("switch_session", { sessionPath: copy });
    expect(await server.result("open_session", { sessionId })).toMatchObject({ sessionFile: copy });
    await server.result("append", { sessionId, entries: [user("in the copy", { id: "copy" })] });
    expect((await server.result("get_state")).leafId).toBe("copy");
  });

  test("are named by every name of their file, also when they were closed", async () => {
    const server = served(FULL());
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
  const server = serveHere([], { room: new OpenLimit(64, () => ({ ...AMPLE, handles })) });
  const ids = await opened(server, count);
  for (const sessionId of ids) {
    if (what === "written to") await server.result("append", { sessionId, entries: [user("more")] });
    await turns(20);
  }
  expect((await server.result("list_open_sessions")).sessions.length).toBeLessThanOrEqual(most);
  expect((await server.result("get_state", { sessionId: ids[0] })).entryCount).toBe(what === "written to" ? 2 : 1);
});

acrossTiers(describe, STORES)("sessions on %s that are opened together", (store) => {
  /** A server with room for three sessions, whose disk opens hardly more files than these take. */
  function tight(most: number) {
    stopTimers();
    const few = failingDisk((_, operation) =>
      /^open|^create$/.test(operation) && few.open() >= most ? "EMFILE" : undefined,
    );
    return serveHere(["--store", store], {
      disk: few.disk,
      room: new OpenLimit(64, () => ({ ...AMPLE, handles: 21 })),
    });
  }

  test.each(["append", "open_session"])("wait until others are closed, and all of %s is done", async (method) => {
    const server = tight(store === "v2" ? 20 : 10);
    const ids = await opened(server, 7);
    const params = method === "append" ? { entries: [user("more")] } : {};
    await together(server, method, ids, params);
    const states = await together(server, "get_state", ids);
    expect(states.map(({ entryCount }) => entryCount)).toEqual(ids.map(() => (method === "append" ? 2 : 1)));
  });
});

test("a session waits for no other whose host does not answer", async () => {
  stopTimers();
  const server = serveHere([], { room: new OpenLimit(64, () => ({ ...AMPLE, handles: 14 })) });
  await server.result("initialize", { capabilities: { hooks: [{ name: "session_before_tree" }] } });
  const ids = await opened(server, 3);
  server.ask("asked", "branch", { sessionId: ids[1], entryId: null });
  for (const sessionId of ids.filter((_, n) => n !== 1))
    expect(await server.result("get_state", { sessionId })).toMatchObject({ entryCount: 1 });
});

test.each(["append", "new_session"])("%s writes nothing where too few files may be open", async (method) => {
  let count = 25;
  const limit = new OpenLimit(64, () => AMPLE, 64, { most: () => 30, count: () => count });
  const server = serveHere([], { room: limit });
  const params = method === "append" ? { entries: [user("one")] } : {};
  const refused = await server.failure(method, params);
  expect(refused.data).toMatchObject({ name: "storage_failed", errno: "EMFILE", limit: 30 });
  expect(refused.message).toMatch(/30 files.*Nothing was written.*ulimit -n/);
  count = 10;
  await server.result(method, params);
  expect(await server.result("get_state")).toMatchObject({ entryCount: method === "append" ? 1 : 0 });
});

test.each(STORES)("100 sessions on %s are written to at a time where 300 files may be open", SWEEP, async (store) => {
  const server = spawnServer(["--events", "none", "--store", store], "lines", temporaryPlace(), 300);
  const ids = await opened(server, 100);
  await together(server, "append", ids, { entries: [user("more")] });
  await server.finish();
});

// Two with one id, as where a person copied a file.

const HOOKS = ["session_before_tree", "session_before_compact", "session_before_fork"].map((name) => ({ name }));

/** Sessions that are open: one next to the current one, and a copy of it that is closed. */
async function twins(store: StoreName, options: Parameters<typeof serveHere>[1] = {}) {
  const server = serveHere(["--events", "none", "--store", store], options);
  await server.result("initialize", { capabilities: { hooks: HOOKS } });
  const made = await makeSession(server, "one", assistant("two"), "three");
  const { sessionId, sessionFile: first, entryIds: ids } = made;
  await makeSession(server, "of the current one");
  await server.result("open_session", { sessionPath: first });
  const copy = join(dirname(first), `copy${extname(first)}`);
  copyTo(first, copy);
  return { server, sessionId, first, copy, ids };
}

/** Returns what a session has. */
async function stateOf(server: Wire, sessionPath: string): Promise<{ leafId: string; entryCount: number }> {
  await server.result("switch_session", { sessionPath });
  const { leafId, entryCount } = await server.result("get_state");
  return { leafId, entryCount };
}

acrossTiers(describe, STORES)("of two open sessions with one id (%s)", (store) => {
  const compaction = (ids: readonly string[]) => ({ summary: "short", firstKeptEntryId: ids[2], tokensBefore: 9 });

  test.each([
    ["branch", "switch_session"],
    ["compact", "open_session"],
  ])("%s is done in the one that it was asked of, also after %s to the other", async (method, meanwhile) => {
    const { server, sessionId, first, copy, ids } = await twins(store);
    const params = method === "branch" ? { entryId: ids[0], label: "here" } : {};
    server.send({ jsonrpc: "2.0", id: "b", method, params: { sessionId, ...params } });
    const { id } = await server.next();
    await server.result(meanwhile, { sessionPath: copy });
    server.answer(id, method === "branch" ? {} : { compaction: compaction(ids) });
    expect((await server.reply("b")).error).toBeUndefined();
    const changed = await stateOf(server, first);
    expect(changed.entryCount).toBe(4);
    if (method === "branch") expect(changed.leafId).not.toBe(ids[2]);
    expect(await stateOf(server, copy)).toEqual({ leafId: ids[2], entryCount: 3 });
  });

  test.each(["open_session", "switch_session"])("what waits for one is done there, after %s", async (meanwhile) => {
    const { server, sessionId, first, copy, ids } = await twins(store);
    server.ask("b", "branch", { sessionId, entryId: ids[0] });
    const { id } = await server.next();
    server.ask("a", "append", { sessionId, entries: [user("after", { id: "after" })] });
    await server.result(meanwhile, { sessionPath: copy });
    server.answer(id, {});
    expect((await server.reply("a")).result.entryIds).toEqual(["after"]);
    expect(await stateOf(server, copy)).toEqual({ leafId: ids[2], entryCount: 3 });
    expect((await stateOf(server, first)).leafId).toBe("after");
    expect((await server.result("get_entry", { entryId: "after" })).entry.parentId).toBe(ids[0]);
  });

  test("what waits for the current one is done there, also after another session has become the current one", async () => {
    const { server, sessionId, first, copy, ids } = await twins(store);
    await server.result("switch_session", { sessionPath: first });
    await server.result("open_session", { sessionPath: copy });
    server.ask("n", "clone");
    const { id } = await server.next();
    const entries = [user("after", { id: "after" })];
    server.ask("a", "append", { sessionId, entries });
    server.answer(id, {});
    expect((await server.reply("a")).result.entryIds).toEqual(["after"]);
    expect(await stateOf(server, copy)).toEqual({ leafId: ids[2], entryCount: 3 });
    expect(await stateOf(server, first)).toEqual({ leafId: "after", entryCount: 4 });
  });

  test("each keeps its order after the other was closed", async () => {
    const { server, sessionId, first, copy, ids } = await twins(store);
    await server.result("get_state", { sessionId });
    await server.result("open_session", { sessionPath: copy });
    server.ask("b", "branch", { sessionId, entryId: ids[0] });
    const { id } = await server.next();
    await server.result("open_session", { sessionPath: first });
    await server.result("close_session", { sessionId });
    const entries = [user("after", { id: "after" })];
    server.ask("a", "append", { sessionId, entries });
    await server.result("list_open_sessions");
    server.answer(id, {});
    expect(((await server.next()) as Json).id).toBe("b");
    expect((await server.reply("a")).result.entryIds).toEqual(["after"]);
    expect((await server.result("get_entry", { sessionId, entryId: "after" })).entry.parentId).toBe(ids[0]);
  });

  test("a write to the one that was closed to make room is durable when it is answered", async () => {
    stopTimers();
    let fails = false;
    const refusing = (): void => {
      if (fails) throw Object.assign(new Error("the medium fails"), { code: "EIO" });
    };
    const disk: Disk = {
      ...realDisk,
      async sync(fd) {
        refusing();
        return realDisk.sync(fd);
      },
      syncNow(fd) {
        refusing();
        realDisk.syncNow(fd);
      },
    };
    const limit = new OpenLimit(1, () => ({ bytes: 0, handles: 0 }));
    const { server, sessionId, first, copy } = await twins(store, { disk, room: limit });
    // One whose leaf is in no file yet stays open.
    await server.result("open_session", { sessionPath: first, leaf: "own" });
    const { sessionId: other } = await server.result("get_state");
    await server.result("open_session", { sessionPath: copy });
    await server.result("open_session", { sessionId: other });
    await closedAfterALook(server, copy);
    fails = true;
    const entries = [user("lost")];
    server.send(call("s", "get_session_stats", { sessionPath: first }), call("a", "append", { sessionId, entries }));
    expect((await server.reply("a")).error?.data.name).toBe("storage_failed");
    fails = false;
    for (const sessionPath of [first, copy]) expect((await stateOf(server, sessionPath)).entryCount).toBe(3);
  });
});
