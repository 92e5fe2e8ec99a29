/** list_sessions at the wire: its items, their order, and the sessions it leaves out. */

import * as fs from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeEach, expect, test } from "vitest";
import { catalogOn, later, temporaryLibrary } from "../support/catalog.ts";
import { assistant, user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { indexTogether } from "../support/listing.ts";
import { forSeedsAsync } from "../support/random.ts";
import { everyPage, put as putEntries } from "../support/searching.ts";
import { type HereServer, type Json, type Place, runProgram, serveHere, temporaryPlace } from "../support/server.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";

const minute = (n: number): number => Date.UTC(2026, 0, 24, 17, n);

function said(n: number, text: string): Json {
  return {
    ...user(text, { id: `0000000${n % 10}`, parentId: null }),
    message: { role: "user", content: text, timestamp: minute(n) },
  };
}

let place: Place;

beforeEach(() => {
  place = temporaryPlace();
});

interface Made {
  readonly id: string;
  readonly cwd?: string | null;
  readonly entries?: readonly Json[];
  readonly header?: object;
}

function put({ id, cwd = "/home/me/app", entries = [], header = {} }: Made, at = place): string {
  return putEntries(at, id, entries, { cwd, ...header });
}

const ARGS = ["--no-session", "--events", "none"];

function serve(): HereServer {
  return serveHere(ARGS, { place });
}

async function list(params: object = {}): Promise<Json> {
  return serve().result("list_sessions", params);
}

const named = (name: string): Json => ({ type: "session_info", id: "n", parentId: null, name });

const ids = ({ sessions }: Json): string[] => sessions.map(({ sessionId }: Json) => sessionId);

test("tells of each session what its file tells, the last activity first", async () => {
  const entries = [said(1, "Hello\u2028there"), named(" Old "), assistant("Hi."), { ...named("New\n"), id: "c" }];
  const first = put({ id: "one", entries });
  put({ id: "two", header: { parentSession: first }, entries: [said(50, "")] });
  const { sessions, total, nextCursor } = await list();
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
  const files = [30, 10, 20].map((n) => put({ id: `at${n}`, entries: [said(n, "x")] }));
  for (const [i, file] of files.entries()) fs.utimesSync(file, 1e9 - i, 1e9 - i);
  // A later header, a label and a model change are no conversation; nor does an invalid time count.
  put({ id: "header", entries: [], header: { timestamp: "2027-01-01T00:00:00Z" } });
  const label = { type: "label", id: "l", parentId: null, timestamp: "2028-01-01T00:00:00Z" };
  put({ id: "label", entries: [said(5, "x"), label] });
  put({ id: "noTime", header: { timestamp: undefined }, entries: [{ ...user("x"), timestamp: "yesterday" }] });
  const odd = { type: "message", id: "m", parentId: null, timestamp: 7, message: { role: "user", timestamp: "8" } };
  put({ id: "odd", entries: [said(40, "x"), odd] });
  expect(ids(await list())).toEqual(["odd", "at30", "at20", "at10", "label", "noTime"]);
  expect(ids(await list({ headerOnly: true }))[0]).toBe("header");
  expect(ids(await list({ since: "2026-01-24T17:20:00Z" }))).toEqual(["odd", "at30", "at20"]);
});

test("working directories whose folders are the same are told apart", async () => {
  const cwds = ["/a/b-c", "/a-b/c", "/a/b/c", "/项目/数", "C:\\work", "c:\\work"];
  for (const cwd of [...cwds, null]) {
    const id = `in-${Buffer.from(cwd ?? "none").toString("hex")}`;
    put({ id, cwd, entries: [said(1, "x")] });
  }
  for (const cwd of cwds) expect((await list({ cwd })).sessions.map((session: Json) => session.cwd)).toEqual([cwd]);
  expect((await list({ cwd: "/a/b/c/" })).total).toBe(1);
  for (const cwd of ["/a", "/A/B/C", ""]) expect((await list({ cwd })).total).toBe(0);
  expect((await list()).total).toBe(7);
});

test("filters by name, words, parent and activity; sorts by creation and name", async () => {
  const day = (n: number, more: object = {}): object => ({ timestamp: `2026-01-0${n}T00:00:00Z`, ...more });
  const parent = put({ id: "parent", header: day(3), entries: [said(1, "Fix the LOGIN page"), named("Beta")] });
  const header = day(2, { parentSession: parent });
  put({ id: "child", header, entries: [said(3, "läuft"), named("alpha")] });
  const branchedFrom = "/moved/2026-01-24T16-22-26-831Z_parent.jsonl";
  put({ id: "rust", header: day(1, { branchedFrom }), entries: [said(2, "会议记录")] });
  for (const [params, found] of [
    [{ name: "BET" }, "parent"],
    [{ query: "login fix" }, "parent"],
    [{ query: "LÄUFT" }, "child"],
    [{ query: "议" }, "rust"],
    [{ query: "rust" }, "rust"],
    [{ parent }, "child rust"],
    [{ parent: "parent" }, "child rust"],
    [{ sort: "created" }, "parent child rust"],
    [{ sort: "name" }, "child parent rust"],
    [{ archived: true }, ""],
  ] as const)
    expect([params, ids(await list(params)).join(" ")]).toEqual([params, found]);
});

test("words find labels while they last, and sessions in which nothing was said", async () => {
  const labelled = (id: string, label?: string): object => ({
    ...{ type: "label", id, parentId: null, timestamp: "2026-01-24T18:00:00.000Z", targetId: "e", label },
  });
  const one = put({ id: "one", entries: [said(1, "x"), labelled("l", "Before the REFACTOR")] });
  put({
    id: "silent",
    entries: [{ type: "model_change", id: "m", parentId: null, timestamp: "2026-01-24T18:00:00.000Z" }],
  });
  put({ id: "named", entries: [named("(nothing else)")] });
  put({ id: "header", entries: [], cwd: "/home/me/quiet" });
  const found = async (query: string): Promise<string> =>
    ids(await list({ query, headerOnly: true }))
      .sort()
      .join(" ");
  expect(await found("before refactor")).toBe("one");
  expect(await found("(nothing said)")).toBe("header silent");
  expect(await found("said")).toBe("");
  expect(await found("quiet")).toBe("header");
  for (const [line, before, after] of [
    [labelled("n", "other"), "", "one"],
    [labelled("o"), "", ""],
  ] as const) {
    fs.appendFileSync(one, `${JSON.stringify(line)}\n`);
    expect([await found("refactor"), await found("other")]).toEqual([before, after]);
  }
});

test("a fork sorts as new, and is told from its original, wherever that lies", async () => {
  const name = named("The original");
  const parent = put({ id: "parent", entries: [said(10, "x"), name] });
  put({ id: "other", entries: [said(30, "y")] });
  const timestamp = "2026-01-24T18:00:00.000Z";
  put({ id: "fork", header: { parentSession: parent, timestamp }, entries: [said(10, "x")] });
  put({ id: "lost", header: { parentSession: "/gone/2026_nowhere.jsonl" }, entries: [said(1, "x")] });
  const server = serve();
  const { sessions } = await server.result("list_sessions");
  const forkedFrom = { sessionId: "parent", name: "The original" };
  const times = [timestamp, ...[30, 10, 1].map((n) => new Date(minute(n)).toISOString())];
  expect(ids({ sessions })).toEqual(["fork", "other", "parent", "lost"]);
  expect(sessions.map((row: Json) => row.modified)).toEqual(times);
  expect(sessions.map((row: Json) => row.forkedFrom)).toEqual([forkedFrom, undefined, undefined, undefined]);
  // The parent is found by its id when it is not where the fork's header says, and its new name is shown.
  const moved = join(dirname(dirname(parent)), "--moved--", basename(parent));
  fs.mkdirSync(dirname(moved));
  fs.renameSync(parent, moved);
  const origin = async (): Promise<Json> => (await server.result("list_sessions", { limit: 1 })).sessions[0].forkedFrom;
  expect(await origin()).toEqual(forkedFrom);
  fs.appendFileSync(moved, `${JSON.stringify({ ...name, id: "m", timestamp, name: "Renamed" })}\n`);
  expect((await origin()).name).toBe("Renamed");
});

test("sorts by size and cost, page by page, and knows the cost from then on until the file changes", async () => {
  const paid = (total: number): Json => {
    return { ...assistant("x"), message: { role: "assistant", usage: { cost: { total } } } };
  };
  const costs = [3, 0, 5, 1, 5, 2];
  const files = costs.map((cost, n) => {
    const entries = [said(n, "x".repeat(1000 * ((n * 5) % 7))), ...(cost > 0 ? [paid(cost)] : [])];
    return put({ id: `s${n}`, entries });
  });
  const server = serve();
  const pages = (sort: string): Promise<Json[]> => everyPage(server, "list_sessions", { sort, limit: 2 }, "sessions");
  const bySize = await pages("size");
  const sizes = bySize.map(({ sizeBytes }) => sizeBytes);
  expect([bySize.length, sizes]).toEqual([6, [...sizes].sort((a, b) => b - a)]);
  expect(bySize.map(({ cost }) => cost)).toEqual(costs.map(() => undefined));
  expect((await pages("cost")).map(({ cost }) => cost)).toEqual([5, 5, 3, 2, 1, 0]);
  const { sessions } = await server.result("list_sessions", { sort: "name" });
  expect(sessions.map(({ cost }: Json) => cost).sort()).toEqual([0, 1, 2, 3, 5, 5]);
  fs.appendFileSync(files[1], `${JSON.stringify({ ...paid(7), id: "later", parentId: null })}\n`);
  expect((await pages("cost")).map(({ cost }) => cost)).toEqual([7, 5, 5, 3, 2, 1]);
});

test("a cost is known only if it is 0 without tokens, or a part of it has a price", async () => {
  const spent = (input: number, total: number): Json => {
    return { ...assistant("x"), message: { role: "assistant", usage: { input, cost: { total } } } };
  };
  put({ id: "unknown", entries: [spent(9, 0)] });
  put({ id: "free", entries: [said(1, "x")] });
  put({ id: "partly", entries: [{ ...spent(9, 0), id: "aaaa0001" }, spent(9, 2)] });
  const server = serve();
  const sort = "cost";
  const costs = (sessions: Json[]): unknown[] => sessions.map(({ sessionId, cost }) => [sessionId, cost]);
  const expected = [
    ["partly", 2],
    ["free", 0],
    ["unknown", undefined],
  ];
  expect(costs((await server.result("list_sessions", { sort })).sessions)).toEqual(expected);
  expect(costs(await everyPage(server, "list_sessions", { sort, limit: 1 }, "sessions"))).toEqual(expected);
});

test("short ids tell sessions apart, archived ones among them, and only those with a name are listed if asked", async () => {
  const id = (more: string): string => `01991f6e-1f1d-7c3e-b0a4-0242ac12000${more}`;
  const name = named("N");
  put({ id: id("1"), entries: [said(1, "x")] });
  put({ id: id("2"), entries: [said(2, "x"), name] });
  put({ id: "01991f6e-2f1d-7c3e-b0a4-0242ac120003", entries: [said(3, "x")] });
  put({ id: "99999999-2f1d-7c3e-b0a4-0242ac120003", entries: [said(4, "x")] });
  put({ id: "short", entries: [said(5, "x")] });
  const server = serve();
  const short = async (): Promise<string[]> =>
    (await server.result("list_sessions")).sessions.map(({ shortId }: Json) => shortId);
  expect(await short()).toEqual(["short", "99999999", "01991f6e-2", id("2"), id("1")]);
  await server.result("archive_session", { sessionId: id("2") });
  expect(await short()).toEqual(["short", "99999999", "01991f6e-2", id("1")]);
  await server.result("delete_session", { sessionId: id("2") });
  expect(await short()).toEqual(["short", "99999999", "01991f6e-2", "01991f6e-1"]);
  put({ id: id("2"), entries: [said(2, "x"), name] });
  expect(ids(await server.result("list_sessions", { named: true }))).toEqual([id("2")]);
});

test("a list is used again whatever progress token is sent with it", async () => {
  const library = temporaryLibrary();
  fs.mkdirSync(join(library.root, "--p--"), { recursive: true });
  fs.writeFileSync(join(library.root, "--p--", "a.jsonl"), sessionText({ id: "a" }, [said(1, "x")]));
  const catalog = catalogOn(library, { env: later });
  const list = async (more: object): Promise<unknown> => (await catalog.list({ cwd: "/x", ...more })).found;
  const first = await list({ _meta: { progressToken: 1 } });
  expect(await list({ _meta: { progressToken: 2 } })).toBe(first);
  expect(await list({ query: "x" })).not.toBe(first);
});

test("pages hold together while sessions come, go and move", async () => {
  const files = Array.from({ length: 30 }, (_, n) => put({ id: `s${n}`, entries: [said(n, "x")] }));
  const server = serve();
  const seen: string[] = [];
  let cursor: string | undefined;
  for (let page = 0; ; page++) {
    const reply = await server.result("list_sessions", { limit: 7, cursor });
    seen.push(...ids(reply));
    expect(reply.total).toBe(30 + page - (page > 1 ? 1 : 0));
    cursor = reply.nextCursor;
    if (cursor === undefined) break;
    put({ id: `new${page}`, entries: [said(59, "x")] });
    // The one that the cursor stands on goes away.
    if (page === 1) fs.unlinkSync(files[29 - 13]);
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
  for (let n = 0; n < 20; n++) put({ id: `s${n}`, entries: [said(n, "long ".repeat(60))] });
  const server = serve();
  await server.result("initialize", { maxReplyBytes: 3000 });
  expect(await everyPage(server, "list_sessions", {}, "sessions")).toHaveLength(20);
  expect((await server.result("list_sessions", {})).sessions.length).toBeLessThan(20);
});

test("what is no session, cannot be read or is damaged does not stand in the way", async () => {
  const good = put({ id: "good", entries: [said(1, "x")] });
  const folder = join(good, "..");
  fs.writeFileSync(join(folder, "empty.jsonl"), "");
  fs.writeFileSync(join(folder, "text.jsonl"), "hello\nworld\n");
  fs.writeFileSync(join(folder, "binary.jsonl"), Buffer.from([0, 255, 10, 0, 10]));
  fs.writeFileSync(join(folder, ".hidden.jsonl"), "x");
  fs.writeFileSync(join(folder, "backup.jsonl.v1.bak"), sessionText({ id: "backup" }, []));
  fs.mkdirSync(join(folder, "folder.jsonl"));
  fs.symlinkSync("loop.jsonl", join(folder, "loop.jsonl"));
  fs.chmodSync(put({ id: "closed", entries: [] }), 0);
  const torn = put({ id: "torn", entries: [said(2, "first"), said(3, "second")] });
  fs.appendFileSync(torn, '{"type":"message","id":"0000');
  const damaged = put({ id: "damaged", entries: [said(4, "first")] });
  fs.appendFileSync(damaged, `\0\0\0\n[]\n1\n{"type":"message","message":null}\n${JSON.stringify(said(5, "last"))}`);
  fs.copyFileSync(fileURLToPath(new URL("../../examples/old-v1.jsonl", import.meta.url)), join(folder, "v1.jsonl"));
  const reply = await list();
  expect(ids(reply).filter((id) => !/-/.test(id))).toEqual(["damaged", "torn", "good"]);
  expect(reply.sessions.find(({ sessionId }: Json) => sessionId === "damaged")).toMatchObject({ messageCount: 3 });
  expect(reply.total).toBe(4);
  const { text } = reply.notRead.find(({ path }: Json) => path.endsWith("text.jsonl"));
  expect(text).toMatch(/ Restore it from a backup, or move it elsewhere\.$/);
});

test("a session that branched at every second entry is listed as quickly as another, damaged or not", async () => {
  const idOf = (n: number): string => (0x10000000 + n).toString(16);
  const parentOf = (n: number): string | null => (n < 2 ? null : idOf(2 * Math.ceil(n / 2) - 2));
  const entries = Array.from({ length: 100_000 }, (_, n) => ({ ...user("x"), id: idOf(n), parentId: parentOf(n) }));
  put({ id: "branched", entries });
  put({ id: "circle", entries: [...entries.slice(0, -1), { ...user("x"), id: idOf(99_999), parentId: idOf(99_999) }] });
  const { sessions } = await list();
  const marks = sessions.map((session: Json) => [session.sessionId, session.messageCount, session.isDamaged ?? false]);
  expect(marks.sort()).toEqual([
    ["branched", 100_000, false],
    ["circle", 100_000, true],
  ]);
});

test("sees what this server has just appended, and a flat folder", async () => {
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
  for (let n = 0; n < 250; n++)
    put({ id: `s${n}`, cwd: `/home/me/${n % 2}`, entries: [said(n % 60, "x".repeat(900))] });
  const server = serve();
  await server.result("initialize", { maxReplyBytes: 4096 });
  const { total } = await server.result("list_sessions", {
    _meta: { progressToken: 1 },
    cwd: "/home/me/1",
    stream: true,
    limit: 1,
  });
  const progress = server.events.filter(({ method }) => method === "$/progress");
  const streamed = progress.flatMap(({ params }) => params.value.sessions);
  expect(new Set(ids({ sessions: streamed })).size).toBe(125);
  expect([streamed.length, total]).toEqual([125, 125]);
  expect(streamed[0]).toMatchObject({ cwd: "/home/me/1", messageCount: 1 });
  for (const event of progress) expect(JSON.stringify(event).length).toBeLessThanOrEqual(4096);
});

test("tells how far a cold build is, to those who ask, in either dialect", async () => {
  for (let n = 0; n < 250; n++) put({ id: `s${n}`, entries: [said(n % 60, "x")] });
  const server = serve();
  await server.result("list_sessions", { _meta: { progressToken: "mine" }, limit: 1 });
  const progress = server.events.filter(({ method }) => method === "$/progress");
  expect(progress.length).toBeGreaterThan(10);
  expect(progress.at(-1)).toEqual({
    jsonrpc: "2.0",
    method: "$/progress",
    params: { token: "mine", value: { kind: "report", done: 250, total: 250 } },
  });
  const done = progress.map(({ params }) => params.value.done);
  expect(done).toEqual([...done].sort((a, b) => a - b));
  server.events.length = 0;
  await server.result("list_sessions", { _meta: { progressToken: "mine" } });
  expect(server.events).toEqual([]);
  const other = temporaryPlace();
  for (let n = 0; n < 5; n++) put({ id: `s${n}`, entries: [said(n, "x")] }, other);
  const pi = serveHere(["--no-session", "--mode", "rpc"], { place: other });
  expect((await pi.command("list_sessions", { _meta: { progressToken: 7 } })).data.total).toBe(5);
  expect(pi.events.at(-1)).toEqual({ type: "progress", token: 7, done: 5, total: 5 });
});

test("a list does not hold up the session", async () => {
  for (let n = 0; n < 100; n++) put({ id: `s${n}`, entries: [said(n % 60, "x".repeat(20_000))] });
  const server = serve();
  server.send(
    { jsonrpc: "2.0", id: "list", method: "list_sessions" },
    { jsonrpc: "2.0", id: "state", method: "get_state" },
  );
  expect((await server.next()).id).toBe("state");
  expect((await server.next()).id).toBe("list");
});

test("the program says nothing on stderr, and answers the same where there is no SQLite", SYSTEM, async () => {
  for (let n = 0; n < 20; n++) put({ id: `s${n}`, entries: [said(n, `word${n % 3} x`)] });
  const ask = [
    { jsonrpc: "2.0", id: 1, method: "list_sessions" },
    { jsonrpc: "2.0", id: 2, method: "search_sessions", params: { query: "word1" } },
  ];
  const input = ask.map((request) => `${JSON.stringify(request)}\n`).join("");
  const answers = async (more: object): Promise<Json[]> => {
    const { stdout, stderr, status } = await runProgram(input, ARGS, { ...place, ...more });
    expect([stderr, status]).toEqual(["", 0]);
    return stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
  };
  // A state folder that is a file takes no catalog.
  fs.writeFileSync(join(place.home, "file"), "");
  const variables = { ...place.variables, PI_SESSION_SERVER_STATE_DIR: join(place.home, "file") };
  const replies = [await answers({}), await answers({ variables })];
  expect(replies[1][0]).toEqual(replies[0][0]);
  const found = replies.map(([, { result }]) => result.hits.map(({ sessionId }: Json) => sessionId).sort());
  expect(found[1]).toEqual(found[0]);
  expect(found[0]).toHaveLength(7);
});

test("quick tells at once what the directory's own folder has, whether or not the catalog knows it", async () => {
  for (let n = 1; n < 6; n++) put({ id: `s${n}`, entries: [said(n, `first ${n}`)] });
  put({ id: "another", cwd: "/home/me/app-", entries: [said(9, "of a folder with the same name")] });
  put({ id: "empty" });
  const misplaced = put({ id: "elsewhere", entries: [said(8, "misplaced")] });
  fs.mkdirSync(join(dirname(misplaced), "../--elsewhere--"));
  fs.renameSync(misplaced, join(dirname(misplaced), "../--elsewhere--", basename(misplaced)));
  const quick = { cwd: "/home/me/app", quick: true };
  const unknown = await list(quick);
  expect([ids(unknown), unknown.total, unknown.isPartial]).toEqual([["s5", "s4", "s3", "s2", "s1"], 5, true]);
  const whole = await list({ cwd: "/home/me/app" });
  expect([ids(whole), whole.isPartial]).toEqual([["elsewhere", ...ids(unknown)], undefined]);
  expect(await list(quick)).toEqual(unknown);
  const file = put({ id: "s3", entries: [said(3, "first 3"), said(40, "more")] });
  fs.utimesSync(file, new Date(minute(50)), new Date(Date.now() + 5000));
  const newest = await list({ ...quick, limit: 1 });
  expect([ids(newest), newest.sessions[0].messageCount]).toEqual([["s3"], 2]);
  expect(ids(await list({ cwd: "/nowhere", quick: true }))).toEqual([]);
  const server = serve();
  expect((await server.failure("list_sessions", { quick: true })).code).toBe(-32602);
});

test("4 processes index and list at once: no row is lost, nobody sees an error", SWEEP, async () => {
  await forSeedsAsync(1, (random) => indexTogether(random, 4, 40, 2));
});
