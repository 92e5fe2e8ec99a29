/** search_sessions for what tools were given, at the wire: by the index and by reading every file. */

import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { assistant, user } from "../support/drafts.ts";
import { chain, everyPage, put, serverOn, VARIANTS } from "../support/searching.ts";
import { type Json, temporaryPlace } from "../support/server.ts";

/** An assistant's message with these calls, each a name and its arguments. */
const calling = (...calls: readonly [string, unknown][]): Json => ({
  type: "message",
  message: {
    role: "assistant",
    content: calls.map(([name, args], n) => ({ type: "toolCall", id: `c${n}`, name, arguments: args })),
  },
});
const result = (toolName: string, text: string, more: object = {}): Json => ({
  type: "message",
  message: { role: "toolResult", toolCallId: "c0", toolName, content: [{ type: "text", text }], ...more },
});
const command = (command: string, output: string): Json => ({
  type: "message",
  message: { role: "bashExecution", command, output },
});

describe.each(VARIANTS)("%s", (variant) => {
  type Server = ReturnType<typeof serverOn>;
  /** Hits as `part tool: line`, in an order that does not depend on how they are found. */
  const lines = async (server: Server, params: object): Promise<string[]> => {
    const { hits } = await server.result("search_sessions", params);
    return hits.map(({ part, tool, line }: Json) => `${part} ${tool ?? "-"}: ${line}`).sort();
  };

  const work = chain(
    user("please migrate the store"),
    { type: "message", message: { ...calling(["bash", { command: "npm run migrate" }]).message, timestamp: 2000 } },
    result("bash", "migrated 3 tables"),
    calling(["read", { path: "src/store.ts" }], ["edit", { path: "src/cli.ts", oldText: "migrate", newText: "move" }]),
    result("edit", "done", { details: { path: "/home/me/a/src/store.ts" } }),
    assistant("The migrate script is done."),
    command("npm run migrate -- --dry", "dry run"),
  );

  const [SPOKEN, SAID] = ["assistant -: The migrate script is done.", "user -: please migrate the store"];
  const [RUN, DRY, EDIT] = ["npm run migrate", "npm run migrate -- --dry", "migrate"].map(
    (line, n) => `toolCall ${n < 2 ? "bash" : "edit"}: ${line}`,
  );
  const OWN = "bashExecution bash: npm run migrate -- --dry";
  const OUTPUT = "toolResult bash: migrated 3 tables";
  const ALL_EDITS = ["toolCall edit: /home/me/a/src/store.ts", "toolCall edit: src/cli.ts", "toolResult edit: done"];

  test.each<[object, string[]]>([
    // Calls are found where they are asked for, each by itself, and are in no search without it.
    [{ query: "migrate" }, [SPOKEN, SAID]],
    [{ query: "migrate", in: ["toolCall"] }, [RUN, DRY, EDIT]],
    [{ query: "migrate", in: ["user", "assistant", "toolCall"] }, [SPOKEN, RUN, DRY, EDIT, SAID]],
    [{ query: "npm src/cli.ts", in: ["toolCall"] }, []],
    [{ query: '"npm run migrate"', in: ["toolCall"], role: "assistant" }, [RUN]],
    [{ query: "migrate", in: ["user"] }, [SAID]],
    // A command of the user is one hit, with its output or without.
    [{ query: "dry", in: ["toolCall", "bashExecution"] }, [OWN]],
    [{ query: "move", in: ["user"], includeToolResults: true }, []],
    [{ query: "tables", in: ["user"], includeToolResults: true }, [OUTPUT]],
    // A tool is asked for with its results, in any case, and several are.
    [{ query: "migrat", tool: "Bash" }, [OWN, RUN, OUTPUT]],
    [{ query: "migrate", tool: "bash", in: ["toolCall"] }, [RUN, DRY]],
    [{ tool: "edit" }, ALL_EDITS],
    [{ tool: ["read", "no such"], query: "" }, ["toolCall read: src/store.ts"]],
    [{ tool: "bas" }, []],
    [{ query: "migrate", tool: "bash", since: "1970-01-01T00:00:02Z", until: "1970-01-02" }, [RUN]],
    [{ query: "", in: ["toolCall"] }, []],
  ])("%j", async (params, found) => {
    expect(await lines(serverOn(variant, { a: work }), params)).toEqual(found);
  });

  const tried = chain(
    result("bash", "ENOENT: no such file", { isError: true }),
    result("read", "ENOENT is what it says"),
    { type: "message", message: { role: "bashExecution", command: "make", output: "no rule", exitCode: 2 } },
    { type: "message", message: { role: "bashExecution", command: "make all", output: "done", exitCode: 0 } },
    assistant("The bash call failed."),
  );
  const [FAILED, BROKEN] = ["toolResult bash: ENOENT: no such file", "bashExecution bash: make"];

  test.each<[object, string[]]>([
    [{ failed: true }, [BROKEN, FAILED]],
    [{ failed: true, query: "enoent" }, [FAILED]],
    [{ failed: true, tool: "read" }, []],
    [{ failed: true, in: ["bashExecution"] }, [BROKEN]],
    [{ failed: false, query: "enoent", includeToolResults: true }, [FAILED, "toolResult read: ENOENT is what it says"]],
  ])("what failed: %j", async (params, found) => {
    expect(await lines(serverOn(variant, { a: tried }), params)).toEqual(found);
  });

  test("a thousand tools are asked for", async () => {
    const tool = Array.from({ length: 1000 }, (_, i) => `tool ${i}`);
    expect(await lines(serverOn(variant, { a: work }), { tool: [...tool, "read"] })).toEqual([
      "toolCall read: src/store.ts",
    ]);
  });

  test("a file is asked for by its path or the end of it", async () => {
    const server = serverOn(variant, { a: work, b: chain(calling(["bash", { command: "cat ../a/src/store.ts" }])) });
    const both = ["toolCall edit: /home/me/a/src/store.ts", "toolCall read: src/store.ts"];
    const all = ["toolCall bash: cat ../a/src/store.ts", ...both];
    for (const file of ["store.ts", "src/store.ts", "a/src/store.ts", "/home/me/a/src/store.ts", "src\\store.ts"])
      expect(await lines(server, { file }), file).toEqual(all);
    for (const file of ["tore.ts", "rc/store.ts", "/src/store.ts", "b/src/store.ts", "src", "/", ".", "store.ts/x"])
      expect(await lines(server, { file }), file).toEqual([]);
    expect(await lines(server, { file: "store.ts", tool: "edit" })).toEqual([both[0]]);
    expect(await lines(server, { file: "cli.ts", query: "move" })).toEqual(["toolCall edit: move"]);
    expect(await lines(server, { file: "store.ts", cwd: "/home/me/b" })).toEqual([all[0]]);
  });

  test("a hit says where it is, when, and in which session", async () => {
    const place = temporaryPlace();
    const ids = ["0000000a-1111", "0000000a-1122", "0000000b"];
    for (const id of ids) put(place, id, work);
    const server = serverOn(variant, {}, place);
    const request = { query: '"run migrate"', in: ["toolCall"], role: "assistant" };
    const { hits } = await server.result("search_sessions", request);
    expect(hits.map(({ shortId }: Json) => shortId).sort()).toEqual(["0000000a-111", "0000000a-112", "0000000b"]);
    expect(hits.find(({ sessionId }: Json) => sessionId === ids[2])).toMatchObject({
      role: "assistant",
      part: "toolCall",
      tool: "bash",
      snippet: "npm run migrate",
      line: "npm run migrate",
      at: "1970-01-01T00:00:02.000Z",
      name: null,
      firstMessage: "please migrate the store",
      cwd: `/home/me/${ids[2]}`,
      onActivePath: true,
    });
  });

  test("the line is that with most of the words, whole if it is short", async () => {
    const text = `npm is a tool\n${"x".repeat(500)}\n  first npm then migrate ΟΔΟΣ  \nmigrate`;
    const long = `${"word ".repeat(100)}needle${" word".repeat(100)}`;
    const server = serverOn(variant, { a: chain(user(text), user(`İ\n${long}\nend`)) });
    const { hits } = await server.result("search_sessions", { query: "NPM migrate" });
    expect(hits[0].line).toBe("first npm then migrate ΟΔΟΣ");
    const [{ line }] = (await server.result("search_sessions", { query: "needle" })).hits;
    expect(line).toMatch(/^…(?:\S* )?(?:word )+needle(?: word)+ ?\S*…$/);
    expect(line.length).toBeLessThan(250);
  });

  test("pages hold every call once, of entries with several too", async () => {
    const entries = chain(
      ...Array.from({ length: 30 }, (_, n) =>
        calling(...Array.from({ length: n % 5 }, (_, k): [string, unknown] => ["bash", { command: `run ${n} ${k}` }])),
      ),
    );
    const server = serverOn(variant, { a: entries.slice(0, 15), b: entries.slice(15) });
    const hits = await everyPage(server, "search_sessions", { tool: "bash", limit: 7 }, "hits");
    const seen = hits.map(({ line }) => line);
    expect(seen).toHaveLength(60);
    expect(new Set(seen).size).toBe(60);
  });

  test("calls that came since are found, and what follows a change of the directory", async () => {
    const place = temporaryPlace();
    const file = put(place, "a", work);
    const server = serverOn(variant, {}, place);
    expect(await lines(server, { file: "/home/me/a/src/cli.ts" })).toHaveLength(1);
    const more = { ...calling(["bash", { command: "cat src/cli.ts" }]), id: "0000ffff", parentId: work.at(-1)?.id };
    appendFileSync(file, `${JSON.stringify({ ...more, timestamp: "2026-01-24T16:22:26.831Z" })}\n`);
    expect(await lines(server, { file: "/home/me/a/src/cli.ts" })).toHaveLength(2);
    // The lines are as long as before and where they were.
    put(place, "a", work, { cwd: "/home/me/z" });
    expect(await lines(server, { file: "/home/me/a/src/cli.ts" })).toEqual([]);
    expect(await lines(server, { file: "/home/me/z/src/cli.ts" })).toHaveLength(1);
  });

  test("calls that are not as they should be are found by what they have", async () => {
    const place = temporaryPlace();
    const odd: unknown[] = [
      '{"command":"needle 0"}',
      "needle 1",
      ["needle 2"],
      { a: { b: [{ c: "needle 3" }] } },
      { command: "\ud800needle 4\udc00" },
      { command: "\0needle\0 5" },
      "DEEP",
      { content: `needle 7 ${"x".repeat(1 << 18)} hidden`, path: "src/large.ts" },
      { path: "src/\ud800.ts", command: "needle 8" },
    ];
    const bad: unknown[] = [null, 5, true, [], {}, [[[]]], "{", ""];
    const tools = ["\0", "\ud800", "t".repeat(1 << 18), "'\"; DROP TABLE said", ""];
    const calls = [...odd, ...bad].map((args) => calling(["bash", args]));
    const file = put(place, "a", chain(...calls, calling(...tools.map((name): [string, unknown] => [name, {}]))));
    const deep = `${"[".repeat(20_000)}"needle 6"${"]".repeat(20_000)}`;
    writeFileSync(file, readFileSync(file, "utf8").replace('"DEEP"', deep));
    const server = serverOn(variant, {}, place);
    const found = await lines(server, { query: "needle", in: ["toolCall"] });
    for (let n = 0; n < odd.length; n++)
      expect(
        found.filter((line) => line.includes(`needle ${n}`) || line.includes(`needle\0 ${n}`)),
        `${n}`,
      ).toHaveLength(1);
    expect(await lines(server, { query: "hidden", in: ["toolCall"] })).toEqual([]);
    expect(await lines(server, { file: "src/large.ts" })).toHaveLength(1);
    expect(await lines(server, { tool: "bash" })).toHaveLength(odd.length + bad.length);
    for (const tool of tools.filter((name) => name !== ""))
      expect(await lines(server, { tool }), tool.slice(0, 9)).toHaveLength(1);
  });

  test.each([
    {},
    { in: ["toolCall"] },
    { query: "x", in: [] },
    { query: "x", in: ["calls"] },
    { tool: "" },
    { file: "" },
    { tool: [] },
  ])("%j cannot be asked", async (params) => {
    expect((await serverOn(variant, { a: work }).failure("search_sessions", params)).code).toBe(-32602);
  });
});

