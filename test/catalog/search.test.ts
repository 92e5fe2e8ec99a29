/** search_sessions at the wire, by the index and by reading every file. */

import { appendFileSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { expressionOf } from "../../src/core/search/query.ts";
import { realDisk } from "../../src/storage/fs/disk.ts";
import {
  allHits,
  catalogOn,
  listed,
  places,
  randomSession,
  readCalls,
  readHits,
  realEnv,
  temporaryLibrary,
  withoutSqlite,
} from "../support/catalog.ts";
import { assistant, user } from "../support/drafts.ts";
import { putSession, serveLibrary } from "../support/lifecycle.ts";
import { fileText, headerText, userText } from "../support/lines.ts";
import { forSeedsAsync } from "../support/random.ts";
import { chain, put, serverOn, VARIANTS } from "../support/searching.ts";
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

  test("finds text in scripts without spaces, from one character on, and in either composition", async () => {
    const all = [
      "会议记录在这里",
      "検索エンジン",
      "Größe ÄNDERN",
      "cafe\u0301 au lait",
      "поиск по тексту",
      "🦓 zebra",
      "ΟΔΟΣ",
      "한국어 검색",
    ];
    const server = serverOn(variant, { a: chain(...all.map((text) => user(text))) });
    const expected: Record<string, number> = {
      会: 0,
      议记: 0,
      会议记录: 0,
      索: 1,
      エンジン: 1,
      größe: 2,
      ändern: 2,
      nder: 2,
      café: 3,
      af: 3,
      ПОИСК: 4,
      екс: 4,
      "🦓": 5,
      οδοσ: 6,
      검색: 7,
      어: 7,
    };
    for (const [query, n] of Object.entries(expected)) expect(await texts(server, query), query).toEqual([all[n]]);
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
        user("needle user"),
        assistant("needle assistant"),
        tool("needle tool"),
        { type: "message", message: { role: "bashExecution", command: "echo needle", output: "bash" } },
        { type: "compaction", summary: "needle", firstKeptEntryId: "x", tokensBefore: 1 },
        { type: "custom", customType: "x", data: "needle" },
        { type: "message", message: { role: "custom", content: "needle" } },
      ),
    });
    const said = ["needle assistant", "needle user"];
    expect(await texts(server, "needle")).toEqual(said);
    expect(await texts(server, "needle", { includeToolResults: true })).toEqual([
      "echo needle bash",
      ...said.slice(0, 1),
      "needle tool",
      said[1],
    ]);
    for (const [role, found] of [
      ["user", "needle user"],
      ["assistant", "needle assistant"],
      ["toolResult", "needle tool"],
      ["bashExecution", "echo needle bash"],
    ])
      expect(await texts(server, "needle", { role })).toEqual([found]);
  });

  test("keeps to a working directory and a time", async () => {
    const at = (text: string, minute: number): Json => {
      const { message } = user(text);
      return { type: "message", message: { ...message, timestamp: Date.UTC(2026, 0, 1, 0, minute) } };
    };
    const server = serverOn(variant, { a: chain(at("needle 1", 1), at("needle 2", 2)), b: chain(at("needle 3", 3)) });
    expect(await texts(server, "needle", { cwd: "/home/me/a" })).toEqual(["needle 1", "needle 2"]);
    expect(await texts(server, "needle", { cwd: "/home/me" })).toEqual([]);
    expect(await texts(server, "needle", { since: "2026-01-01T00:02:00Z" })).toEqual(["needle 2", "needle 3"]);
    expect(await texts(server, "needle", { until: "2026-01-01T00:02:00Z" })).toEqual(["needle 1", "needle 2"]);
    expect(await texts(server, "needle", { since: "2026-01-01T00:02:00Z", until: "2026-01-01T00:02:00Z" })).toEqual([
      "needle 2",
    ]);
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
    expect(await active()).toEqual({ 1: true, 2: false, 3: true });
    await server.result("switch_session", { sessionId: "a" });
    await server.result("branch", { entryId: "00000002" });
    expect(await active()).toEqual({ 1: true, 2: true, 3: false });
    await server.result("branch", { entryId: null });
    expect(await active()).toEqual({ 1: false, 2: false, 3: false });
    await server.result("branch", { entryId: "00000001" });
    await server.result("append", { entries: [user("needle new", { id: "00000004" })] });
    expect(await active()).toEqual({ 1: true, 2: false, 3: false, 4: true });
  });

  test("a position that is only recorded in the state folder counts after the session was left", async () => {
    const place = temporaryPlace();
    const server = serverOn(
      variant,
      { a: chain(user("needle 1", { id: "0000000a" }), assistant("needle 2", { id: "0000000b" })) },
      place,
    );
    await server.result("switch_session", { sessionId: "a" });
    await server.result("branch", { entryId: "0000000a" });
    const other = serveHere(["--no-session", "--events", "none"], { place });
    const { hits } = await other.result("search_sessions", { query: "needle" });
    expect(hits.map(({ entryId, onActivePath }: Json) => [entryId, onActivePath]).sort()).toEqual([
      ["0000000a", true],
      ["0000000b", false],
    ]);
  });

  test("names entries as the session does when it is open: version 1, missing and repeated ids", async () => {
    const place = temporaryPlace();
    const file = put(
      place,
      "odd",
      chain(
        user("needle 1", { id: "00000001" }),
        user("needle 2", { id: "00000001" }),
        user("needle 3", { id: undefined }),
        user("needle 4", { id: "custom-id" }),
      ),
    );
    appendFileSync(
      file,
      `{"type":"message","id":"0000${JSON.stringify({ ...user("needle 5"), id: "00000005", parentId: null })}\n`,
    );
    const v1 = readFileSync(fileURLToPath(new URL("../../examples/old-v1.jsonl", import.meta.url)), "utf8");
    const [header, ...rest] = v1
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    const asked = rest.find(({ message }: Json) => message?.role === "user").message;
    const text = typeof asked.content === "string" ? asked.content : asked.content[0].text;
    writeFileSync(join(file, "..", `old_${header.id}.jsonl`), v1);
    const server = serverOn(variant, {}, place);
    const found = [
      ...(await server.result("search_sessions", { query: "needle" })).hits,
      ...(await server.result("search_sessions", { query: `"${text.slice(0, 20)}"` })).hits,
    ];
    expect(found.length).toBeGreaterThan(4);
    for (const { sessionPath, entryId, snippet } of found) {
      await server.result("switch_session", { sessionPath });
      const { entry } = await server.result("get_entry", { entryId });
      expect(JSON.stringify(entry.message.content)).toContain(snippet.slice(0, 15));
    }
  });

  test("pages hold all hits once, while more come", async () => {
    const place = temporaryPlace();
    const entries = (n: number): Json[] =>
      chain(...Array.from({ length: 9 }, (_, i) => user(`needle ${n}.${i} ${"filler ".repeat(i)}`)));
    const server = serverOn(
      variant,
      Object.fromEntries(Array.from({ length: 15 }, (_, n) => [`s${n}`, entries(n)])),
      place,
    );
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
  for (const at of [0, 1, 2, 3, 5])
    for (const bad of [-1, 0.5, 1e300]) {
      const cursor = btoa(JSON.stringify([mode, ...place.with(at, bad)]));
      const { data } = await server.failure("search_sessions", { query: "needle", cursor });
      expect(data.name, `${bad} at ${at}`).toBe("cursor_expired");
    }
});

