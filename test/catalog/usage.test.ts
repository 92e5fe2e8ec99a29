/** get_usage at the wire: the costs of sessions, their groups, and the reported gaps. */

import { appendFileSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { findSqlite } from "../../src/storage/fs/sqlite.ts";
import { letRest } from "../support/cases.ts";
import { catalogOn, type Library, later, temporaryLibrary, withoutSqlite } from "../support/catalog.ts";
import { sessionText } from "../support/example.ts";
import { needs, SQLITE } from "../support/needs.ts";
import { forSeedsAsync, type Random } from "../support/random.ts";
import { put as putEntries } from "../support/searching.ts";
import { type HereServer, type Json, type Place, serveHere, temporaryPlace } from "../support/server.ts";

const at = (text: string): number => Date.parse(text);

let entries = 0;

const TIME = "2026-01-02T00:00:00Z";

/** An answer of a model at a time, with tokens and a cost. */
function answer(time: string | number, input: unknown, total: unknown, more: object = {}): Json {
  const timestamp = typeof time === "string" ? at(time) : time;
  const usage = { input, output: 1, cacheRead: 0, cacheWrite: 0, ...(total === undefined ? {} : { cost: { total } }) };
  const message = { role: "assistant", content: [], provider: "p", model: "m", usage, timestamp, ...more };
  return { type: "message", id: (++entries).toString(16).padStart(8, "0"), parentId: null, message };
}

/** An answer whose entry has its time, too. */
function dated(time: string, input: number, total: number): Json {
  return { ...answer(time, input, total), timestamp: time };
}

interface Made {
  readonly id: string;
  readonly cwd?: string;
  readonly header?: object;
  readonly entries?: readonly Json[];
  readonly text?: string;
}

let place: Place;

beforeEach(() => {
  place = temporaryPlace();
});

function put({ id, cwd = "/home/me/app", header = {}, entries = [], text }: Made): string {
  const file = putEntries(place, id, entries, { cwd, timestamp: "2026-01-01T00:00:00.000Z", ...header });
  if (text !== undefined) writeFileSync(file, text);
  return file;
}

function serve(): HereServer {
  return serveHere(["--no-session", "--events", "none"], { place });
}

function usage(params: object = {}): Promise<Json> {
  return serve().result("get_usage", { timeZone: "UTC", ...params });
}

/** Rows as texts: members that are named, and the cost. */
const costs = ({ rows }: Json, ...names: string[]): string[] =>
  rows.map((row: Json) => [...names, "cost"].map((name) => `${row[name]}`).join(" "));

describe("what is summed", () => {
  function fill(): void {
    const late = answer("2026-01-02T23:59:59.999Z", 10, 2, { model: "n" });
    const [first, last] = [answer("2026-01-02T10:00:00Z", 100, 1), answer("2026-01-03T00:00:00Z", 1, 4)];
    put({ id: "one", entries: [first, late, last] });
    put({ id: "two", cwd: "/home/me/other", entries: [answer("2026-01-02T12:00:00Z", 1000, 8)] });
  }

  test.each<[string, string, string]>([
    ["day", "day", "2026-01-03 4, 2026-01-02 11"],
    ["model", "provider model", "p m 13, p n 2"],
    ["cwd", "cwd", "/home/me/other 8, /home/me/app 7"],
    ["session", "sessionId shortId cwd", "two two /home/me/other 8, one one /home/me/app 7"],
    ["model day", "day model", "2026-01-03 m 4, 2026-01-02 m 9, 2026-01-02 n 2"],
  ])("by %s", async (groupBy, names, rows) => {
    fill();
    const found = await usage({ groupBy: groupBy.split(" ") });
    expect(costs(found, ...names.split(" ")).join(", ")).toBe(rows);
  });

  test("by nothing: all together", async () => {
    fill();
    const { rows, totals } = await usage({ groupBy: [] });
    const { sessions, ...sums } = totals;
    expect([rows, sessions]).toEqual([[sums], 2]);
    const none = { messages: 0, tokens: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 }, cost: 0 };
    const tokens = { input: 1111, output: 4, cacheRead: 0, cacheWrite: 0, total: 1115 };
    expect(sums).toEqual({ messages: 4, tokens, cost: 15, unpricedMessages: 0, inherited: none });
  });

  test.each([
    [4, { since: "2026-01-03T00:00:00Z" }],
    [11, { until: "2026-01-03T00:00:00Z" }],
    [8, { since: "2026-01-02T11:00:00Z", until: "2026-01-02T23:00:00Z" }],
    [7, { cwd: "/home/me/app" }],
    [0, { cwd: "/home/me" }],
    [0, { since: "2027-01-01T00:00:00Z" }],
  ])("%i of %j", async (cost, params) => {
    fill();
    expect((await usage(params)).totals.cost).toBe(cost);
  });

  test("by the days of a time zone, across its change of the clock", async () => {
    // Midnight in New York, where the clock goes forward on 8 March 2026, and in Kathmandu, at a quarter.
    const times = ["2026-03-08T04:59:00Z", "2026-03-08T05:00:00Z", "2026-03-09T03:59:00Z", "2026-03-09T04:00:00Z"];
    put({ id: "one", entries: times.map((time, n) => answer(time, 1, 2 ** n)) });
    const days = async (timeZone: string): Promise<string[]> => costs(await usage({ timeZone }), "day");
    expect(await days("America/New_York")).toEqual(["2026-03-09 8", "2026-03-08 6", "2026-03-07 1"]);
    put({ id: "one", entries: [answer("2026-03-08T18:14:59Z", 1, 1), answer("2026-03-08T18:15:00Z", 1, 2)] });
    expect(await days("Asia/Kathmandu")).toEqual(["2026-03-09 2", "2026-03-08 1"]);
    const { error } = await serve().request("get_usage", { timeZone: "Mars/Olympus" });
    expect([error.code, error.message]).toEqual([-32602, expect.stringContaining("Europe/Berlin")]);
  });

  test("usage of summaries, tools and entries of their own; a total without its parts", async () => {
    const timestamp = "2026-01-05T00:00:00Z";
    const own = (type: string, cost: number): Json => {
      const { message, ...entry } = answer(timestamp, 5, cost);
      return { ...entry, type, timestamp, usage: message.usage };
    };
    const tool = answer(timestamp, 5, 8, { role: "toolResult", model: undefined, provider: undefined });
    const [content, spent] = ['a user\'s "usage": {"cost": {"total": 99}}', { cost: { total: 99 } }];
    const said = { type: "message", id: "eeeeeeee", parentId: null, message: { role: "user", content, usage: spent } };
    const total = answer(timestamp, 0, 16, { usage: { totalTokens: 7, cost: { total: 16 } } });
    const title = { ...own("usage", 4), provider: "q", model: "title" };
    const entries = [own("compaction", 1), own("branch_summary", 2), title, tool, own("custom", 99), said, total];
    put({ id: "one", entries });
    const { rows, totals } = await usage({ groupBy: ["model"] });
    expect(costs({ rows }, "provider", "model")).toEqual(["p m 16", "null null 11", "q title 4"]);
    expect([totals.messages, totals.tokens.total]).toEqual([1, 31]);
  });
});

