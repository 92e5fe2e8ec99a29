/**
 * Lists, searches, usage and families across a fleet: a machine that has no copy is told what the machine says that has
 * the files, whose catalog is the measure. Ordinary tests, over a real PostgreSQL.
 *
 * @module-tag system
 */

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Database } from "../../support/database.ts";
import { assistant, SPOKEN, toolCall, toolResult, user } from "../../support/drafts.ts";
import { needs } from "../../support/needs.ts";
import { POSTGRESQL } from "../../support/postgres.ts";
import { HereLives } from "../../support/proof.ts";
import { forSeedsAsync, Random, range } from "../../support/random.ts";
import type { Json, Wire } from "../../support/server.ts";
import { type SqlFleet, sqlFleet } from "../../support/sql-fleet.ts";
import { acrossTiers, SWEEP } from "../../support/tiers.ts";

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
    await wire.result("new_session", { cwd });
    await wire.result("append", { entries });
    if (name !== undefined) await wire.result("set_session_name", { name });
    return (await wire.result("get_state")).sessionId;
  };
  await session("/home/me/app", [spoken("Migrate the database schema", 1), paid("npm run migrate:all", 2)], "Änderung");
  await session("/home/me/app", [spoken("say unbelievable_words please", 3), paid("会议记录 done", 4)]);
  await session(`/odd/${HALF}`, [spoken(`odd ${ODD} text`, 5), paid("yes", 6, "another ✓ model")], ODD);
  await session(
    "/home/me/other",
    [toolCall("c1"), toolResult("c1", "output of the tool"), paid("read it", 8)],
    "zebra",
  );
  await session("/home/me/long", [spoken("what was that", 9), paid("that was short", 10)], "apple");
  const parent = await session("/home/me/app", [
    spoken("The root of a family", 11),
    { ...paid("first answer", 12), id: "answer" },
    { ...spoken("second question", 13), id: "question" },
    paid("second answer", 14),
  ]);
  await wire.result("fork", { entryId: "question" });
  await wire.result("append", { entries: [spoken("asked in the fork", 15), paid("answered in the fork", 16)] });
  await wire.result("switch_session", { sessionId: parent });
  await wire.result("branch", { entryId: "answer" });
  await wire.result("append", { entries: [spoken("another branch", 17)] });
  return parent;
}

/** A text of more words than the database takes of one. */
function longText(): string {
  return Array.from({ length: 70_000 }, (_, n) => `word${n}`).join(" ");
}

/** Returns a text of Chinese letters, whose words are these and pairs of them: 1.2 MB of words. */
function chineseText(): string {
  const random = new Random(7);
  return range(0, 200_000)
    .map(() => String.fromCodePoint(0x4e00 + random.int(8_048)))
    .join("");
}

