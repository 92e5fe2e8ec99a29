/** list_sessions at the wire: what it tells, in which order, and what it leaves out. */

import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  mkdirSync,
  renameSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { catalogOn, realEnv, temporaryLibrary } from "../support/catalog.ts";
import { assistant, user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { type Json, type Place, runProgram, serveHere, temporaryPlace } from "../support/server.ts";
import { SYSTEM } from "../support/tiers.ts";

interface Made {
  readonly id: string;
  readonly cwd?: string | null;
  readonly entries?: readonly Json[];
  readonly header?: object;
  readonly folder?: string;
}

const minute = (n: number): number => Date.UTC(2026, 0, 24, 17, n);

function said(n: number, text: string): Json {
  return {
    ...user(text, { id: `0000000${n % 10}`, parentId: null }),
    message: { role: "user", content: text, timestamp: minute(n) },
  };
}

function put(place: Place, made: Made): string {
  const { id, cwd = "/home/me/app", entries = [], header = {}, folder = "--home-me-app--" } = made;
  const path = join(place.home, ".pi/agent/sessions", folder);
  mkdirSync(path, { recursive: true });
  const file = join(path, `2026-01-24T16-22-26-831Z_${id}.jsonl`);
  writeFileSync(file, sessionText({ id, cwd, ...header }, entries));
  return file;
}

async function list(place: Place, params: object = {}): Promise<Json> {
  return serveHere(["--no-session", "--events", "none"], { place }).result("list_sessions", params);
}

const ids = ({ sessions }: Json): string[] => sessions.map(({ sessionId }: Json) => sessionId);

test("tells of each session what its file tells, the last activity first", async () => {
  const place = temporaryPlace();
  const first = put(place, {
    id: "one",
    entries: [
      said(1, "Hello\u2028there"),
      { type: "session_info", id: "b", parentId: null, name: " Old " },
      assistant("Hi."),
      { type: "session_info", id: "c", parentId: null, name: "New\n" },
    ],
  });
  put(place, { id: "two", header: { parentSession: first }, entries: [said(50, "")] });
  const { sessions, total, nextCursor } = await list(place);
  expect([total, nextCursor]).toEqual([2, undefined]);
  expect(sessions[0]).toMatchObject({ sessionId: "two", parentSession: first, firstMessage: null, name: null });
  expect(sessions[1]).toMatchObject({
    sessionPath: first,
    sessionId: "one",
    cwd: "/home/me/app",
    name: "New",
    parentSession: null,
    created: "2026-01-24T16:22:26.831Z",
    messageCount: 2,
    firstMessage: "Hello\u2028there",
  });
  expect(sessions[0].modified).toBe("2026-01-24T17:50:00.000Z");
  expect(sessions[1].sizeBytes).toBeGreaterThan(100);
});

test("the order is that of what was said last, in file order, not that of the files", async () => {
  const place = temporaryPlace();
  const files = [30, 10, 20].map((n) => put(place, { id: `at${n}`, entries: [said(n, "x")] }));
  for (const [i, file] of files.entries()) utimesSync(file, 1e9 - i, 1e9 - i);
  // A later header, a label and a model change are no conversation; neither is a time that is none.
  put(place, { id: "header", entries: [], header: { timestamp: "2027-01-01T00:00:00Z" } });
  put(place, {
    id: "label",
    entries: [said(5, "x"), { type: "label", id: "l", parentId: null, timestamp: "2028-01-01T00:00:00Z" }],
  });
  put(place, { id: "noTime", header: { timestamp: undefined }, entries: [{ ...user("x"), timestamp: "yesterday" }] });
  put(place, {
    id: "odd",
    entries: [
      said(40, "x"),
      { type: "message", id: "m", parentId: null, timestamp: 7, message: { role: "user", timestamp: "8" } },
    ],
  });
  expect(ids(await list(place))).toEqual(["odd", "at30", "at20", "at10", "label", "noTime"]);
  expect(ids(await list(place, { headerOnly: true }))[0]).toBe("header");
  expect(ids(await list(place, { since: "2026-01-24T17:20:00Z" }))).toEqual(["odd", "at30", "at20"]);
});

test("working directories whose folders are the same are told apart", async () => {
  const place = temporaryPlace();
  for (const cwd of ["/a/b-c", "/a-b/c", "/a/b/c", "/项目/数", "C:\\work", "c:\\work", null])
    put(place, {
      id: `in-${Buffer.from(cwd ?? "none").toString("hex")}`,
      cwd,
      folder: "--a-b-c--",
      entries: [said(1, "x")],
    });
  for (const cwd of ["/a/b-c", "/a-b/c", "/a/b/c", "/项目/数", "C:\\work", "c:\\work"])
    expect((await list(place, { cwd })).sessions.map((session: Json) => session.cwd)).toEqual([cwd]);
  expect((await list(place, { cwd: "/a/b/c/" })).total).toBe(1);
  for (const cwd of ["/a", "/A/B/C", ""]) expect((await list(place, { cwd })).total).toBe(0);
  expect((await list(place)).total).toBe(7);
});

test("filters by name, words, parent and activity; sorts by creation and name", async () => {
  const place = temporaryPlace();
  const name = (text: string): Json => ({ type: "session_info", id: "n", parentId: null, name: text });
  const parent = put(place, {
    id: "parent",
    header: { timestamp: "2026-01-03T00:00:00Z" },
    entries: [said(1, "Fix the LOGIN page"), name("Beta")],
  });
  put(place, {
    id: "child",
    header: { timestamp: "2026-01-02T00:00:00Z", parentSession: parent },
    entries: [said(3, "läuft"), name("alpha")],
  });
  put(place, {
    id: "rust",
    header: { timestamp: "2026-01-01T00:00:00Z", branchedFrom: "/moved/2026-01-24T16-22-26-831Z_parent.jsonl" },
    entries: [said(2, "会议记录")],
  });
  expect(ids(await list(place, { name: "BET" }))).toEqual(["parent"]);
  expect(ids(await list(place, { query: "login fix" }))).toEqual(["parent"]);
  expect(ids(await list(place, { query: "LÄUFT" }))).toEqual(["child"]);
  expect(ids(await list(place, { query: "议" }))).toEqual(["rust"]);
  expect(ids(await list(place, { query: "rust" }))).toEqual(["rust"]);
  expect(ids(await list(place, { parent }))).toEqual(["child", "rust"]);
  expect(ids(await list(place, { parent: "parent" }))).toEqual(["child", "rust"]);
  expect(ids(await list(place, { sort: "created" }))).toEqual(["parent", "child", "rust"]);
  expect(ids(await list(place, { sort: "name" }))).toEqual(["child", "parent", "rust"]);
  expect(ids(await list(place, { archived: true }))).toEqual([]);
});

test("a fork sorts as new, and is told from its original, wherever that lies", async () => {
  const place = temporaryPlace();
  const name = { type: "session_info", id: "n", parentId: null, name: "The original" };
  const parent = put(place, { id: "parent", entries: [said(10, "x"), name] });
  put(place, { id: "other", entries: [said(30, "y")] });
  const timestamp = "2026-01-24T18:00:00.000Z";
  put(place, { id: "fork", header: { parentSession: parent, timestamp }, entries: [said(10, "x")] });
  put(place, { id: "lost", header: { parentSession: "/gone/2026_nowhere.jsonl" }, entries: [said(1, "x")] });
  const server = serveHere(["--no-session", "--events", "none"], { place });
  const { sessions } = await server.result("list_sessions");
  const forkedFrom = { sessionId: "parent", name: "The original" };
  expect(sessions.map((row: Json) => [row.sessionId, row.modified, row.forkedFrom])).toEqual([
    ["fork", timestamp, forkedFrom],
    ["other", "2026-01-24T17:30:00.000Z", undefined],
    ["parent", "2026-01-24T17:10:00.000Z", undefined],
    ["lost", "2026-01-24T17:01:00.000Z", undefined],
  ]);
  // The parent is found by its id when it is not where the fork's header says, and its new name is told.
  const moved = join(dirname(dirname(parent)), "--moved--", basename(parent));
  mkdirSync(dirname(moved));
  renameSync(parent, moved);
  expect((await server.result("list_sessions", { limit: 1 })).sessions[0].forkedFrom).toEqual(forkedFrom);
  appendFileSync(moved, `${JSON.stringify({ ...name, id: "m", timestamp, name: "Renamed" })}\n`);
  expect((await server.result("list_sessions", { limit: 1 })).sessions[0].forkedFrom.name).toBe("Renamed");
});

test("sorts by size and cost, page by page, and knows the cost from then on until the file changes", async () => {
  const place = temporaryPlace();
  const paid = (total: number): Json => ({
    ...assistant("x"),
    message: { role: "assistant", usage: { cost: { total } } },
  });
  const costs = [3, 0, 5, 1, 5, 2];
  const files = costs.map((cost, n) =>
    put(place, {
      id: `s${n}`,
      entries: [said(n, "x".repeat(1000 * ((n * 5) % 7))), ...(cost > 0 ? [paid(cost)] : [])],
    }),
  );
  const server = serveHere(["--no-session", "--events", "none"], { place });
  const pages = async (sort: string): Promise<Json[]> => {
    const seen: Json[] = [];
    let cursor: string | undefined;
    do {
      const reply = await server.result("list_sessions", { sort, limit: 2, cursor });
      seen.push(...reply.sessions);
      cursor = reply.nextCursor;
    } while (cursor !== undefined);
    return seen;
  };
  const bySize = await pages("size");
  const sizes = bySize.map(({ sizeBytes }) => sizeBytes);
  expect([bySize.length, sizes]).toEqual([6, [...sizes].sort((a, b) => b - a)]);
  expect(bySize.map(({ cost }) => cost)).toEqual(costs.map(() => undefined));
  expect((await pages("cost")).map(({ cost }) => cost)).toEqual([5, 5, 3, 2, 1, 0]);
  const { sessions } = await server.result("list_sessions", { sort: "name" });
  expect(sessions.map(({ cost }: Json) => cost).sort()).toEqual([0, 1, 2, 3, 5, 5]);
  appendFileSync(files[1], `${JSON.stringify({ ...paid(7), id: "later", parentId: null })}\n`);
  expect((await pages("cost")).map(({ cost }) => cost)).toEqual([7, 5, 5, 3, 2, 1]);
});

test("short ids tell sessions apart, archived ones among them, and only those with a name are listed if asked", async () => {
  const place = temporaryPlace();
  const id = (more: string): string => `01991f6e-1f1d-7c3e-b0a4-0242ac12000${more}`;
  const name = { type: "session_info", id: "n", parentId: null, name: "N" };
  put(place, { id: id("1"), entries: [said(1, "x")] });
  put(place, { id: id("2"), entries: [said(2, "x"), name] });
  put(place, { id: "01991f6e-2f1d-7c3e-b0a4-0242ac120003", entries: [said(3, "x")] });
  put(place, { id: "99999999-2f1d-7c3e-b0a4-0242ac120003", entries: [said(4, "x")] });
  put(place, { id: "short", entries: [said(5, "x")] });
  const server = serveHere(["--no-session", "--events", "none"], { place });
  const short = async (): Promise<string[]> =>
    (await server.result("list_sessions")).sessions.map(({ shortId }: Json) => shortId);
  expect(await short()).toEqual(["short", "99999999", "01991f6e-2", id("2"), id("1")]);
  await server.result("archive_session", { sessionId: id("2") });
  expect(await short()).toEqual(["short", "99999999", "01991f6e-2", id("1")]);
  await server.result("delete_session", { sessionId: id("2") });
  expect(await short()).toEqual(["short", "99999999", "01991f6e-2", "01991f6e-1"]);
  put(place, { id: id("2"), entries: [said(2, "x"), name] });
  expect(ids(await server.result("list_sessions", { named: true }))).toEqual([id("2")]);
});

test("a list is used again whatever progress token is sent with it", async () => {
  const library = temporaryLibrary();
  mkdirSync(join(library.root, "--p--"), { recursive: true });
  writeFileSync(join(library.root, "--p--", "a.jsonl"), sessionText({ id: "a" }, [said(1, "x")]));
  const catalog = catalogOn(library, { env: { ...realEnv, now: () => Date.now() + 60_000 } });
  const list = async (more: object): Promise<unknown> => (await catalog.list({ cwd: "/x", ...more })).found;
  const first = await list({ _meta: { progressToken: 1 } });
  expect(await list({ _meta: { progressToken: 2 } })).toBe(first);
  expect(await list({ query: "x" })).not.toBe(first);
});

test("pages hold together while sessions come, go and move", async () => {
  const place = temporaryPlace();
  const files = Array.from({ length: 30 }, (_, n) => put(place, { id: `s${n}`, entries: [said(n, "x")] }));
  const server = serveHere(["--no-session", "--events", "none"], { place });
  const seen: string[] = [];
  let cursor: string | undefined;
  for (let page = 0; ; page++) {
    const reply = await server.result("list_sessions", { limit: 7, cursor });
    seen.push(...ids(reply));
    expect(reply.total).toBe(30 + page - (page > 1 ? 1 : 0));
    cursor = reply.nextCursor;
    if (cursor === undefined) break;
    put(place, { id: `new${page}`, entries: [said(59, "x")] });
    // The one that the cursor stands on goes away.
    if (page === 1) unlinkSync(files[29 - 13]);
  }
  expect(seen).toEqual(files.map((_, n) => `s${29 - n}`));
  for (const bad of ["", "nonsense", "WyJjcmVhdGVkIiwxLCJ4Il0="]) {
    const { data } = await server.failure("list_sessions", { cursor: bad });
    expect(data.name).toBe("cursor_expired");
  }
  const { data } = await server.failure("list_sessions", { since: "soon" });
  expect(data.issues).toMatchObject([{ path: "since" }]);
});

test("a page ends early where the host takes only so much", async () => {
  const place = temporaryPlace();
  for (let n = 0; n < 20; n++) put(place, { id: `s${n}`, entries: [said(n, "long ".repeat(60))] });
  const server = serveHere(["--no-session", "--events", "none"], { place });
  await server.result("initialize", { maxReplyBytes: 3000 });
  const seen: string[] = [];
  let cursor: string | undefined;
  do {
    const reply = await server.result("list_sessions", { cursor });
    expect(reply.sessions.length).toBeGreaterThan(0);
    seen.push(...ids(reply));
    cursor = reply.nextCursor;
  } while (cursor !== undefined);
  expect(seen).toHaveLength(20);
});

test("what is no session, cannot be read or is damaged does not stand in the way", async () => {
  const place = temporaryPlace();
  const good = put(place, { id: "good", entries: [said(1, "x")] });
  const folder = join(good, "..");
  writeFileSync(join(folder, "empty.jsonl"), "");
  writeFileSync(join(folder, "text.jsonl"), "hello\nworld\n");
  writeFileSync(join(folder, "binary.jsonl"), Buffer.from([0, 255, 10, 0, 10]));
  writeFileSync(join(folder, ".hidden.jsonl"), "x");
  writeFileSync(join(folder, "backup.jsonl.v1.bak"), sessionText({ id: "backup" }, []));
  mkdirSync(join(folder, "folder.jsonl"));
  symlinkSync("loop.jsonl", join(folder, "loop.jsonl"));
  chmodSync(put(place, { id: "closed", entries: [] }), 0);
  const torn = put(place, { id: "torn", entries: [said(2, "first"), said(3, "second")] });
  appendFileSync(torn, '{"type":"message","id":"0000');
  const damaged = put(place, { id: "damaged", entries: [said(4, "first")] });
  appendFileSync(damaged, `\0\0\0\n[]\n1\n{"type":"message","message":null}\n${JSON.stringify(said(5, "last"))}`);
  copyFileSync(fileURLToPath(new URL("../../examples/old-v1.jsonl", import.meta.url)), join(folder, "v1.jsonl"));
  const reply = await list(place);
  expect(ids(reply).filter((id) => !/-/.test(id))).toEqual(["damaged", "torn", "good"]);
  expect(reply.sessions.find(({ sessionId }: Json) => sessionId === "damaged")).toMatchObject({ messageCount: 3 });
  expect(reply.total).toBe(4);
});

test("sees what this server has just appended, and a flat folder", async () => {
  const place = temporaryPlace();
  const folder = join(place.home, "flat");
  const server = serveHere(["--session-dir", folder, "--events", "none"], { place });
  expect((await server.result("list_sessions")).total).toBe(0);
  for (let n = 1; n < 5; n++) {
    server.send({ jsonrpc: "2.0", id: `a${n}`, method: "append", params: { entries: [user(`needle${n}`)] } });
    expect((await server.result("list_sessions")).sessions).toMatchObject([
      { messageCount: n, firstMessage: "needle1", cwd: place.cwd },
    ]);
    expect((await server.result("search_sessions", { query: `needle${n}` })).hits).toHaveLength(1);
  }
});

test("streams the sessions of a cold build that fit, as they are read", async () => {
  const place = temporaryPlace();
  for (let n = 0; n < 250; n++)
    put(place, { id: `s${n}`, cwd: `/home/me/${n % 2}`, entries: [said(n % 60, "x".repeat(900))] });
  const server = serveHere(["--no-session", "--events", "none"], { place });
  await server.result("initialize", { maxReplyBytes: 4096 });
  const { total } = await server.result("list_sessions", {
    _meta: { progressToken: 1 },
    cwd: "/home/me/1",
    stream: true,
    limit: 1,
  });
  const told = server.events.filter(({ method }) => method === "$/progress");
  const streamed = told.flatMap(({ params }) => params.value.sessions);
  expect(new Set(ids({ sessions: streamed })).size).toBe(125);
  expect([streamed.length, total]).toEqual([125, 125]);
  expect(streamed[0]).toMatchObject({ cwd: "/home/me/1", messageCount: 1 });
  for (const event of told) expect(JSON.stringify(event).length).toBeLessThanOrEqual(4096);
});

test("tells how far a cold build is, to those who ask, in either dialect", async () => {
  const place = temporaryPlace();
  for (let n = 0; n < 250; n++) put(place, { id: `s${n}`, entries: [said(n % 60, "x")] });
  const server = serveHere(["--no-session", "--events", "none"], { place });
  await server.result("list_sessions", { _meta: { progressToken: "mine" }, limit: 1 });
  const told = server.events.filter(({ method }) => method === "$/progress");
  expect(told.length).toBeGreaterThan(10);
  expect(told.at(-1)).toEqual({
    jsonrpc: "2.0",
    method: "$/progress",
    params: { token: "mine", value: { kind: "report", done: 250, total: 250 } },
  });
  const done = told.map(({ params }) => params.value.done);
  expect(done).toEqual([...done].sort((a, b) => a - b));
  server.events.length = 0;
  await server.result("list_sessions", { _meta: { progressToken: "mine" } });
  expect(server.events).toEqual([]);
  const other = temporaryPlace();
  for (let n = 0; n < 5; n++) put(other, { id: `s${n}`, entries: [said(n, "x")] });
  const pi = serveHere(["--no-session", "--mode", "rpc"], { place: other });
  expect((await pi.command("list_sessions", { _meta: { progressToken: 7 } })).data.total).toBe(5);
  expect(pi.events.at(-1)).toEqual({ type: "progress", token: 7, done: 5, total: 5 });
});

test("a list does not hold up the session", async () => {
  const place = temporaryPlace();
  for (let n = 0; n < 100; n++) put(place, { id: `s${n}`, entries: [said(n % 60, "x".repeat(20_000))] });
  const server = serveHere(["--no-session", "--events", "none"], { place });
  server.send(
    { jsonrpc: "2.0", id: "list", method: "list_sessions" },
    { jsonrpc: "2.0", id: "state", method: "get_state" },
  );
  expect((await server.next()).id).toBe("state");
  expect((await server.next()).id).toBe("list");
});

test("--continue opens the directory's session that was changed last, whatever the list's order", async () => {
  const place = temporaryPlace();
  const folder = `--${place.cwd.slice(1).replaceAll("/", "-")}--`;
  const files = [30, 50, 40].map((n) =>
    put(place, {
      id: `at${n}`,
      cwd: place.cwd,
      folder,
      entries: [said(n, "x"), { type: "custom", id: "c", parentId: null, customType: "x", data: "y".repeat(n * 3000) }],
    }),
  );
  put(place, { id: "other", cwd: `${place.cwd}-other`, folder, entries: [said(59, "x")] });
  for (const [i, seconds] of [2, 1, 3].entries()) utimesSync(files[i], seconds, seconds);
  const server = serveHere(["--continue", "--events", "none"], { place });
  expect(await server.result("get_state")).toMatchObject({ sessionId: "at40", sessionFile: files[2] });
  expect(ids(await server.result("list_sessions", { cwd: place.cwd }))).toEqual(["at50", "at40", "at30"]);
});

test("the program says nothing on stderr, and answers the same where there is no SQLite", SYSTEM, async () => {
  const place = temporaryPlace();
  for (let n = 0; n < 20; n++) put(place, { id: `s${n}`, entries: [said(n, `word${n % 3} x`)] });
  const ask = [
    { jsonrpc: "2.0", id: 1, method: "list_sessions" },
    { jsonrpc: "2.0", id: 2, method: "search_sessions", params: { query: "word1" } },
  ];
  const input = ask.map((request) => `${JSON.stringify(request)}\n`).join("");
  const args = ["--no-session", "--events", "none"];
  const { stdout, stderr, status } = await runProgram(input, args, place);
  expect([stderr, status]).toEqual(["", 0]);
  // A state folder that is a file takes no catalog.
  writeFileSync(join(place.home, "file"), "");
  const variables = { ...place.variables, PI_SESSION_SERVER_STATE_DIR: join(place.home, "file") };
  const without = await runProgram(input, args, { ...place, variables });
  expect([without.stderr, without.status]).toEqual(["", 0]);
  const replies = [stdout, without.stdout].map((text) =>
    text
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line)),
  );
  expect(replies[1][0]).toEqual(replies[0][0]);
  const entries = replies.map(([, { result }]) => result.hits.map(({ sessionId }: Json) => sessionId).sort());
  expect(entries[1]).toEqual(entries[0]);
  expect(entries[0]).toHaveLength(7);
});