/** Returns the first entries of an original, which a fork of it takes over. */
function begun(): Json[] {
  const time = "2026-01-02T01:00:00.000Z";
  return [answer(TIME, 100, 1), answer(time, 100, 2)].map((entry) => ({ ...entry, timestamp: time }));
}

test("what a fork took over counts in its original only, as get_session_stats has it", async () => {
  const taken = begun();
  const parentSession = put({ id: "original", entries: taken });
  const header = { parentSession, timestamp: "2026-01-03T00:00:00.000Z" };
  // A host may give its own entries any time.
  const [late, old] = [dated("2026-01-03T01:00:00.000Z", 10, 4), dated("2026-01-01T01:00:00.000Z", 10, 8)];
  const fork = put({ id: "fork", header, entries: [...taken, late, old] });
  const server = serve();
  const { rows, totals } = await server.result("get_usage", { groupBy: ["session"] });
  expect(rows).toMatchObject([
    { sessionId: "fork", cost: 12, messages: 2, inherited: { cost: 3, messages: 2, tokens: { input: 200 } } },
    { sessionId: "original", cost: 3, messages: 2, inherited: { cost: 0, messages: 0 } },
  ]);
  expect(totals).toMatchObject({ cost: 15, inherited: { cost: 3 } });
  await server.result("switch_session", { sessionPath: fork });
  const { own, inherited } = await server.result("get_session_stats");
  expect([own.cost, inherited.cost, own.tokens]).toEqual([rows[0].cost, rows[0].inherited.cost, rows[0].tokens]);
});