describe("the catalog of a fleet", needs(POSTGRESQL), () => {
  let server: Database;
  const fleets: SqlFleet[] = [];
  const connect = (name: string): SqlFleet => {
    const fleet = sqlFleet(server.url, name);
    fleets.push(fleet);
    return fleet;
  };
  /** Two machines; the second has no copy of anything. */
  const machines = async (): Promise<{ one: Wire; two: Wire; parent: string; fleet: SqlFleet; other: HereLives }> => {
    server.sql(
      "truncate pi_fleet.session, pi_fleet.entry, pi_fleet.pack, pi_fleet.behind, pi_fleet.described, pi_fleet.said, pi_fleet.word, pi_fleet.spent",
    );
    const fleet = connect(`two ${fleets.length}`);
    const one = await new HereLives({ fleet: connect(`one ${fleets.length}`), seed: 1 }).start();
    const parent = await fill(one);
    const other = new HereLives({ fleet, seed: 2 });
    const two = await other.start();
    return { one, two, parent, fleet, other };
  };

  beforeAll(async () => {
    server = new Database();
    await server.start();
  });
  afterAll(async () => {
    await Promise.all(fleets.map(({ fleet }) => fleet.close()));
    await server.close();
  });

  test("shows and finds on another machine what the machine with the files does", async () => {
    const { one, two, parent } = await machines();
    await expectSameLists(one, two, parent);
    await expectSameHits(one, two, searches());
    for (const params of [
      {},
      { groupBy: ["session"] },
      { groupBy: ["day", "model", "cwd"] },
      { cwd: "/home/me/app" },
    ]) {
      const [here, there] = [
        await one.result("get_usage", { ...params, here: true }),
        await two.result("get_usage", params),
      ];
      expect(there.rows.map(withoutPlace)).toEqual(here.rows.map(withoutPlace));
      expect(there.totals).toEqual(here.totals);
    }
    const [here, there] = await Promise.all(
      [one, two].map((wire) => wire.result("get_session_family", { sessionId: parent })),
    );
    expect(there.nodes.map(withoutPlace)).toEqual(here.nodes.map(withoutPlace));
    expect(there.nodes).toHaveLength(2);
    expect(there.root).toBe(parent);
    expect((await two.result("get_session_family", { sessionId: there.nodes[1].sessionId })).root).toBe(parent);
    expect((await two.failure("get_session_family", { sessionId: parent, here: true })).data.name).toBe(
      "session_not_found",
    );
  });

  test("opens a session that is not here by the path and by the short id that a list gives", async () => {
    const { one, two } = await machines();
    const { sessions } = await two.result("list_sessions");
    expect(sessions.every(({ isRemote }: Json) => isRemote === true)).toBe(true);
    expect((await two.result("list_sessions", { here: true })).total).toBe(0);
    const [first, second] = sessions;
    await two.result("switch_session", { sessionPath: first.sessionPath });
    expect((await two.result("get_state")).sessionFile).toBe(first.sessionPath);
    const opened = await two.result("open_session", { sessionId: second.shortId });
    expect(opened.sessionId).toBe(second.sessionId);
    const after = await two.result("list_sessions");
    expect(after.sessions.map(({ sessionId }: Json) => sessionId)).toEqual(
      sessions.map(({ sessionId }: Json) => sessionId),
    );
    expect(after.sessions.filter(({ isRemote }: Json) => isRemote).length).toBe(sessions.length - 2);
    // What the other machine goes on to write is found, though the copy here is behind.
    await one.result("switch_session", { sessionId: second.sessionId });
    await two.result("switch_session", { sessionId: first.sessionId });
    await two.result("close_session", { sessionId: second.sessionId });
    await one.result("append", { entries: [user("supercalifragilistic")] });
    expect((await two.result("search_sessions", { query: "califragi" })).hits).toHaveLength(1);
  });

  test("with the database away, shows what is here and says so", async () => {
    const { two, fleet } = await machines();
    await two.result("append", { entries: [user("mine, in a session that stays")] });
    const { total } = await two.result("list_sessions");
    expect(total).toBe(8);
    await fleet.fleet.close();
    for (const [method, params] of [
      ["list_sessions", {}],
      ["search_sessions", { query: "mine" }],
      ["get_usage", {}],
      ["get_session_family", {}],
    ] as const)
      expect((await two.result(method, params)).limited, method).toMatch(/cannot be read/);
    expect((await two.result("list_sessions")).sessions).toHaveLength(1);
    expect((await two.result("search_sessions", { query: "mine" })).hits).toHaveLength(1);
    expect((await two.result("list_sessions", { here: true })).limited).toBeUndefined();
  });

  // Of more than 500 texts or words the server asks in another way.
  acrossTiers(test, [250, 900])(
    "finds parts of words among %i texts, whether all have them, some do, or hardly any",
    async (count) => {
      const { one, two } = await machines();
      const rare = (n: number): string => (n % 400 === 5 ? "seldomness" : n % 60 === 1 ? "oftentimes" : "");
      const entries = Array.from({ length: count }, (_, n) => spoken(`everywheres number${n}x ${rare(n)} again`, n));
      await one.result("append", { entries });
      const requests = [
        "eldomnes",
        "ftentime",
        "verywher eldomnes",
        "gain ftentime umber",
        "umber72 verywher",
        // Hundreds of words hold one part, and one word the other.
        "umber4 eldomnes",
        "umber4 ftentime verywher",
        "verywher",
      ];
      await expectSameHits(
        one,
        two,
        [...requests.map((query) => ({ query })), { query: "ftentime", role: "assistant" }],
        40,
      );
      for (const query of ["eldomnes", "ftentime"]) await expectSameHits(one, two, [{ query }], 2);
    },
  );

  /** Compares so many searches for each of so many seeds. */
  const findsTheSame = async (seeds: number, searches: number): Promise<void> => {
    let hits = 0;
    await forSeedsAsync(seeds, async (random) => {
      const { one, two } = await machines();
      for (let n = 0; n < 4; n++) {
        await one.result("new_session", { cwd: `/home/me/${random.pick(["app", "other"])}` });
        await one.result("append", { entries: range(0, 12).map((minute) => randomEntry(random, minute)) });
      }
      const requests = range(0, searches).map(() => randomSearch(random));
      hits += await expectSameHits(one, two, requests, 5 + random.int(20));
    });
    expect(hits).toBeGreaterThan(20);
  };

  test("finds what the files' search finds, whatever is said and looked for", () => findsTheSame(1, 8));

  test("finds what the files' search finds, whatever is said and looked for, in many searches", SWEEP, () =>
    findsTheSame(2, 30),
  );

  test("keeps the words of a text of megabytes up to a limit, and says what it does not search", async () => {
    const { one, two } = await machines();
    await one.result("append", { entries: [user(longText())] });
    expect((await two.result("search_sessions", { query: "word77" })).hits.length).toBeGreaterThan(0);
    expect((await two.result("search_sessions", { query: "word69999" })).hits).toHaveLength(0);
    const found = await two.result("search_sessions", { query: "output", includeToolResults: true });
    expect(found.hits).toHaveLength(0);
    expect(found.limited).toMatch(/output of tools/);
  });

  test(
    "keeps the words of a long Chinese text, appended, committed at first or added by a migration",
    SWEEP,
    async () => {
      const { one, two, fleet, other } = await machines();
      const text = chineseText();
      const query = text.slice(0, 4);
      const hits = async (): Promise<number> => (await two.result("search_sessions", { query })).hits.length;
      await one.result("append", { entries: [user(text)] });
      expect(await hits()).toBe(1);
      await one.result("new_session");
      await one.result("append", { entries: [user(text)] });
      await expect.poll(() => fleet.catalog.behind(), { timeout: 60_000, interval: 50 }).toBe(0);
      expect(await hits()).toBe(2);
      await one.result("new_session");
      const held = "select count(*) from pi_fleet.session where holder is not null";
      await expect.poll(() => server.sql(held), { timeout: 60_000, interval: 50 }).toBe("0");
      server.sql("update pi_fleet.session set indexed = 0");
      server.sql("truncate pi_fleet.said, pi_fleet.spent");
      expect(await other.care().index()).toMatchObject({ inUse: [] });
      expect(await hits()).toBe(2);
    },
  );
});