test("quick tells at once what the directory's own folder has, whether or not the catalog knows it", async () => {
  const place = temporaryPlace();
  for (let n = 1; n < 6; n++) put(place, { id: `s${n}`, entries: [said(n, `first ${n}`)] });
  put(place, { id: "another", cwd: "/home/me/app-", entries: [said(9, "of a folder with the same name")] });
  put(place, { id: "empty" });
  put(place, { id: "elsewhere", folder: "--elsewhere--", entries: [said(8, "misplaced")] });
  const quick = { cwd: "/home/me/app", quick: true };
  const unknown = await list(place, quick);
  expect([ids(unknown), unknown.total, unknown.isPartial]).toEqual([["s5", "s4", "s3", "s2", "s1"], 5, true]);
  const whole = await list(place, { cwd: "/home/me/app" });
  expect([ids(whole), whole.isPartial]).toEqual([["elsewhere", ...ids(unknown)], undefined]);
  expect(await list(place, quick)).toEqual(unknown);
  const file = put(place, { id: "s3", entries: [said(3, "first 3"), said(40, "more")] });
  utimesSync(file, new Date(minute(50)), new Date(Date.now() + 5000));
  const newest = await list(place, { ...quick, limit: 1 });
  expect([ids(newest), newest.sessions[0].messageCount]).toEqual([["s3"], 2]);
  expect(ids(await list(place, { cwd: "/nowhere", quick: true }))).toEqual([]);
  const server = serveHere(["--no-session", "--events", "none"], { place });
  expect((await server.failure("list_sessions", { quick: true })).code).toBe(-32602);
});