test("unknown prices are counted and named, and absurd figures break no sum", async () => {
  const odd = [Number.NaN, -5, 1e308, "7", null, {}, [1], true];
  const local = { provider: "ollama", model: "llama" };
  const entries = [
    answer(TIME, 100, 1),
    ...odd.map((value) => answer(TIME, value, value, { model: "odd" })),
    ...[0, undefined].map((cost) => answer(TIME, 50, cost, local)),
    ...[undefined, "much"].map((usage) => answer(TIME, 0, undefined, { ...local, usage })),
    answer(TIME, 5, 1, { model: 7, provider: { a: 1 } }),
    answer(TIME, 5, 1, { model: "constructor", provider: "__proto__" }),
  ];
  put({ id: "one", entries });
  // Infinity is no JSON, but a number that is read as it is.
  const wild = sessionText({ id: "wild" }, [answer(TIME, "BIG", "BIG")]).replaceAll('"BIG"', "1e999");
  put({ id: "wild", text: wild });
  const { totals, unpricedModels } = await usage();
  expect([totals.cost, totals.tokens.input, totals.unpricedMessages]).toEqual([3, 210, 11]);
  const unpriced = unpricedModels.map(({ provider, model, messages }: Json) => `${provider} ${model} ${messages}`);
  expect(unpriced).toEqual(["p odd 8", "ollama llama 2", "p m 1"]);
  const models = costs(await usage({ groupBy: ["model"] }), "provider", "model");
  expect(models.slice(0, 3)).toEqual(expect.arrayContaining(["__proto__ constructor 1", "null null 1"]));
});

test("a time that is none is that of the session, and without any the day is not known", async () => {
  const odd = [1e300, -1e300, Number.NaN, "soon", 8.64e15];
  put({ id: "dated", entries: odd.map((timestamp) => ({ ...answer(0, 1, 1, { timestamp }), timestamp: "x" })) });
  const undated = [{ ...answer(1e300, 1, 2), timestamp: "x" }];
  put({ id: "undated", header: { timestamp: undefined }, entries: undated });
  expect(costs(await usage(), "day")).toEqual(["2026-01-01 5", "null 2"]);
  expect((await usage({ since: "2020-01-01T00:00:00Z" })).totals.cost).toBe(5);
});

test("archived sessions count when they are asked for, and are told of when not", async () => {
  for (const [n, id] of ["one", "two"].entries()) put({ id, entries: [answer(TIME, 1, n + 1)] });
  const server = serve();
  expect((await server.result("get_usage")).totals.cost).toBe(3);
  await server.result("archive_session", { sessionId: "two" });
  expect(await server.result("get_usage")).toMatchObject({ totals: { cost: 1 }, archivedLeftOut: 1 });
  expect((await server.result("get_usage", { cwd: "/elsewhere" })).archivedLeftOut).toBe(0);
  const both = await server.result("get_usage", { archived: true, groupBy: ["session"] });
  expect(both).toMatchObject({ totals: { cost: 3 }, archivedLeftOut: 0 });
  expect(costs(both, "sessionId", "archived")).toEqual(["two true 2", "one false 1"]);
});

test("damage is named, and what is whole counts", async () => {
  const entries = [1, 2, 4].map((cost) => answer(TIME, 1, cost));
  const lines = sessionText({ id: "cut", cwd: "/a" }, entries).split("\n");
  const cut = lines[2].slice(0, -10);
  // A torn end, as a crash leaves it, is no damage: the next append removes it.
  put({ id: "cut", text: [lines[0], lines[1], cut, lines[3], cut].join("\n") });
  put({ id: "binary", text: `${sessionText({ id: "binary" }, [answer(TIME, 1, 8)])}\u0000\u0001\n{}\n[]\n\n` });
  put({ id: "whole", text: `\ufeff${sessionText({ id: "whole" }, [answer(TIME, 1, 16)]).trimEnd()}` });
  const { totals, incomplete, incompleteCount } = await usage();
  expect([totals.cost, incompleteCount]).toEqual([29, 2]);
  const partial = (id: string, damagedLines: number): object => {
    return { sessionPath: expect.stringContaining(id), sessionId: id, shortId: id, name: null, damagedLines };
  };
  expect(incomplete).toEqual([partial("binary", 2), partial("cut", 1)]);
});

