/** search_sessions at the wire, by the index and by reading every file. */

import { appendFileSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { toExpressions } from "../../src/core/search/query.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import {
  allHits,
  catalogOn,
  later,
  listed,
  places,
  putRandomSession,
  readCalls,
  readHits,
  temporaryLibrary,
  withoutSqlite,
} from "../support/catalog.ts";
import { assistant, user } from "../support/drafts.ts";
import { putSession, serveLibrary } from "../support/lifecycle.ts";
import { fileText, headerText, userText } from "../support/lines.ts";
import { forSeedsAsync } from "../support/random.ts";
import { chain, everyPage, put, serverOn, VARIANTS } from "../support/searching.ts";
import { type Json, serveHere, temporaryPlace } from "../support/server.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";

const tool = (text: string): Json => ({
  type: "message",
  message: { role: "toolResult", toolCallId: "c", toolName: "bash", content: [{ type: "text", text }] },
});

describe.each(VARIANTS)("%s", (variant) => {
  const texts = async (server: ReturnType<typeof serverOn>, query: string, more: object = {}): Promise<string[]> => {
    const { hits } = await server.result("search_sessions", { query, ...more });
    return hits.map(({ snippet }: Json) => snippet).sort();
  };

  test("finds all words of a query in one message, in any order and case, also inside words", async () => {
    const server = serverOn(variant, {
      a: chain(user("The parser failed at getUserName()"), assistant("Fixed the PARSER.")),
      b: chain(user("Nothing here"), assistant("failed")),
    });
    expect(await texts(server, "parser")).toEqual(["Fixed the PARSER.", "The parser failed at getUserName()"]);
    expect(await texts(server, "FAILED parser")).toEqual(["The parser failed at getUserName()"]);
    for (const part of ["username", "etUserNa", "Name()", "t", "at get", '"at getuser"', "ge na"])
      expect(await texts(server, part), part).toContain("The parser failed at getUserName()");
    for (const none of ['"failed parser"', "parsers", "nothing failed", "%", "_", "*", "' OR 1=1", '"', "", "fail*"])
      expect(await texts(server, none), none).toEqual([]);
  });

  test("finds what is in the first million characters of a message", async () => {
    const server = serverOn(variant, { a: chain(user(`needle ${"x ".repeat(1 << 19)} beyond`)) });
    expect([await texts(server, "needle"), await texts(server, "beyond")]).toEqual([[expect.any(String)], []]);
  });

  test("finds text in scripts without spaces, from one character on, and in either composition", async () => {
    const all =
      "会议记录在这里|検索エンジン|Größe ÄNDERN|cafe\u0301 au lait|поиск по тексту|🦓 zebra|ΟΔΟΣ|한국어 검색".split(
        "|",
      );
    const server = serverOn(variant, { a: chain(...all.map((text) => user(text))) });
    const queries = "会 议记 会议记录|索 エンジン|größe ändern nder|café af|ПОИСК екс|🦓|οδοσ|검색 어".split("|");
    for (const [n, own] of queries.entries())
      for (const query of own.split(" ")) expect(await texts(server, query), query).toEqual([all[n]]);
    for (const query of ["议会", "会录", "grosse", "é\u0301"]) expect(await texts(server, query), query).toEqual([]);
  });

  test("finds a message by thousands of its words, and by a page without spaces", async () => {
    const words = Array.from({ length: 300 }, (_, i) => `w${i * 7919}`).join(" ");
    const page = `${"𠀀会议记录".repeat(300)}完`;
    const server = serverOn(variant, { a: chain(user(words), user(page)) });
    expect((await texts(server, words)).length).toBe(1);
    expect(await texts(server, `${words} w`)).toEqual(await texts(server, words));
    expect(await texts(server, `${words} missing`)).toEqual([]);
    expect((await texts(server, page)).length).toBe(1);
    expect(await texts(server, `${page}完`)).toEqual([]);
  });

  test("looks at users and assistants, at tools on request, and at one role only if told so", async () => {
    const server = serverOn(variant, {
      a: chain(
        ...[user("needle user"), assistant("needle assistant"), tool("needle tool")],
        { type: "message", message: { role: "bashExecution", command: "echo needle", output: "bash" } },
        { type: "compaction", summary: "needle", firstKeptEntryId: "x", tokensBefore: 1 },
        { type: "custom", customType: "x", data: "needle" },
        { type: "message", message: { role: "custom", content: "needle" } },
      ),
    });
    const said = ["needle assistant", "needle user"];
    expect(await texts(server, "needle")).toEqual(said);
    const all = await texts(server, "needle", { includeToolResults: true });
    expect(all).toEqual(["echo needle bash", said[0], "needle tool", said[1]]);
    const roles = { user: said[1], assistant: said[0], toolResult: "needle tool", bashExecution: "echo needle bash" };
    for (const [role, found] of Object.entries(roles)) expect(await texts(server, "needle", { role })).toEqual([found]);
  });

  test("keeps to a working directory and a time", async () => {
    const at = (text: string, minute: number): Json => {
      const { message } = user(text);
      return { type: "message", message: { ...message, timestamp: Date.UTC(2026, 0, 1, 0, minute) } };
    };
    const server = serverOn(variant, { a: chain(at("needle 1", 1), at("needle 2", 2)), b: chain(at("needle 3", 3)) });
    const [since, until] = ["2026-01-01T00:02:00Z", "2026-01-01T00:02:00Z"];
    for (const [more, found] of [
      [{ cwd: "/home/me/a" }, [1, 2]],
      [{ cwd: "/home/me" }, []],
      [{ since }, [2, 3]],
      [{ until }, [1, 2]],
      [{ since, until }, [2]],
    ] as const)
      expect(await texts(server, "needle", more)).toEqual(found.map((n) => `needle ${n}`));
  });

  test("finds every branch, and says which entries are on the active path", async () => {
    const entries = [
      user("needle root", { id: "00000001", parentId: null }),
      assistant("needle left", { id: "00000002", parentId: "00000001" }),
      assistant("needle right", { id: "00000003", parentId: "00000001" }),
    ];
    const place = temporaryPlace();
    const server = serverOn(variant, { a: entries }, place);
    const active = async (): Promise<Record<string, boolean>> => {
      const { hits } = await server.result("search_sessions", { query: "needle" });
      return Object.fromEntries(hits.map(({ entryId, onActivePath }: Json) => [entryId.at(-1), onActivePath]).sort());
    };
    const branch = (entryId: string | null) => server.result("branch", { entryId });
    expect(await active()).toEqual({ 1: true, 2: false, 3: true });
    await server.result("switch_session", { sessionId: "a" });
    await branch("00000002");
    expect(await active()).toEqual({ 1: true, 2: true, 3: false });
    await branch(null);
    expect(await active()).toEqual({ 1: false, 2: false, 3: false });
    await branch("00000001");
    await server.result("append", { entries: [user("needle new", { id: "00000004" })] });
    expect(await active()).toEqual({ 1: true, 2: false, 3: false, 4: true });
  });

  test("a position that is only recorded in the state folder counts after the session was left", async () => {
    const place = temporaryPlace();
    const entries = chain(user("needle 1", { id: "0000000a" }), assistant("needle 2", { id: "0000000b" }));
    const server = serverOn(variant, { a: entries }, place);
    await server.result("switch_session", { sessionId: "a" });
    await server.result("branch", { entryId: "0000000a" });
    const { hits } = await serveHere(["--no-session", "--events", "none"], { place }).result("search_sessions", {
      query: "needle",
    });
    const active = hits.filter(({ onActivePath }: Json) => onActivePath);
    expect([hits.length, active.map(({ entryId }: Json) => entryId)]).toEqual([2, ["0000000a"]]);
  });

  test("names entries as the session does when it is open: version 1, missing and repeated ids", async () => {
    const place = temporaryPlace();
    const ids = ["00000001", "00000001", undefined, "custom-id"];
    const file = put(place, "odd", chain(...ids.map((id, n) => user(`needle ${n + 1}`, { id }))));
    const fifth = JSON.stringify({ ...user("needle 5"), id: "00000005", parentId: null });
    appendFileSync(file, `{"type":"message","id":"0000${fifth}\n`);
    const v1 = readFileSync(fileURLToPath(new URL("../../examples/old-v1.jsonl", import.meta.url)), "utf8");
    const asked = JSON.parse(v1.split("\n").find((line) => line.includes('"role":"user"')) as string).message;
    const text = typeof asked.content === "string" ? asked.content : asked.content[0].text;
    writeFileSync(join(file, "..", "old_v1.jsonl"), v1);
    const server = serverOn(variant, {}, place);
    const hitsOf = async (query: string) => (await server.result("search_sessions", { query })).hits;
    const found = [await hitsOf("needle"), await hitsOf(`"${text.slice(0, 20)}"`)];
    expect([found.flat().length > 4, found[1].length > 0]).toEqual([true, true]);
    for (const { sessionPath, entryId, snippet } of found.flat()) {
      await server.result("switch_session", { sessionPath });
      const { entry } = await server.result("get_entry", { entryId });
      expect(JSON.stringify(entry.message.content)).toContain(snippet.slice(0, 15));
    }
  });

  test("pages hold all hits once, while more come", async () => {
    const place = temporaryPlace();
    const entries = (n: number): Json[] =>
      chain(...Array.from({ length: 9 }, (_, i) => user(`needle ${n}.${i} ${"filler ".repeat(i)}`)));
    for (let n = 0; n < 15; n++) put(place, `s${n}`, entries(n));
    const server = serverOn(variant, {}, place);
    const seen: string[] = [];
    let cursor: string | undefined;
    for (let page = 0; ; page++) {
      const reply = await server.result("search_sessions", { query: "needle", limit: 20, cursor });
      seen.push(...reply.hits.map(({ sessionId, entryId }: Json) => `${sessionId} ${entryId}`));
      if (reply.nextCursor === undefined) break;
      cursor = reply.nextCursor;
      if (variant === "by the index") put(place, `new${page}`, entries(100 + page));
    }
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen.filter((hit) => hit.startsWith("s"))).toHaveLength(135);
    for (const bad of ["", "x", "WyJpbmRleCIsOV0=", "WyJzY2FuIiwxXQ=="]) {
      const { data } = await server.failure("search_sessions", { query: "needle", cursor: bad });
      expect(data.name, bad).toBe("cursor_expired");
    }
  });

  test("shows one line around the place, and no halves of characters", async () => {
    const server = serverOn(variant, {
      a: chain(user(`${"🦓".repeat(300)}\n\nbefore needle\tafter\n${"🦓".repeat(300)}`)),
    });
    const [snippet] = await texts(server, "needle");
    expect(snippet).toContain("before needle after");
    expect(snippet).toMatch(/^….*…$/);
    expect(Buffer.from(snippet).toString()).toBe(snippet);
    expect(snippet.length).toBeLessThan(200);
  });
});