/** Returns a row without what differs from machine to machine. */
function withoutPlace({ sessionPath, isRemote, cursor, ...row }: Json): Json {
  return row;
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
    const keysOf = ({ sessions }: Json): unknown[] =>
      sessions.map((row: Json) => row[request.sort ?? "modified"] ?? null);
    const rowsOf = ({ sessions }: Json): string[] =>
      sessions.map((row: Json) => JSON.stringify(withoutPlace(row))).sort();
    expect(keysOf(there), JSON.stringify(request)).toEqual(keysOf(here));
    expect(rowsOf(there), JSON.stringify(request)).toEqual(rowsOf(here));
    expect(there.total).toBe(here.total);
    const paged: Json[] = [];
    for (let cursor: string | undefined, n = 0; n === 0 || cursor !== undefined; n++) {
      const page = await two.result("list_sessions", { ...request, limit: 2, cursor });
      paged.push(...page.sessions);
      cursor = page.nextCursor;
    }
    expect(paged, JSON.stringify(request)).toEqual(there.sessions);
  }
}

/** Parts of words and what stands between them, so that many words begin, end and go on in the same way. */
const SYLLABLES = [
  "mi",
  "grate",
  "data",
  "base",
  "Änd",
  "ern",
  "straße",
  "会议",
  "记录",
  "x1",
  "42",
  "É",
  "ı",
  "\u{1f600}",
];
const BETWEEN = [" ", " ", " ", "", "", "_", "-", ":", "/", ".", "'", '"', "\\", "\n", ", ", "\u0000", "\ud800"];

function randomText(random: Random, most: number): string {
  const parts = range(0, 1 + random.int(most)).map(() => random.pick(SYLLABLES) + random.pick(BETWEEN));
  return parts.join("");
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
  const requests: Json[] = [
    ...[
      "database",
      "answer second",
      '"second answer"',
      "believ",
      "run migrate",
      "会议",
      "议",
      "half",
      "nothing-like-it",
    ],
    ...["odd", "+", "ode"].map((query) => query),
  ].map((query) => ({ query }));
  requests.push(
    { tool: "read" },
    { file: "a.txt" },
    { query: "answer", role: "user" },
    { query: "e", in: ["toolCall"] },
  );
  requests.push({ query: "answer", cwd: "/home/me/app", since: new Date(at(13)).toISOString() });
  return requests;
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
    const paged: Json[] = [];
    for (let cursor: string | undefined, n = 0; n === 0 || cursor !== undefined; n++) {
      const page = await two.result("search_sessions", { ...request, limit, cursor });
      paged.push(...page.hits);
      cursor = page.nextCursor;
    }
    expect(paged.map(keyOf), JSON.stringify(request)).toEqual(there.hits.map(keyOf));
    hits += paged.length;
  }
  return hits;
}