test("pages go on where they ended, whatever was spent meanwhile", async () => {
  for (let n = 0; n < 9; n++) put({ id: `s${n}`, entries: [answer(TIME, 1, 1 + (n % 3))] });
  const server = serve();
  const page = (cursor?: string) => server.result("get_usage", { groupBy: ["session"], limit: 2, cursor });
  const seen: string[] = [];
  let reply = await page();
  expect(reply.total).toBe(9);
  for (;;) {
    seen.push(...reply.rows.map(({ sessionId }: Json) => sessionId));
    if (reply.nextCursor === undefined) break;
    // One that was seen becomes the dearest, and one that was not is added before the cursor.
    if (seen.length === 4) put({ id: "new", entries: [answer(TIME, 1, 50)] });
    reply = await page(reply.nextCursor);
  }
  expect([...seen].sort()).toEqual(Array.from({ length: 9 }, (_, n) => `s${n}`));
  expect(seen.map((id) => Number(id.slice(1)) % 3)).toEqual([2, 2, 2, 1, 1, 1, 0, 0, 0]);
  const { nextCursor } = await page();
  const other = { groupBy: ["day"], cursor: nextCursor };
  for (const params of [other, ...["x", btoa("[]")].map((cursor) => ({ groupBy: ["session"], cursor }))])
    expect((await server.failure("get_usage", params)).data.name).toBe("cursor_expired");
});

test("tells how far the first count is", async () => {
  for (let n = 0; n < 60; n++) put({ id: `s${n}`, entries: [answer(TIME, 1, 1)] });
  const server = serve();
  await server.result("list_sessions");
  for (const steps of [[{ kind: "report", done: 60, total: 60 }], []]) {
    server.events.length = 0;
    await server.result("get_usage", { _meta: { progressToken: 1 } });
    const progress = server.events.filter(({ method }) => method === "$/progress");
    expect(progress.slice(-1).map(({ params }) => params.value)).toEqual(steps);
  }
});

test("sessions in containers and in files of the same entries spent the same", async () => {
  const id = "01991f6e-1f1d-7c3e-b0a4-0242ac120009";
  const entries = [answer(TIME, 1, 1), answer("2026-01-03T00:00:00Z", 10, 2, { model: "n" })];
  const file = put({ id, entries });
  const before = await usage({ groupBy: ["day", "model"] });
  letRest(file);
  const server = serve();
  await server.result("migrate_session", { sessionPath: file, dryRun: false });
  const after = await server.result("get_usage", { groupBy: ["day", "model"], timeZone: "UTC" });
  expect(after.rows).toEqual(before.rows);
  const [{ sessionPath, store }] = (await server.result("list_sessions", { sort: "cost" })).sessions;
  expect([store, sessionPath]).toEqual(["v2", expect.stringMatching(/\.v2$/)]);
  await server.result("open_session", { sessionPath });
  await server.result("append", { sessionId: id, entries: [answer("2026-01-04T00:00:00Z", 100, 4)] });
  const days = costs(await server.result("get_usage", { timeZone: "UTC" }), "day");
  expect(days).toEqual(["2026-01-04 4", "2026-01-03 2", "2026-01-02 1"]);
});

// --- kept up to the files --------------------------------------------------------------------------------------------

/** Sums the files, by plain loops. */
function costsOf(library: Library, ids: readonly string[]): Map<string, number> {
  return new Map(
    ids.map((id) => {
      const lines = readFileSync(fileIn(library, id), "utf8").split("\n").filter(Boolean);
      const cost = lines.map((line) => JSON.parse(line).message?.usage?.cost.total ?? 0);
      return [id, cost.reduce((sum, one) => sum + one, 0)];
    }),
  );
}

function fileIn({ root }: Library, id: string): string {
  return join(root, "--p--", `2026-01-24T16-22-26-831Z_${id}.jsonl`);
}

/** A library with one session, which has rested, of so many answers that cost 1 each. */
function libraryOf(id: string, count = 1, header: object = {}, entries?: Json[]): { library: Library; file: string } {
  const library = temporaryLibrary();
  mkdirSync(join(library.root, "--p--"), { recursive: true });
  const file = fileIn(library, id);
  const said = entries ?? Array.from({ length: count }, () => answer(TIME, 1, 1));
  writeFileSync(file, sessionText({ id, cwd: "/p", ...header }, said));
  letRest(file);
  return { library, file };
}

const ALL = { groupBy: [], dayOf: () => 0 };