test("a cursor of the index with a place that is none has expired", async () => {
  const server = serverOn("by the index", { a: chain(user("needle one"), user("needle two")) });
  const { nextCursor } = await server.result("search_sessions", { query: "needle", limit: 1 });
  const [mode, ...place] = JSON.parse(atob(nextCursor));
  for (const at of [0, 1, 2, 3, 4])
    for (const bad of [-1, 0.5, 1e300]) {
      const cursor = btoa(JSON.stringify([mode, ...place.with(at, bad)]));
      const { data } = await server.failure("search_sessions", { query: "needle", cursor });
      expect(data.name, `${bad} at ${at}`).toBe("cursor_expired");
    }
});

test("what fits best comes first", async () => {
  const texts = [
    `the cat, somewhere in a long text ${"and other words ".repeat(200)} and a dog`,
    "a category of dogma",
    "cat dog",
    `cat ${"word ".repeat(20)} dog`,
  ];
  const server = serverOn("by the index", { a: chain(...texts.map((text) => user(text))) });
  const { hits } = await server.result("search_sessions", { query: "cat dog" });
  const begun = hits.map(({ snippet }: Json) => snippet.slice(0, 9));
  expect(begun).toEqual(["cat dog", "cat word ", "the cat, ", "a categor"]);
});