test.each(VARIANTS)("a session that is no plain file has the same calls, %s", async (variant) => {
  const place = temporaryPlace();
  const calls = calling(["bash", { command: "npm run migrate" }], ["edit", { path: "a.ts" }]);
  appendFileSync(put(place, "a", chain(user("x"), calls)), `{"type":"message","id":"0000\n`);
  const { hits } = await serverOn(variant, {}, place).result("search_sessions", { file: "a.ts" });
  expect(hits).toMatchObject([{ tool: "edit", line: "a.ts", entryId: expect.any(String) }]);
});

test("params that are longer than any search needs are refused", async () => {
  const server = serverOn("by the index", { a: chain(calling(["bash", { command: "cat src/store.ts" }])) });
  const [longest, most] = [1 << 20, 10_000];
  for (const over of [0, 1])
    for (const params of [
      { query: "q".repeat((1 << 16) + over) },
      { file: "f".repeat(8192 + over) },
      { tool: "t".repeat(longest + over) },
      { tool: ["t".repeat(longest + over)] },
      { tool: Array(most + over).fill("t") },
    ]) {
      const { result, error } = await server.request("search_sessions", params);
      expect([result?.hits, error?.code], Object.keys(params)[0]).toEqual(over ? [undefined, -32602] : [[], undefined]);
    }
});
