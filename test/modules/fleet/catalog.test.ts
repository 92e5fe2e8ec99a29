/**
 * Lists, searches, usage and families across a fleet: a machine without copies gets the same answers as the machine with the
 * files, whose catalog is the measure. Each call of a model counts once in sums, also of forks whose originals are gone.
 *
 * @module-tag system
 */

import { describe, expect, test } from "vitest";
import { makeHeaderLine, toReadableHeader } from "../../../src/core/format/entry.ts";
import { parse, toBytes } from "../../../src/core/json/json.ts";
import type { Listed } from "../../../src/core/ports/catalog.ts";
import type { FleetCatalog, FleetListed, FleetSpent } from "../../../src/core/ports/fleet-catalog.ts";
import { FleetSource } from "../../../src/modules/fleet/catalog/fleet-source.ts";
import { extractFacts, makeFactsBase } from "../../../src/modules/fleet/replica/facts.ts";
import type { LocalCatalog } from "../../../src/storage/catalog/catalog.ts";
import { makeMemoryStore } from "../../../src/storage/memory.ts";
import { realEnv } from "../../support/catalog.ts";
import { assistant, SPOKEN, toolCall, toolResult, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { forSeedsAsync, Random, range } from "../../support/random.ts";
import type { Json, Wire } from "../../support/server.ts";
import { acrossTiers, SWEEP, UNIT } from "../../support/tiers.ts";
import { fleetSuite, newSession } from "./support/sql-machines.ts";

const at = (minute: number): number => Date.UTC(2026, 0, 24, 16, minute);

function paid(text: string, minute: number, model = "claude-sonnet-4-5"): Json {
  const cost = { input: 0, output: 0.25, cacheRead: 0, cacheWrite: 0, total: 0.25 };
  const usage = { input: 10, output: 5, cacheRead: 0, cacheWrite: 0, totalTokens: 15, cost };
  const { message } = assistant(text);
  return { type: "message", message: { ...message, ...SPOKEN, model, usage, timestamp: at(minute) } };
}

const spoken = (text: string, minute: number): Json => {
  const draft = user(text);
  return { ...draft, message: { ...draft.message, timestamp: at(minute) } };
};

/** Strings that columns of text cannot hold as they are. */
const HALF = "half \ud800 whole \u{1f600}";
const ODD = `nul \u0000 ${HALF}`;

/** Makes sessions of every kind on one machine. Returns the id of one with forks. */
async function fill(wire: Wire): Promise<string> {
  const session = async (cwd: string, entries: Json[], name?: string): Promise<string> => {
    const id = await newSession(wire, entries, { cwd });
    if (name !== undefined) await wire.result("set_session_name", { name });
    return id;
  };
  const read = [toolCall("c1"), toolResult("c1", "output of the tool"), paid("read it", 8)];
  await session("/home/me/app", [spoken("Migrate the database schema", 1), paid("npm run migrate:all", 2)], "Änderung");
  await session("/home/me/app", [spoken("say unbelievable_words please", 3), paid("会议记录 done", 4)]);
  await session(`/odd/${HALF}`, [spoken(`odd ${ODD} text`, 5), paid("yes", 6, "another ✓ model")], ODD);
  await session("/home/me/other", read, "zebra");
  await session("/home/me/long", [spoken("what was that", 9), paid("that was short", 10)], "apple");
  const parent = await session("/home/me/app", [
    ...[spoken("The root of a family", 11), { ...paid("first answer", 12), id: "answer" }],
    ...[{ ...spoken("second question", 13), id: "question" }, paid("second answer", 14)],
  ]);
  await wire.result("fork", { entryId: "question" });
  await wire.result("append", { entries: [spoken("asked in the fork", 15), paid("answered in the fork", 16)] });
  await wire.result("switch_session", { sessionId: parent });
  await wire.result("branch", { entryId: "answer" });
  await wire.result("append", { entries: [spoken("another branch", 17)] });
  return parent;
}

describe("the catalog of a fleet", needs(POSTGRESQL), () => {
  const suite = fleetSuite();
  /** Two machines; the second has no copy of anything. */
  const machines = async () => {
    suite.empty();
    const own = suite.lives();
    const one = await own.start();
    const parent = await fill(one);
    const fleet = suite.connect();
    const other = suite.lives({ fleet });
    return { one, two: await other.start(), parent, fleet, own, other };
  };

  test("shows and finds on another machine what the machine with the files does", async () => {
    const { one, two, parent } = await machines();
    await expectSameLists(one, two, parent);
    await expectSameHits(one, two, searches());
    const inApp = { cwd: "/home/me/app" };
    for (const params of [{}, { groupBy: ["session"] }, { groupBy: ["day", "model", "cwd"] }, inApp]) {
      const here = await one.result("get_usage", { ...params, here: true });
      const there = await two.result("get_usage", params);
      expect(there.rows.map(withoutPlace)).toEqual(here.rows.map(withoutPlace));
      expect(there.totals).toEqual(here.totals);
    }
    const family = (wire: Wire, sessionId = parent) => wire.result("get_session_family", { sessionId });
    const [here, there] = [await family(one), await family(two)];
    expect(there.nodes.map(withoutPlace)).toEqual(here.nodes.map(withoutPlace));
    expect([there.nodes.length, there.root]).toEqual([2, parent]);
    expect((await family(two, there.nodes[1].sessionId)).root).toBe(parent);
    const { data } = await two.failure("get_session_family", { sessionId: parent, here: true });
    expect(data.name).toBe("session_not_found");
  });

  test("opens a session that is not here by the path and by the short id that a list gives", async () => {
    const { one, two } = await machines();
    const { sessions } = await two.result("list_sessions");
    expect(sessions.every(({ isRemote }: Json) => isRemote === true)).toBe(true);
    expect((await two.result("list_sessions", { here: true })).total).toBe(0);
    const [first, { sessionId, shortId }] = sessions;
    await two.result("switch_session", { sessionPath: first.sessionPath });
    expect((await two.result("get_state")).sessionFile).toBe(first.sessionPath);
    expect((await two.result("open_session", { sessionId: shortId })).sessionId).toBe(sessionId);
    const after = (await two.result("list_sessions")).sessions;
    const idsOf = (rows: Json[]): string[] => rows.map((row) => row.sessionId);
    expect(idsOf(after)).toEqual(idsOf(sessions));
    expect(after.filter(({ isRemote }: Json) => isRemote).length).toBe(sessions.length - 2);
    // Later entries of the other machine are found, though the copy here is behind.
    await one.result("switch_session", { sessionId });
    await two.result("switch_session", { sessionId: first.sessionId });
    await two.result("close_session", { sessionId });
    await one.result("append", { entries: [user("supercalifragilistic")] });
    expect((await two.result("search_sessions", { query: "califragi" })).hits).toHaveLength(1);
  });

  test("with the database away, shows what is here and says so", async () => {
    const { two, fleet } = await machines();
    await two.result("append", { entries: [user("mine, in a session that stays")] });
    expect((await two.result("list_sessions")).total).toBe(8);
    await fleet.fleet.close();
    const asked = { list_sessions: {}, search_sessions: { query: "mine" }, get_usage: {}, get_session_family: {} };
    const found: Json = {};
    for (const [method, params] of Object.entries(asked)) {
      found[method] = await two.result(method, params);
      expect(found[method].limited, method).toMatch(/cannot be used/);
    }
    expect([found.list_sessions.sessions.length, found.search_sessions.hits.length]).toEqual([1, 1]);
    expect((await two.result("list_sessions", { here: true })).limited).toBeUndefined();
  });

  // Above 500 texts or words the server uses another query.
  acrossTiers(test, [250, 900])("finds parts of words among %i texts, common or rare", async (count) => {
    const { one, two } = await machines();
    const rare = (n: number): string => (n % 400 === 5 ? "seldomness" : n % 60 === 1 ? "oftentimes" : "");
    const entries = range(0, count).map((n) => spoken(`everywheres number${n}x ${rare(n)} again`, n));
    await one.result("append", { entries });
    // Hundreds of words hold "umber4", and one word the other part.
    const queries = `eldomnes,ftentime,verywher eldomnes,gain ftentime umber,umber72 verywher,umber4 eldomnes,
        umber4 ftentime verywher,verywher`.split(/,\s*/);
    const requests = queries.map((query): Json => ({ query }));
    await expectSameHits(one, two, [...requests, { query: "ftentime", role: "assistant" }], 40);
    await expectSameHits(one, two, requests.slice(0, 2), 2);
  });

  /** Compares so many searches for each of so many seeds. */
  const findsTheSame = async (seeds: number, searches: number): Promise<void> => {
    let hits = 0;
    await forSeedsAsync(seeds, async (random) => {
      const { one, two, own, other } = await machines();
      for (let n = 0; n < 4; n++)
        await newSession(
          one,
          range(0, 12).map((minute) => randomEntry(random, minute)),
          {
            cwd: `/home/me/${random.pick(["app", "other"])}`,
          },
        );
      const requests = range(0, searches).map(() => randomSearch(random));
      hits += await expectSameHits(one, two, requests, 5 + random.int(20));
      // A server that lives on may still write to the database, which is emptied for the next seed.
      await Promise.all([own.end(), other.end()]);
    });
    expect(hits).toBeGreaterThan(20);
  };

  test("finds what the files' search finds, whatever is said and looked for", () => findsTheSame(1, 8));

  test("finds what the files' search finds, whatever is said and looked for, in many searches", SWEEP, () =>
    findsTheSame(2, 30),
  );

  test("keeps the words of a text of megabytes up to a limit, and says what it does not search", async () => {
    const { one, two } = await machines();
    // More words than the database takes of one text.
    await one.result("append", {
      entries: [
        user(
          range(0, 70_000)
            .map((n) => `word${n}`)
            .join(" "),
        ),
      ],
    });
    expect((await two.result("search_sessions", { query: "word77" })).hits.length).toBeGreaterThan(0);
    expect((await two.result("search_sessions", { query: "word69999" })).hits).toHaveLength(0);
    const found = await two.result("search_sessions", { query: "output", includeToolResults: true });
    expect(found).toMatchObject({ hits: [], limited: expect.stringMatching(/output of tools/) });
  });

  test("keeps the words of a long Chinese text, whoever adds them", SWEEP, async () => {
    const { one, two, fleet, other } = await machines();
    // Its words are its letters and pairs of them: 1.2 MB of words.
    const random = new Random(7);
    const text = range(0, 200_000)
      .map(() => String.fromCodePoint(0x4e00 + random.int(8_048)))
      .join("");
    const query = text.slice(0, 4);
    const hits = async (): Promise<number> => (await two.result("search_sessions", { query })).hits.length;
    await one.result("append", { entries: [user(text)] });
    expect(await hits()).toBe(1);
    await newSession(one, [user(text)]);
    const polled = { timeout: 60_000, interval: 50 };
    await expect.poll(() => fleet.catalog.behind(), polled).toBe(0);
    expect(await hits()).toBe(2);
    await one.result("new_session");
    const held = "select count(*) from pi_fleet.session where holder is not null";
    await expect.poll(() => suite.sql(held), polled).toBe("0");
    suite.sql("update pi_fleet.session set indexed = 0");
    suite.sql("truncate pi_fleet.said, pi_fleet.spent");
    expect(await other.getAdmin().index()).toMatchObject({ inUse: [] });
    expect(await hits()).toBe(2);
  });
});

/** Returns a row without what differs from machine to machine. */
function withoutPlace({ sessionPath, isRemote, cursor, ...row }: Json): Json {
  return row;
}

/** Asks for all pages of a list. */
async function paged(wire: Wire, method: string, request: Json, member: string): Promise<Json[]> {
  const rows: Json[] = [];
  let cursor: string | undefined;
  do {
    const page = await wire.result(method, { ...request, cursor });
    rows.push(...page[member]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return rows;
}

async function expectSameLists(one: Wire, two: Wire, parent: string): Promise<void> {
  const first = (await one.result("list_sessions", { here: true })).sessions;
  const requests: Json[] = [
    ...["modified", "created", "name", "size"].map((sort) => ({ sort })),
    ...[{ cwd: "/home/me/app" }, { cwd: `/odd/${HALF}` }, { query: "HOME family" }, { query: first[0].sessionId }],
    ...[{ name: "ÄNDER" }, { named: true }, { unnamed: true }, { parent }, { archived: true }, { headerOnly: true }],
    ...[{ since: new Date(at(10)).toISOString() }, { until: new Date(at(10)).toISOString() }],
    // From then on the files' catalog knows costs.
    { sort: "cost" },
  ];
  for (const request of requests) {
    const here = await one.result("list_sessions", { ...request, here: true });
    const there = await two.result("list_sessions", request);
    // Sessions without a name, or of one cost, are ordered by their paths in one catalog, and by their ids in the other.
    const shown = ({ sessions, total }: Json): unknown[] => [
      ...[total, sessions.map((row: Json) => row[request.sort ?? "modified"] ?? null)],
      sessions.map((row: Json) => JSON.stringify(withoutPlace(row))).sort(),
    ];
    expect(shown(there), JSON.stringify(request)).toEqual(shown(here));
    const pages = await paged(two, "list_sessions", { ...request, limit: 2 }, "sessions");
    expect(pages, JSON.stringify(request)).toEqual(there.sessions);
  }
}

/** Parts of words and what stands between them, so that many words begin, end and go on in the same way. */
const SYLLABLES = "mi grate data base Änd ern straße 会议 记录 x1 42 É ı \u{1f600}".split(" ");
const BETWEEN = [" ", " ", " ", "", "", ..."_-:/.'\"\\\n", ", ", "\u0000", "\ud800"];

function randomText(random: Random, most: number): string {
  return range(0, 1 + random.int(most))
    .map(() => random.pick(SYLLABLES) + random.pick(BETWEEN))
    .join("");
}

function randomEntry(random: Random, minute: number): Json {
  const text = randomText(random, 12);
  if (random.chance(0.15)) return toolCall(`c${minute}${random.hex(6)}`);
  return random.chance(0.5) ? spoken(text, minute) : paid(text, minute);
}

function randomSearch(random: Random): Json {
  const term = (): string => {
    const text = randomText(random, random.chance(0.7) ? 1 : 2)
      .replace(/[\0\ud800"]/g, "")
      .trim();
    return random.chance(0.2) ? `"${text}"` : text;
  };
  const query = range(0, 1 + random.int(2))
    .map(term)
    .join(" ");
  // A query without any letter looks through the latest texts only, and says so.
  return {
    query: /[\p{L}\p{N}]/u.test(query) ? query : "data",
    ...(random.chance(0.2) ? { role: random.pick(["user", "assistant"]) } : {}),
    ...(random.chance(0.2) ? { cwd: "/home/me/app" } : {}),
    ...(random.chance(0.2) ? { since: new Date(at(random.int(12))).toISOString() } : {}),
    ...(random.chance(0.2) ? { until: new Date(at(random.int(12))).toISOString() } : {}),
  };
}

/** Returns searches of every kind. */
function searches(): Json[] {
  const queries = 'database,answer second,"second answer",believ,run migrate,会议,议,half,nothing-like-it,odd,+,ode';
  return [
    ...queries.split(",").map((query) => ({ query })),
    ...[{ tool: "read" }, { file: "a.txt" }, { query: "answer", role: "user" }, { query: "e", in: ["toolCall"] }],
    { query: "answer", cwd: "/home/me/app", since: new Date(at(13)).toISOString() },
  ];
}

/** Expects that the second machine finds what the first does, also in pages of `limit`. Returns the number of hits. */
async function expectSameHits(one: Wire, two: Wire, requests: readonly Json[], limit = 3): Promise<number> {
  let hits = 0;
  const keyOf = ({ line, snippet, ...hit }: Json): string => JSON.stringify(withoutPlace(hit));
  for (const request of requests) {
    const here = await one.result("search_sessions", { ...request, here: true, limit: 1000 });
    const there = await two.result("search_sessions", { ...request, limit: 1000 });
    const expected = here.hits.filter(({ part }: Json) => part !== "toolResult");
    expect(there.hits.map(keyOf).sort(), JSON.stringify(request)).toEqual(expected.map(keyOf).sort());
    const pages = await paged(two, "search_sessions", { ...request, limit }, "hits");
    expect(pages.map(keyOf), JSON.stringify(request)).toEqual(there.hits.map(keyOf));
    hits += pages.length;
  }
  return hits;
}

/** A session of the fleet with an answer that it took over and one of its own. */
function spentBy(id: string, parentSession: string | null, [taken, own]: readonly [number, number]): FleetSpent {
  const facts = { cwd: "/p", name: null, firstMessage: null, parentSession, timestamp: null, modified: null };
  const session = { ...facts, id, shortId: id, messages: 1, isPlain: true, entries: 1, sizeBytes: 1, archived: false };
  const spending = (isInherited: boolean, cost: number) => ({
    ...{ quarter: 0, provider: "p", model: "m", isInherited, numbers: [1, 0, 1, 1, 0, 0, 2, cost] },
  });
  return {
    session: { ...session, parent: null, key: 0 } as FleetListed,
    spendings: [spending(true, taken), spending(false, own)],
  };
}

async function costs(spent: readonly FleetSpent[], present: readonly string[]): Promise<unknown> {
  const there = {
    spent: async () => spent,
    known: async (ids: readonly string[]) =>
      new Map(ids.filter((id) => present.includes(id)).map((id) => [id, { messages: 1, isDeleted: false }])),
    list: async () => ({ sessions: [], total: 0 }),
    behind: async () => 0,
  } as unknown as FleetCatalog;
  const local = {
    counted: async () => ({ sessions: [], models: [], incomplete: [], archivedLeftOut: 0 }),
    find: async () => new Map(),
    list: async () => ({ found: [] as Listed[], total: 0, shortId: (id: string) => id }),
  } as unknown as LocalCatalog;
  const sha256 = (bytes: Uint8Array): string => realEnv.sha256(bytes);
  const placeFor = ({ id }: FleetListed) => ({ path: `/there/${id}.jsonl`, store: "jsonl" as const });
  const catalog = new FleetSource({ there, local, placeFor, sha256 });
  const { totals } = await catalog.usage({ groupBy: [], dayOf: () => 0 });
  return [totals.cost, totals.inherited.cost];
}

test("what forks took over counts in their original, or, where that is gone, in one of them", UNIT, async () => {
  const forks = [spentBy("a", "/x/1_parent.jsonl", [4, 1]), spentBy("b", "/x/1_parent.jsonl", [4, 2])];
  expect(await costs(forks, ["parent"])).toEqual([3, 8]);
  expect(await costs(forks, [])).toEqual([7, 4]);
});

test("an imported fork takes over what its header says, whatever times its entries have", UNIT, () => {
  const answer = (id: string): Uint8Array => {
    const usage = { input: 1, output: 1, cost: { total: 1 } };
    const message = { role: "assistant", content: [], usage, timestamp: 9e12 };
    return toBytes(JSON.stringify({ type: "message", id, parentId: null, timestamp: "2027-01-01T00:00:00Z", message }));
  };
  const line = makeHeaderLine({
    ...{ id: "f", timestamp: "2026-01-01T00:00:00Z", cwd: "/p", parentSession: "/x/o.json" },
    importedFrom: { agent: "opencode", id: "f", takenOver: { session: "o", lastId: "bbbbbbbb" } },
  });
  const log = makeMemoryStore().create({ headerLine: line, header: toReadableHeader(parse(line) as object) });
  log.append(["aaaaaaaa", "bbbbbbbb", "cccccccc"].map(answer));
  const { spendings } = extractFacts(log, makeFactsBase(log.header), true, 0, 3);
  expect(spendings.map(({ isInherited, numbers }) => [isInherited, numbers[0]])).toEqual([
    [true, 2],
    [false, 1],
  ]);
});