function randomText(random: Random, id: string): string {
  const said = Array.from({ length: random.int(5) }, () =>
    answer(at("2026-01-02") + random.int(1e9), 1, random.int(9)),
  );
  return sessionText({ id, cwd: "/p" }, said);
}

async function countedBy(catalog: ReturnType<typeof catalogOn>): Promise<Map<string, number>> {
  const { rows } = await catalog.usage({ groupBy: ["session"], dayOf: () => 0 });
  const list = await catalog.list({ headerOnly: true });
  const spent = Array.from({ length: rows.count }, (_, i) => rows.row(i));
  const byId = new Map(list.found.map(({ id }) => [id, 0]));
  for (const { session, cost } of spent) byId.set(session?.id ?? "", cost);
  // The list knows what the usage knew.
  for (const { id, cost } of list.found) expect([byId.get(id), undefined]).toContain(cost);
  return byId;
}

describe.each([
  ["with SQLite", {}],
  ["without SQLite", withoutSqlite],
  ["with folders that are watched", { watchFrom: 1 }],
])("files that grow, shrink, are rewritten, moved and removed: %s", (_name, options) => {
  test("are counted as they are, by who saw them before and by who did not", async () => {
    await forSeedsAsync(2, async (random) => {
      const library = temporaryLibrary();
      mkdirSync(join(library.root, "--p--"), { recursive: true });
      const catalog = catalogOn(library, options);
      const ids = ["a", "b", "c", "d"];
      for (const id of ids) writeFileSync(fileIn(library, id), randomText(random, id));
      for (let step = 0; step < 8; step++) {
        const expected = costsOf(library, ids);
        expect(await countedBy(catalog)).toEqual(expected);
        if (step % 3 === 2) expect(await countedBy(catalogOn(library, options))).toEqual(expected);
        const id = random.pick(ids);
        const file = fileIn(library, id);
        const [, ...more] = randomText(random, id).split("\n");
        const end = readFileSync(file, "utf8").endsWith("\n") ? "" : "\n";
        random.pick([
          () => appendFileSync(file, `${end}${more.join("\n")}`),
          () => appendFileSync(file, `${end}${more.join("\n")}`),
          // A last line without its line feed, which the next append goes on after.
          () => appendFileSync(file, `${end}${JSON.stringify(answer(at("2026-01-05"), 1, 100))}`),
          () => writeFileSync(file, randomText(random, id)),
          () => {
            const [other, text] = [`e${step}`, readFileSync(file, "utf8")];
            renameSync(file, fileIn(library, other));
            writeFileSync(fileIn(library, other), text.replace(`"${id}"`, `"${other}"`));
            ids.splice(ids.indexOf(id), 1, other);
          },
        ])();
      }
    });
  });
});

test("only what was added is read again, also by the next process", async () => {
  const { library, file } = libraryOf("long", 3000);
  const size = readFileSync(file).length;
  let bytes = 0;
  const read = (...args: Parameters<Disk["read"]>): number => {
    const count = realDisk.read(...args);
    bytes += count;
    return count;
  };
  const disk: Disk = Object.assign(Object.create(realDisk), { read });
  /** Returns a catalog's count, and the share of the file that it reads for that. */
  const count = async (catalog: ReturnType<typeof catalogOn>): Promise<[number, number]> => {
    bytes = 0;
    return [(await catalog.usage(ALL)).totals.cost, bytes / size];
  };
  const add = (): void => {
    appendFileSync(file, `${JSON.stringify(answer(TIME, 1, 1))}\n`);
    letRest(file);
  };
  const few = expect.toSatisfy((share: number) => share < 0.1);
  const first = catalogOn(library, { disk, env: later });
  await first.list({});
  expect(await count(first)).toEqual([3000, expect.toSatisfy((share: number) => share > 0.5)]);
  expect(await count(first)).toEqual([3000, 0]);
  add();
  expect(await count(first)).toEqual([3001, few]);
  first.close();
  if (!findSqlite()) return;
  add();
  expect(await count(catalogOn(library, { disk, env: later }))).toEqual([3002, few]);
});