test("what fits best comes first", async () => {
  const server = serverOn("by the index", {
    a: chain(
      user(`the cat, somewhere in a long text ${"and other words ".repeat(200)} and a dog`),
      user("a category of dogma"),
      user("cat dog"),
      user(`cat ${"word ".repeat(20)} dog`),
    ),
  });
  const { hits } = await server.result("search_sessions", { query: "cat dog" });
  expect(hits.map(({ snippet }: Json) => snippet.slice(0, 9))).toEqual([
    "cat dog",
    "cat word ",
    "the cat, ",
    "a categor",
  ]);
});

for (const [count, tier] of [
  [9, SYSTEM],
  [12, SWEEP],
] as const)
  test(`the index and reading give the same hits, in ${count} sessions`, tier, async () => {
    await forSeedsAsync(1, async (random) => {
      const library = temporaryLibrary();
      for (let n = 0; n < count; n++) {
        const folder = join(library.root, `--p${n % 3}--`);
        mkdirSync(folder, { recursive: true });
        const { id, text } = randomSession(random, "/p");
        writeFileSync(join(folder, `2026_${id}.jsonl`), text);
      }
      const [indexed, reading] = [catalogOn(library), catalogOn(library, withoutSqlite)];
      for (const query of [
        "token",
        "er",
        "e",
        "getuser header",
        "录",
        "会议 error",
        "läuft",
        "zeb xy",
        "session token",
        "арр",
        "поиск",
        "tokencache",
      ]) {
        const limit = 1 + random.int(20);
        const expected = readHits(library.root, query.split(" "));
        const found = await allHits(indexed, { query, limit });
        expect(places(found), query).toEqual(expected);
        expect(places(await allHits(reading, { query, limit })), query).toEqual(expected);
        const tools = await allHits(indexed, { query, limit, toolResults: true });
        expect(places(tools), query).toEqual(
          readHits(library.root, query.split(" "), ["user", "assistant", "toolResult"]),
        );
      }
      let seen = 0;
      for (const query of ["token", "er", "录", "getuser header", ""]) {
        const ways = [{ tool: "edit" }, { file: "src/store.ts" }, { tool: "bash", file: "store.ts" }];
        // Without words, something else must be asked for.
        for (const more of query === "" ? ways : [{}, ...ways]) {
          const { tool, file } = more as { tool?: string; file?: string };
          const request = {
            query,
            limit: 20,
            parts: ["toolCall"] as const,
            tools: tool === undefined ? tool : [tool],
            file,
          };
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
  // What changed just now is read again, so it is later here.
  const env = { ...realEnv, now: () => Date.now() + 1000 };
  const catalog = catalogOn(library, { disk, env, indexAhead: true });
  expect((await listed(catalog)).length).toBe(30);
  opened = [];
  await new Promise<void>((resolve) => {
    allRead = resolve;
  });
  opened = [];
  expect(places(await allHits(catalog, { query: "word7" }))).toEqual([`${files[7]} 0000000a`]);
  expect(opened.filter((path) => path.endsWith(".jsonl"))).toEqual([files[7]]);
});

test("a query asks for few words of all that there are, however long it is", () => {
  const terms = Array.from({ length: 20_000 }, (_, i) => `word${i}`);
  const asked: string[] = [];
  const { words, parts } = expressionOf(terms, (part) => {
    asked.push(part);
    return [part];
  });
  expect(expressionOf(["会议".repeat(40_000)], () => [])?.parts?.length).toBeLessThan(2000);
  expect([asked.length < 100, words?.includes("word10000"), (parts ?? "").length < 2000]).toEqual([true, true, true]);
});

test("the first search reports one count of the bytes of the files, which does not go back", async () => {
  const place = temporaryPlace();
  const sizes = [1, 2, 3].map((n) => statSync(putSession(place, n)).size);
  const server = serveLibrary(place);
  const parts = ["user", "assistant", "toolCall", "toolResult"];
  await server.result("search_sessions", { query: "x", in: parts, _meta: { progressToken: 1 } });
  const told = server.events
    .filter(({ method }: Json) => method === "$/progress")
    .map(({ params }: Json) => params.value as Json);
  const all = sizes.reduce((sum, size) => sum + size, 0);
  expect(told.length).toBeGreaterThan(1);
  expect(told.map(({ done }: Json) => done)).toEqual(
    told.map(({ done }: Json) => done).sort((a: number, b: number) => a - b),
  );
  expect(told.at(-1).done).toBe(told.at(-1).total);
  expect(told.at(-1).total).toBe(all);
  expect(told.filter(({ total }: Json) => total > all)).toEqual([]);
});
