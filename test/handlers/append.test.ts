/** Appending entries: where they go, what is refused, and that their bytes are stored as they were sent. */

import { readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { assistant, toolCall, toolResult, user } from "../support/drafts.ts";
import { frame, type HereServer, type Json, serveHere } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

function quiet(args: string[] = ["--no-session"]): HereServer {
  return serveHere([...args, "--events", "none"]);
}

test("entries continue the leaf, each the one before", async () => {
  const server = quiet();
  const { entryIds } = await server.result("append", { entries: [user("a"), assistant("b"), user("c")] });
  const next = await server.result("append", { entries: [assistant("d")] });
  const { entries, leafId } = await server.result("get_entries");
  expect(entries.map(({ id }: Json) => id)).toEqual([...entryIds, ...next.entryIds]);
  expect(entries.map(({ parentId }: Json) => parentId)).toEqual([null, ...entryIds]);
  expect(next.leafId).toBe(leafId);
  expect(leafId).toBe(next.entryIds[0]);
  for (const entry of entries) expect(new Date(entry.timestamp).toISOString()).toBe(entry.timestamp);
});

test("an id, a parent and a timestamp may be given", async () => {
  const server = quiet();
  await server.result("append", { entries: [user("a", { id: "a" }), assistant("b", { id: "b" })] });
  const timestamp = "2020-01-01T00:00:00.000Z";
  expect(
    await server.result("append", { entries: [user("c", { id: "c", parentId: "a", timestamp }), user("d")] }),
  ).toEqual({
    entryIds: ["c", expect.any(String)],
    leafId: expect.any(String),
  });
  const { entries } = await server.result("get_entries", { since: "b" });
  expect(entries).toMatchObject([{ id: "c", parentId: "a", timestamp }, { parentId: "c" }]);
  expect((await server.result("get_state")).branchCount).toBe(1);
});

test("a parent may be an entry of the same call, or null for another root", async () => {
  const server = quiet();
  await server.result("append", {
    entries: [
      user("a", { id: "a" }),
      user("b", { id: "b" }),
      user("c", { id: "c", parentId: "a" }),
      user("d", { id: "d", parentId: null }),
    ],
  });
  const { nodes } = await server.result("get_tree");
  expect(nodes.map(({ id, parentId }: Json) => [id, parentId])).toEqual([
    ["a", null],
    ["b", "a"],
    ["c", "a"],
    ["d", null],
  ]);
  expect(await server.result("get_messages")).toEqual({ messages: [{ role: "user", content: "d" }] });
});

describe("session_tree tells that the branch changed", () => {
  test.each<[string, Json, boolean]>([
    ["not when the leaf is continued", {}, false],
    ["not when the leaf is named", { parentId: "b" }, false],
    ["when another entry is", { parentId: "a" }, true],
    ["when null is", { parentId: null }, true],
  ])("%s", async (_what, more, tells) => {
    const server = serveHere(["--no-session", "--events", "session_tree"]);
    await server.result("append", { entries: [user("a", { id: "a" }), assistant("b", { id: "b" })] });
    await server.result("append", { entries: [user("c", { id: "c", ...more })] });
    const { messages } = await server.finish();
    expect(messages.map(({ params }) => params)).toEqual(
      tells ? [expect.objectContaining({ newLeafId: "c", oldLeafId: "b", leafId: "c" })] : [],
    );
  });
});

describe("nothing is written when one of the entries is refused", () => {
  test.each<[string, Json, Json]>([
    [
      "an unknown parent",
      user("x", { parentId: "nope" }),
      { code: -32002, data: { name: "entry_not_found", entryId: "nope" } },
    ],
    ["an id that is taken", user("x", { id: "a" }), { code: -32803, data: { name: "invalid_entry", entryId: "a" } }],
    ["an id of the same call", user("x", { id: "fine" }), { code: -32803, data: { name: "invalid_entry" } }],
    ["an empty id", user("x", { id: "" }), { code: -32803, data: { name: "invalid_entry" } }],
    ["an id with other characters", user("x", { id: "a~2" }), { code: -32803, data: { name: "invalid_entry" } }],
    ["an id that is a path", user("x", { id: "../a" }), { code: -32803, data: { name: "invalid_entry" } }],
    ["an id that is too long", user("x", { id: "i".repeat(129) }), { code: -32803, data: { name: "invalid_entry" } }],
    ["an id that is a number", user("x", { id: 5 }), { code: -32602, data: { issues: [{ path: "entries.1.id" }] } }],
    [
      "a parent that is a number",
      user("x", { parentId: 5 }),
      { code: -32602, data: { issues: [{ path: "entries.1.parentId" }] } },
    ],
    ["a header", { type: "session", id: "s" }, { code: -32602, data: { issues: [{ path: "entries.1.type" }] } }],
    ["an empty type", { type: "" }, { code: -32602, data: { issues: [{ path: "entries.1.type" }] } }],
    [
      "a message without role",
      { type: "message", message: {} },
      { code: -32602, data: { issues: [{ path: "entries.1.message.role" }] } },
    ],
    [
      "a label without target",
      { type: "label", label: "x" },
      { code: -32602, data: { issues: [{ path: "entries.1.targetId" }] } },
    ],
    ["no object", 5, { code: -32602, data: { issues: [{ path: "entries.1" }] } }],
  ])("%s", async (_what, draft, error) => {
    const server = quiet([]);
    await server.result("append", { entries: [user("a", { id: "a" })] });
    const { sessionFile } = await server.result("get_state");
    const before = readFileSync(sessionFile, "utf8");
    expect(await server.failure("append", { entries: [user("fine", { id: "fine" }), draft] })).toMatchObject(error);
    expect(await server.result("get_state")).toMatchObject({ entryCount: 1, leafId: "a" });
    expect(readFileSync(sessionFile, "utf8")).toBe(before);
  });
});

test("types and roles are any, those that JavaScript gives a meaning too", async () => {
  const server = quiet();
  const names = ["unheard_of", "constructor", "__proto__", "toString", "hasOwnProperty", "é 😀", "x".repeat(1000)];
  for (const name of names) {
    await server.result("append", { entries: [{ type: name }] });
    await server.result("append", { entries: [{ type: "message", message: { role: name, content: name } }] });
  }
  const { entries } = await server.result("get_entries", { types: names });
  expect(entries.map(({ type }: Json) => type)).toEqual(names);
  const { messages } = await server.result("get_messages");
  expect(messages.map(({ role }: Json) => role)).toEqual(names);
  expect(
    (await server.result("get_tree")).nodes.filter(({ role }: Json) => role).map(({ role }: Json) => role),
  ).toEqual(names);
});

describe("the bytes that were sent", () => {
  const MEMBERS =
    '"customType":"x","data":{"big":9007199254740993,"far":1e400,"minus":-0,"one":1.0,"e":1E+2,"esc":"\\u0041\\/é\\u2028😀","a":1,"a":2},"of a later version":[ 1 ,\t2 ]';

  test("are stored as they are, with the base members before them", async () => {
    const server = quiet([]);
    server.send(
      `{"jsonrpc":"2.0","id":"raw","method":"append","params":{"entries":[{ "id":"raw",${MEMBERS} , "type":"custom"}]}}`,
    );
    expect((await server.reply("raw")).result.entryIds).toEqual(["raw"]);
    const { sessionFile } = await server.result("get_state");
    const [header, line, end] = readFileSync(sessionFile, "utf8").split("\n");
    expect(JSON.parse(header)).toMatchObject({ type: "session", version: 3 });
    expect(line).toMatch(/^\{"type":"custom","id":"raw","parentId":null,"timestamp":"[^"]+",/);
    expect(line.endsWith(`,${MEMBERS}}`)).toBe(true);
    expect(end).toBe("");
  });

  test("come back as they are, also after the next start, in a fork and in a clone", async () => {
    const server = quiet([]);
    server.send(
      `{"jsonrpc":"2.0","id":"raw","method":"append","params":{"entries":[{"type":"unheard_of","id":"raw",${MEMBERS}}]}}`,
    );
    await server.reply("raw");
    const { sessionFile } = await server.result("get_state");
    const [, line] = readFileSync(sessionFile, "utf8").split("\n");
    for (const method of ["fork", "clone"]) {
      const copy = await server.result(method, method === "fork" ? { entryId: "raw", position: "at" } : {});
      expect(readFileSync(copy.sessionFile, "utf8").split("\n")[1], method).toBe(line);
    }
    await server.finish();
    const later = serveHere(["--session", sessionFile, "--events", "none"], { place: server.place });
    const chunks: Buffer[] = [];
    later.output.on("data", (chunk: Buffer) => chunks.push(chunk));
    await later.result("get_entries");
    expect(Buffer.concat(chunks).toString()).toContain(`"entries":[${line}]`);
  });

  test("become one line when they were several", async () => {
    const server = serveHere(["--events", "none"], { framing: "headers" });
    const pretty = JSON.stringify(
      {
        jsonrpc: "2.0",
        id: "p",
        method: "append",
        params: { entries: [user("two\nlines", { id: "p", more: { deep: [1] } })] },
      },
      null,
      "\r\n  ",
    );
    server.write(frame("headers", pretty));
    await server.reply("p");
    const { sessionFile } = await server.result("get_state");
    const lines = readFileSync(sessionFile, "utf8").split("\n");
    expect(lines).toHaveLength(3);
    expect(JSON.parse(lines[1])).toMatchObject({ id: "p", more: { deep: [1] }, message: { content: "two\nlines" } });
  });

  test("never bring marks of our own with them", async () => {
    const server = quiet([]);
    await server.result("append", { entries: [user("x", { id: "x", _batch: { session: "s", index: 5, count: 9 } })] });
    expect((await server.result("get_entries")).entries[0]).not.toHaveProperty("_batch");
  });
});

test("the file is made with the first entry, for its owner alone", async () => {
  const server = quiet([]);
  const { sessionFile } = await server.result("get_state");
  expect(() => statSync(dirname(sessionFile))).toThrow("ENOENT");
  await server.result("append", { entries: [user("a")] });
  expect(statSync(sessionFile).mode & 0o777).toBe(0o600);
  expect(statSync(dirname(sessionFile)).mode & 0o777).toBe(0o700);
});

test("a session that is open for reading only refuses, and says what to do", async () => {
  const writer = quiet([]);
  await writer.result("append", { entries: [user("a", { id: "a" })] });
  const { sessionFile } = await writer.result("get_state");
  await writer.finish();
  const before = readFileSync(sessionFile, "utf8");
  const reader = serveHere(["--session", sessionFile, "--read-only", "--events", "none"], { place: writer.place });
  expect((await reader.result("get_state")).readOnly).toBe(true);
  for (const [method, params] of [
    ["append", { entries: [user("b")] }],
    ["set_label", { entryId: "a", label: "x" }],
    ["set_session_name", { name: "x" }],
    ["compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 1 }],
  ] as const)
    expect(await reader.failure(method, params)).toMatchObject({
      code: -32803,
      message: expect.stringMatching(/\w/),
      data: { name: "read_only" },
    });
  await reader.finish();
  expect(readFileSync(sessionFile, "utf8")).toBe(before);
});

test("10,000 entries may come at once, more may not", SYSTEM, async () => {
  const server = quiet();
  const entries = Array.from({ length: 10_000 }, (_, i) => user(`${i}`));
  expect((await server.result("append", { entries })).entryIds).toHaveLength(10_000);
  expect(await server.failure("append", { entries: [...entries, user("one more")] })).toMatchObject({
    code: -32602,
    data: { issues: [{ path: "entries" }] },
  });
  expect((await server.result("get_state")).entryCount).toBe(10_000);
});

acrossTiers(describe, ["jsonl", "v2"])("in the store %s", (store) => {
  const serve = (): HereServer => quiet(["--store", store]);

  /** All bytes that hold entries. */
  function bytesIn(file: string): string {
    if (store === "jsonl") return readFileSync(file, "utf8");
    const segments = join(file, "segments");
    return readdirSync(segments)
      .map((name) => readFileSync(join(segments, name), "utf8"))
      .join("");
  }

  async function stored(server: HereServer): Promise<string> {
    return bytesIn((await server.result("get_state")).sessionFile);
  }

  async function messages(server: HereServer): Promise<Json[]> {
    return (await server.result("get_messages")).messages;
  }

  const NOTHING = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
  const NO_USAGE = { ...NOTHING, totalTokens: 0, cost: { ...NOTHING, total: 0 } };
  const said = (message: object, more: object = {}): Json => ({ type: "message", ...more, message });

  describe("what Pi needs in a message is there", () => {
    test("where nobody has named a model, too", async () => {
      const server = serve();
      await server.result("append", {
        entries: [
          user("a"),
          said({ role: "assistant" }, { timestamp: "2026-02-03T22:52:06.410Z" }),
          said({ role: "assistant", content: [{ type: "toolCall", id: "1", name: "ls", arguments: {} }] }),
          said({ role: "toolResult", toolCallId: "1" }),
          said({ role: "user" }),
        ],
      });
      const unknown = { api: "unknown", provider: "unknown", model: "unknown", usage: NO_USAGE };
      const time = expect.any(Number);
      expect(await messages(server)).toEqual([
        { role: "user", content: "a" },
        { role: "assistant", content: [], ...unknown, stopReason: "stop", timestamp: 1770159126410 },
        { role: "assistant", content: [expect.any(Object)], ...unknown, stopReason: "toolUse", timestamp: time },
        { role: "toolResult", toolCallId: "1", content: [] },
        { role: "user", content: [] },
      ]);
      // Pi calls a model so that is none.
      expect((await server.result("get_state")).model).toBeNull();
      expect((await server.result("verify_session")).damage).toEqual([]);
    });

    test("of the model that speaks there", async () => {
      const server = serve();
      const append = async (...entries: Json[]): Promise<void> => {
        await server.result("append", { entries });
      };
      await append(user("a", { id: "root" }));
      await server.result("set_model", { provider: "openai", modelId: "gpt-5" });
      await append(said({ role: "assistant" }, { id: "b" }));
      await append(
        said({ role: "assistant", provider: "openai", model: "gpt-5", api: "openai-responses" }, { id: "c" }),
        said({ role: "assistant" }),
        { type: "model_change", provider: "anthropic", modelId: "claude-sonnet-4-5", id: "d" },
        said({ role: "assistant" }),
        said({ role: "assistant" }, { parentId: "c" }),
        said({ role: "assistant" }, { parentId: "b" }),
        said({ role: "assistant" }, { parentId: "root" }),
        said({ role: "assistant", provider: "openai" }, { parentId: "c" }),
        said({ role: "assistant", provider: "google" }, { parentId: "c" }),
      );
      await append(said({ role: "assistant" }, { parentId: "c" }));
      const { entries } = await server.result("get_entries", { types: ["message"] });
      const speakers = entries.map(({ message: { provider, model, api } }: Json) => [provider, model, api]);
      expect(speakers.slice(1)).toEqual([
        ["openai", "gpt-5", "unknown"],
        ["openai", "gpt-5", "openai-responses"],
        ["openai", "gpt-5", "openai-responses"],
        ["anthropic", "claude-sonnet-4-5", "unknown"],
        ["openai", "gpt-5", "openai-responses"],
        ["openai", "gpt-5", "unknown"],
        ["unknown", "unknown", "unknown"],
        ["openai", "gpt-5", "openai-responses"],
        ["google", "unknown", "unknown"],
        ["openai", "gpt-5", "openai-responses"],
      ]);
    });

    const WHOLE =
      '"role":"assistant","content":[{"type":"text","text":"\\u0041\\/"}],"api":"x","provider":"y","model":"z",' +
      '"usage":{"input":1.0,"output":2e0,"cacheRead":0,"cacheWrite":0,"totalTokens":3,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":1E-3},"of later":[ 1 ]},' +
      '"stopReason":"end","timestamp":5';

    test.each([
      ["nothing is lacking", `{${WHOLE}}`, `{${WHOLE}}`],
      [
        "a counter",
        `{${WHOLE.replace('"cacheRead":0,"c', '"c')}}`,
        '"of later":[ 1 ],"cacheRead":0},"stopReason":"end"',
      ],
      ["the total", `{${WHOLE.replace('"totalTokens":3,', "")}}`, '"of later":[ 1 ],"totalTokens":3},"stopReason"'],
      [
        "part of the cost",
        `{${WHOLE.replace('"cost":{"input":0,', '"cost":{')}}`,
        '"total":1E-3,"input":0},"of later"',
      ],
      [
        "all of the cost but its sum",
        `{"role":"assistant","usage":{"cost":1.50}}`,
        '"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":1.50},',
      ],
      [
        "usage",
        `{"role":"assistant","x":1E2,"content":[ ]}`,
        '"message":{"role":"assistant","x":1E2,"content":[ ],"api":"unknown",',
      ],
      [
        "blocks",
        `{"role":"assistant","content":"\\u0041\\/"}`,
        '"content":[{"type":"text","text":"\\u0041\\/"}],"api"',
      ],
      [
        "all, in an object with spaces",
        `{ "role" : "assistant" }`,
        '"message":{ "role" : "assistant" ,"content":[],"api":"unknown"',
      ],
    ])("and all else as it was sent: %s", async (_what, message, expected) => {
      const server = serve();
      server.send(
        `{"jsonrpc":"2.0","id":"raw","method":"append","params":{"entries":[{"type":"message","message":${message},"later":[ 2 ]}]}}`,
      );
      expect(await server.reply("raw")).toMatchObject({ result: { entryIds: [expect.any(String)] } });
      const bytes = await stored(server);
      expect(bytes).toContain(expected);
      expect(bytes).toContain(',"later":[ 2 ]}');
      expect((await server.result("verify_session")).damage).toEqual([]);
      const [{ content, usage, ...rest }] = await messages(server);
      expect([Array.isArray(content), typeof usage.cost.total, Object.keys(rest).sort()]).toEqual([
        true,
        "number",
        expect.arrayContaining(["api", "model", "provider", "role", "stopReason", "timestamp"]),
      ]);
    });
  });

  test.each<[string, Json, string | null, RegExp?]>([
    ["the role of others for a result", said({ role: "tool", content: "x" }), "message.role", /toolResult/],
    ["a role that is misspelt", said({ role: "asistant", content: "x" }), "message.role", /assistant/],
    ["a role in other letters", said({ role: "Tool_Result" }), "message.role", /toolResult/],
    ["a role that means nothing", said({ role: "narrator", content: "x" }), "message.role", /knows no role narrator/],
    ["a system message of others", said({ role: "system", content: "You are." }), "message.role", /sections/],
    ["a user message that says nothing", said({ role: "user" }), "message.content", /without content/],
    ["a result of no call", said({ role: "toolResult", toolName: "x", content: [] }), "message.toolCallId", /call/],
    ["text where blocks belong", said({ role: "assistant", content: "x" }), "message.content", /block/],
    ["a misspelt type", { type: "mesage", message: { role: "user", content: "x" } }, "type", /message/],
    ["a type in other letters", { type: "modelChange", provider: "x", modelId: "y" }, "type", /model_change/],
    ["a type in the plural", { type: "labels" }, "type", /label/],
    ["not a type of somebody's own", { type: "todo_list" }, null],
    ["not a custom entry", { type: "custom", customType: "mesage" }, null],
    ["not a system message", said({ role: "system", content: "", sections: {} }), null],
    ["not a whole message", assistant("x"), null],
    ["not a command", said({ role: "bashExecution", command: "ls", output: "" }), null],
  ])("what may not be meant so is stored and said: %s", async (_what, draft, path, about) => {
    const server = serve();
    const entries = [user("a"), draft];
    const asked = { entries, idempotencyKey: "once" };
    const { entryIds, warnings, leafId } = await server.result("append", asked);
    expect(leafId).toBe(entryIds[1]);
    expect(warnings).toEqual(
      path === null ? undefined : [{ path: `entries.1.${path}`, message: expect.stringMatching(about as RegExp) }],
    );
    expect((await server.result("get_entry", { entryId: leafId })).entry).toMatchObject({ type: draft.type });
    const { sessionFile } = await server.result("get_state");
    const again = serveHere(["--session", sessionFile, "--events", "none"], { place: server.place });
    await server.finish();
    expect(await again.result("append", asked)).toEqual({ entryIds, leafId, ...(warnings ? { warnings } : {}) });
  });

  describe("an entry that names others", () => {
    const label = (targetId: string, more: object = {}): Json => ({ type: "label", targetId, label: "x", ...more });
    const edit = (targetId: string): Json => ({ type: "context_edit", targetId, replacement: null });
    const compaction = (firstKeptEntryId: string, more: object = {}): Json => ({
      type: "compaction",
      summary: "s",
      firstKeptEntryId,
      tokensBefore: 1,
      ...more,
    });
    const stored = async (): Promise<HereServer> => {
      const server = serve();
      await server.result("append", {
        entries: [user("a", { id: "a" }), toolCall("1", { id: "call" }), toolResult("1", "r", { id: "result" })],
      });
      await server.result("append", { entries: [user("b", { id: "aside", parentId: "a" })] });
      await server.result("branch", { entryId: "result" });
      return server;
    };

    test.each<[string, string, string, Json[]]>([
      ["a label of nobody", "entry_not_found", "0.targetId", [label("nobody")]],
      ["an edit of nobody", "entry_not_found", "0.targetId", [edit("nobody")]],
      ["a label of what comes after it", "entry_not_found", "0.targetId", [label("later"), user("x", { id: "later" })]],
      ["a label of itself", "entry_not_found", "1.targetId", [user("x"), label("self", { id: "self" })]],
      ["a compaction that keeps from nowhere", "invalid_boundary", "0.firstKeptEntryId", [compaction("nobody")]],
      ["from another branch", "invalid_boundary", "0.firstKeptEntryId", [compaction("aside")]],
      ["from between a call and its result", "invalid_boundary", "0.firstKeptEntryId", [compaction("result")]],
      ["from what comes after it", "invalid_boundary", "0.firstKeptEntryId", [compaction("x"), user("x", { id: "x" })]],
      [
        "from an entry that is not above it",
        "invalid_boundary",
        "1.firstKeptEntryId",
        [user("x", { id: "x" }), compaction("x", { parentId: "a" })],
      ],
      [
        "from between a call and its result that come with it",
        "invalid_boundary",
        "2.firstKeptEntryId",
        [toolCall("2", { id: "c" }), toolResult("2", "r", { id: "r" }), compaction("r")],
      ],
      [
        "from between a stored call and its result that comes with it",
        "invalid_boundary",
        "2.firstKeptEntryId",
        [user("x", { id: "x", parentId: "call" }), toolResult("1", "r"), compaction("x")],
      ],
      [
        "from anywhere, with no entry above it",
        "invalid_boundary",
        "0.firstKeptEntryId",
        [compaction("a", { parentId: null })],
      ],
    ])("is refused where the commands refuse it: %s", async (_what, name, path, entries) => {
      const server = await stored();
      const before = await server.result("get_state");
      const { data } = await server.failure("append", { entries });
      expect(data).toMatchObject({ name, path: `entries.${path}`, entryId: expect.any(String) });
      expect(await server.result("get_state")).toEqual(before);
    });

    test.each<[string, Json[]]>([
      ["a label of a stored entry, on whatever branch", [label("aside")]],
      ["a label and an edit of what came before them", [user("x", { id: "x" }), label("x"), edit("x")]],
      ["a label of a label", [label("a", { id: "l" }), label("l")]],
      ["a compaction that keeps from the path", [compaction("call")]],
      ["that keeps nothing", [compaction("c", { id: "c" })]],
      ["that keeps from what came before it", [user("x", { id: "x" }), assistant("y"), compaction("x")]],
      ["that keeps a call with its result", [toolCall("2", { id: "c" }), toolResult("2", "r"), compaction("c")]],
      ["on another branch", [user("x", { id: "x", parentId: "aside" }), compaction("aside")]],
    ])("is stored: %s", async (_what, entries) => {
      const server = await stored();
      const { entryIds, warnings } = await server.result("append", { entries });
      expect([entryIds.length, warnings]).toEqual([entries.length, undefined]);
      expect((await server.result("verify_session")).damage).toEqual([]);
    });
  });
});