test("what the catalog keeps of usage is not believed when it is not as it was written", needs(SQLITE), async () => {
  const { library } = libraryOf("a");
  expect(await countedBy(catalogOn(library))).toEqual(new Map([["a", 1]]));
  for (const change of [
    "UPDATE usage SET record = replace(record, '\"damaged\":0', '\"damaged\":9')",
    "UPDATE usage SET record = '{'",
    "DELETE FROM usage",
    "DROP TABLE usage",
  ]) {
    const db = findSqlite()?.(catalogFile(library));
    db?.exec(change);
    db?.close();
    const catalog = catalogOn(library);
    const { incomplete } = await catalog.usage(ALL);
    expect([incomplete, await countedBy(catalog)], change).toEqual([[], new Map([["a", 1]])]);
    catalog.close();
  }
});

test("a session that cannot be read is named, and counts once it can", async () => {
  const { library, file } = libraryOf("a");
  writeFileSync(fileIn(library, "b"), sessionText({ id: "b" }, [answer(TIME, 1, 1)]));
  let broken = true;
  const openRead = (path: string): number => {
    if (broken && path === file) throw Object.assign(new Error("EIO"), { code: "EIO" });
    return realDisk.openRead(path);
  };
  const catalog = catalogOn(library, { disk: Object.assign(Object.create(realDisk), { openRead }) });
  const lacking = { path: file, listed: undefined, damagedLines: undefined };
  expect(await catalog.usage(ALL)).toMatchObject({ totals: { cost: 1 }, incomplete: [lacking] });
  broken = false;
  expect(await catalog.usage(ALL)).toMatchObject({ totals: { cost: 2 }, incomplete: [] });
  await catalog.list({});
  appendFileSync(file, "\n");
  broken = true;
  expect(await catalog.usage(ALL)).toMatchObject({ totals: { cost: 1 }, incomplete: [lacking] });
});

function catalogFile({ state }: Library): string {
  const folder = join(state, "catalog");
  const names = realDisk.names(folder).filter((name) => name.endsWith(".sqlite"));
  return join(folder, names.sort().at(-1) as string);
}

test("a family of forks counts each answer once, whichever of them are gone", async () => {
  const [inA, inB, inC, inD, inX] = [1, 2, 4, 8, 16].map((cost, n) => dated(`2026-01-02T00:00:0${n}.000Z`, 100, cost));
  const fork = (id: string, of: string, entries: Json[]): string =>
    put({ id, header: { parentSession: of, timestamp: entries.at(-2)?.timestamp }, entries });
  const a = put({ id: "a", entries: [inA] });
  const b = fork("b", a, [inA, inB]);
  const all = new Map([
    ["a", a],
    ["b", b],
    ["c", fork("c", a, [inA, inC])],
    ["d", fork("d", b, [inA, inB, inD])],
    ["x", fork("x", b, [inA, inB, inX])],
  ]);
  const texts = new Map(Array.from(all, ([name, path]) => [name, readFileSync(path)]));
  const whole = { a: inA, b: inB, c: inC, d: inD, x: inX };
  for (const gone of ["", "a", "b", "ab", "abc", "bx", "abdx", "ad", "ac"]) {
    for (const [name, path] of all) {
      rmSync(path, { force: true });
      if (!gone.includes(name)) writeFileSync(path, texts.get(name) as Buffer);
    }
    // An answer is there while a session is that has it.
    const there = Object.keys(whole).filter(
      (name) => !gone.includes(name) || (name === "a" && gone !== "abcdx") || (name === "b" && !/d.*x/.test(gone)),
    );
    const cost = there.reduce((sum, name) => sum + [1, 2, 4, 8, 16]["abcdx".indexOf(name)], 0);
    expect([gone, (await usage({ groupBy: [] })).totals.cost]).toEqual([gone, cost]);
  }
});

test("the header of an imported fork is read once, however often is asked", async () => {
  const taken = answer(TIME, 1, 1);
  const importedFrom = { takenOver: { session: "gone", lastId: taken.id } };
  const header = { parentSession: "/gone.jsonl", importedFrom };
  const { library, file } = libraryOf("01991f6e-1f1d-8c3e-b0a4-0242ac120002", 1, header, [taken]);
  let opened = 0;
  const openRead = (path: string): number => {
    if (path === file) opened++;
    return realDisk.openRead(path);
  };
  // Nothing is young.
  const disk: Disk = Object.assign(Object.create(realDisk), { openRead, clock: later.now });
  const catalog = catalogOn(library, { disk, env: later });
  for (let n = 0; n < 3; n++) {
    opened = 0;
    expect(await catalog.usage(ALL)).toMatchObject({ totals: { cost: 1 } });
  }
  expect(opened).toBe(0);
});
