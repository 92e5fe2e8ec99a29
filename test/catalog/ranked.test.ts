/** Ranked searches: the best texts first, every text once, without secrets, and within a time. */

import { expect, test } from "vitest";
import { assistant, toolCall, toolResult, user } from "../support/drafts.ts";
import { forSeedsAsync } from "../support/random.ts";
import { chain, everyPage, put, serverOn } from "../support/searching.ts";
import { plantedSecrets } from "../support/secrets.ts";
import { type Json, temporaryPlace } from "../support/server.ts";

const idsOf = (hits: readonly Json[]): string[] => hits.map(({ sessionId }) => sessionId);

test("a question in words finds the text with most of what it asks for, said by a person before a tool", async () => {
  const server = serverOn("by the index", {
    a: chain(user("Why does the cache of the users expire too early?"), assistant("The expiry is in seconds.")),
    b: chain(user("The users want a list."), assistant("Here it is.")),
    c: chain(user("Look."), toolCall("1"), toolResult("1", "users cache expired early")),
    d: chain(user("Read getUserCacheEntry."), assistant("Done.")),
  });
  const find = async (query: string, more: object = {}): Promise<Json> =>
    server.result("search_sessions", { query, ranked: true, ...more });
  const { hits } = await find("why did the user cache expire early?", { in: ["user", "assistant", "toolResult"] });
  expect(idsOf(hits).slice(0, 2)).toEqual(["a", "c"]);
  expect(hits.map(({ score }: Json) => score)).toEqual(
    hits.map(({ score }: Json) => score).sort((x: number, y: number) => y - x),
  );
  expect(idsOf((await find("what about the cache entry")).hits)[0]).toBe("d");
  expect((await find("zebra")).hits).toEqual([]);
  expect((await find("the of and")).hits.length).toBeGreaterThan(0);
  expect((await find('"list"')).hits.map(({ sessionId }: Json) => sessionId)).toEqual(["b"]);
});

test("without an index a question finds the texts with at least half of its words, and no others", async () => {
  const server = serverOn("by reading", {
    a: chain(user("Why does the cache of the users expire too early?"), assistant("The expiry is in seconds.")),
    b: chain(user("The users want a list."), assistant("Here it is.")),
    c: chain(user("Read cacheOfUsers."), assistant("It expires.")),
  });
  const find = async (query: string): Promise<string[]> =>
    idsOf((await server.result("search_sessions", { query, ranked: true })).hits).sort();
  expect(await find("why did the user cache expire early?")).toEqual(["a", "c"]);
  expect(await find("zebra")).toEqual([]);
});

test("pages of a ranked search have every hit once, also while texts are added", async () => {
  await forSeedsAsync(1, async (random) => {
    const place = temporaryPlace();
    const words = ["red", "green", "blue", "migrate", "timeout", "parser"];
    const some = (): string => Array.from({ length: 1 + random.int(6) }, () => random.pick(words)).join(" ");
    for (let n = 0; n < 12; n++)
      put(place, `0${n}session`, chain(...Array.from({ length: 1 + random.int(40) }, () => user(some()))));
    const server = serverOn("by the index", {}, place);
    const params = { query: "migrate the parser timeout", ranked: true };
    const all = await server.result("search_sessions", { ...params, limit: 1000 });
    const paged: Json[] = [];
    let cursor = all.begins;
    for (let pages = 0; cursor !== undefined; pages++) {
      const page = await server.result("search_sessions", { ...params, cursor, limit: 1 + random.int(30) });
      paged.push(...page.hits);
      cursor = page.nextCursor;
      put(place, `1${pages}session`, chain(user(some())));
    }
    const keyOf = ({ sessionId, entryId }: Json): string => `${sessionId} ${entryId}`;
    expect(paged.map(keyOf)).toEqual(all.hits.map(keyOf));
    expect(new Set(paged.map(keyOf)).size).toBe(paged.length);
    await server.finish();
  });
});

test("no secret is found or shown with redact, by any part of it", async () => {
  const secrets = plantedSecrets(7).filter((_, n) => n % 8 === 0);
  const server = serverOn("by the index", {
    a: chain(...secrets.map(({ text }) => user(`this one marker\n${text}\nfor it`))),
  });
  const hits = await everyPage(
    server,
    "search_sessions",
    { query: "marker", redact: true, ranked: true, limit: 20 },
    "hits",
  );
  expect(hits.length).toBe(secrets.length);
  const shown = JSON.stringify(hits);
  for (const { secret } of secrets) {
    expect(shown).not.toContain(secret);
    for (const ranked of [true, false]) {
      const found = await server.result("search_sessions", {
        query: `"${secret.replaceAll('"', "").slice(0, 12)}"`,
        redact: true,
        ranked,
      });
      expect(JSON.stringify(found)).not.toContain(secret);
    }
  }
});

test("a search within a time answers with what is read, and says how much is behind, until all is read", async () => {
  const place = temporaryPlace();
  for (let n = 0; n < 10; n++) put(place, `s${n}`, chain(user(`word ${"filler text ".repeat(20_000)}`)));
  const server = serverOn("by the index", {}, place);
  let behind = Number.POSITIVE_INFINITY;
  let found = 0;
  for (let tries = 0; behind > 0 && tries < 500; tries++) {
    const page = await server.result("search_sessions", { query: "word", ranked: true, within: 1, limit: 100 });
    behind = page.behind ?? 0;
    expect(page.hits.length).toBeGreaterThanOrEqual(found);
    expect(page.hits.length + behind).toBeGreaterThanOrEqual(10);
    found = page.hits.length;
  }
  expect(found).toBe(10);
  const listed = await server.result("list_sessions", { within: 1 });
  expect(listed.total + (listed.behind ?? 0)).toBe(10);
});