for (const [count, tier] of [
  [9, SYSTEM],
  [12, SWEEP],
] as const)
  test(`the index and reading give the same hits, in ${count} sessions`, tier, async () => {
    await forSeedsAsync(1, async (random) => {
      const library = temporaryLibrary();
      for (let n = 0; n < count; n++) putRandomSession(random, join(library.root, `--p${n % 3}--`), "/p");
      const [indexed, reading] = [catalogOn(library), catalogOn(library, withoutSqlite)];
      const said = "token|er|e|getuser header|录|会议 error|läuft|zeb xy|session token|арр|поиск|tokencache";
      for (const query of said.split("|")) {
        const limit = 1 + random.int(20);
        const expected = readHits(library.root, query.split(" "));
        const found = await allHits(indexed, { query, limit });
        expect(places(found), query).toEqual(expected);
        expect(places(await allHits(reading, { query, limit })), query).toEqual(expected);
        const withTools = readHits(library.root, query.split(" "), ["user", "assistant", "toolResult"]);
        expect(places(await allHits(indexed, { query, limit, toolResults: true })), query).toEqual(withTools);
      }
      let seen = 0;
      for (const query of ["token", "er", "录", "getuser header", ""]) {
        const ways = [{ tool: "edit" }, { file: "src/store.ts" }, { tool: "bash", file: "store.ts" }];
        // Without words, something else must be asked for.
        for (const more of query === "" ? ways : [{}, ...ways]) {
          const { tool, file } = more as { tool?: string; file?: string };
          const tools = tool === undefined ? tool : [tool];
          const request = { query, limit: 20, parts: ["toolCall"] as const, tools, file };
          const calls = readCalls(library.root, query.split(" "), more);
          expect(places(await allHits(indexed, request)), query).toEqual(calls);
          expect(places(await allHits(reading, request)), query).toEqual(calls);
          seen += calls.length;
        }
      }
      expect(seen).toBeGreaterThan(20);
    });
  });

test("what was said is indexed after a list, before anybody searches", async () => {
  const library = temporaryLibrary();
  const folder = join(library.root, "--home-me-app--");
  mkdirSync(folder, { recursive: true });
  const files = Array.from({ length: 30 }, (_, n) => join(folder, `2026_s${n}.jsonl`));
  for (const [n, file] of files.entries())
    writeFileSync(file, fileText(headerText({ id: `s${n}` }), userText("0000000a", null, `word${n} of many`)));
  let opened: string[] = [];
  let allRead = (): void => {};
  const disk = {
    ...realDisk,
    openRead(path: string) {
      opened.push(path);
      if (files.every((file) => opened.includes(file))) allRead();
      return realDisk.openRead(path);
    },
  };
  const catalog = catalogOn(library, { disk, env: later, indexAhead: true });
  expect((await listed(catalog)).length).toBe(30);
  opened = [];
  await new Promise<void>((resolve) => {
    allRead = resolve;
  });
  opened = [];
  expect(places(await allHits(catalog, { query: "word7" }))).toEqual([`${files[7]} 0000000a`]);
  expect(opened.filter((path) => path.endsWith(".jsonl"))).toEqual([files[7]]);
});

test("of texts that match equally, the latest comes first, whichever was indexed first, on one page or on several", async () => {
  const at = (minute: number, text: string): Json => ({
    ...user(text),
    timestamp: new Date(Date.UTC(2026, 0, 24, 16, minute)).toISOString(),
  });
  // Sessions are indexed from the one with the oldest last message on.
  const server = serverOn("by the index", {
    a: chain(at(3, "same"), at(4, "b")),
    b: chain(at(1, "same"), at(9, "b")),
    c: chain(at(2, "same"), at(5, "b")),
  });
  const whole = await server.result("search_sessions", { query: "same" });
  expect(whole.hits.map(({ sessionId }: Json) => sessionId)).toEqual(["a", "c", "b"]);
  const paged = await everyPage(server, "search_sessions", { query: "same", limit: 1 }, "hits");
  expect(paged.map(({ sessionId }: Json) => sessionId)).toEqual(["a", "c", "b"]);
});

test("a query asks for few words of all that there are, however long it is", () => {
  const terms = Array.from({ length: 20_000 }, (_, i) => `word${i}`);
  const asked: string[] = [];
  const { words, parts } = toExpressions(terms, (part) => {
    asked.push(part);
    return [part];
  });
  expect(toExpressions(["会议".repeat(40_000)], () => [])?.parts?.length).toBeLessThan(2000);
  expect([asked.length < 100, words?.includes("word10000"), (parts ?? "").length < 2000]).toEqual([true, true, true]);
});

test("the first search reports one count of the bytes of the files, which does not go back", async () => {
  const place = temporaryPlace();
  const sizes = [1, 2, 3].map((n) => statSync(putSession(place, n)).size);
  const server = serveLibrary(place);
  const parts = ["user", "assistant", "toolCall", "toolResult"];
  await server.result("search_sessions", { query: "x", in: parts, _meta: { progressToken: 1 } });
  const steps: Json[] = server.events.flatMap(({ method, params }) => (method === "$/progress" ? [params.value] : []));
  const all = sizes.reduce((sum, size) => sum + size, 0);
  expect(steps.length).toBeGreaterThan(1);
  const done = steps.map((value) => value.done);
  expect(done).toEqual([...done].sort((a, b) => a - b));
  expect(steps.at(-1)).toMatchObject({ done: all, total: all });
  expect(steps.filter(({ total }: Json) => total > all)).toEqual([]);
});
