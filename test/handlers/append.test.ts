/** Appending entries: where they go, that their bytes are stored as they were sent, and what hosts are warned of. */

import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { append, conversation, restarted, resultOfText } from "../support/asking.ts";
import { assistant, toolCall, toolResult, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { acrossTiers, SYSTEM } from "../support/tiers.ts";

const quiet = (...args: string[]): HereServer => serveHere([...args, "--events", "none"]);

test.each<[string, Json, boolean]>([
  ["not when the leaf is continued", {}, false],
  ["not when the leaf is named", { parentId: "b" }, false],
  ["when another entry is", { parentId: "a" }, true],
  ["when null is", { parentId: null }, true],
])("session_tree tells that the branch changed: %s", async (_what, more, isReported) => {
  const server = serveHere(["--no-session", "--events", "session_tree"]);
  await append(server, user("a", { id: "a" }), assistant("b", { id: "b" }));
  await append(server, user("c", { id: "c", ...more }));
  const events = (await server.finish()).messages.map(({ params }) => params);
  expect(events).toEqual(isReported ? [expect.objectContaining({ newLeafId: "c", oldLeafId: "b", leafId: "c" })] : []);
});

test("types and roles are any, those that JavaScript gives a meaning too", async () => {
  const names = ["unheard_of", "constructor", "__proto__", "toString", "hasOwnProperty", "é 😀", "x".repeat(1000)];
  const pair = (name: string): Json[] => [{ type: name }, { type: "message", message: { role: name, content: name } }];
  const { server } = await conversation(...names.flatMap(pair));
  const { entries } = await server.result("get_entries", { types: names });
  const { messages } = await server.result("get_messages");
  const { nodes } = await server.result("get_tree");
  expect(entries.map(({ type }: Json) => type)).toEqual(names);
  expect(messages.map(({ role }: Json) => role)).toEqual(names);
  expect(nodes.flatMap(({ role }: Json) => role ?? [])).toEqual(names);
});

test("entries never bring marks of our own with them", async () => {
  const { server } = await conversation(user("x", { id: "x", _batch: { session: "s", index: 5, count: 9 } }));
  expect((await server.result("get_entries")).entries[0]).not.toHaveProperty("_batch");
});

test("a folder is made with the first entry, for its owner only", async () => {
  const server = quiet();
  const { sessionFile } = await server.result("get_state");
  expect(() => statSync(dirname(sessionFile))).toThrow("ENOENT");
  await append(server, user("a"));
  expect([sessionFile, dirname(sessionFile)].map((path) => statSync(path).mode & 0o777)).toEqual([0o600, 0o700]);
});

const SETTINGS: Json[] = [
  { type: "session_info", name: "named" },
  { type: "model_change", provider: "p", modelId: "m" },
  { type: "thinking_level_change", thinkingLevel: "high" },
];

acrossTiers(test, ["jsonl", "v2"])(
  "all that is acknowledged is stored, also if it only sets the session up (%s)",
  async (store) => {
    for (const entries of [...SETTINGS.map((one) => [one]), SETTINGS]) {
      const server = quiet("--store", store);
      await server.result("set_session_name", { name: "before" });
      const { sessionFile, persisted } = await server.result("get_state");
      expect([persisted, existsSync(sessionFile)]).toEqual([false, false]);
      const { entryIds } = await server.result("append", { entries });
      expect(await server.result("get_state")).toMatchObject({ persisted: true });
      const reader = serveHere(["--session", sessionFile, "--read-only", "--events", "none"], { place: server.place });
      const read = (await reader.result("get_entries")).entries;
      expect(read.map(({ id }: Json) => id).slice(-entryIds.length)).toEqual(entryIds);
      expect(read).toHaveLength(entries.length + 1);
    }
  },
);

test("10,000 entries may come at once, more may not", SYSTEM, async () => {
  const entries = Array.from({ length: 10_000 }, (_, i) => user(`${i}`));
  const { server, ids } = await conversation(...entries);
  expect(ids).toHaveLength(10_000);
  const { code, data } = await server.failure("append", { entries: [...entries, user("one more")] });
  expect([code, data.issues[0].path]).toEqual([-32602, "entries"]);
  expect((await server.result("get_state")).entryCount).toBe(10_000);
});

acrossTiers(describe, ["jsonl", "v2"])("what Pi needs in a message is there, in the store %s,", (store) => {
  const serve = (): HereServer => quiet("--store", store);
  const NOTHING = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
  const NO_USAGE = { ...NOTHING, totalTokens: 0, cost: { ...NOTHING, total: 0 } };
  const said = (message: object, more: object = {}): Json => ({ type: "message", ...more, message });
  const answer = (more: object = {}, by: object = {}): Json => said({ role: "assistant", ...by }, more);

  test("where nobody has named a model, too", async () => {
    const server = serve();
    await append(
      server,
      user("a"),
      answer({ timestamp: "2026-02-03T22:52:06.410Z" }),
      answer({}, { content: [{ type: "toolCall", id: "1", name: "ls", arguments: {} }] }),
      said({ role: "toolResult", toolCallId: "1" }),
      said({ role: "user" }),
    );
    const unknown = { role: "assistant", api: "unknown", provider: "unknown", model: "unknown", usage: NO_USAGE };
    const timestamp = expect.any(Number);
    expect((await server.result("get_messages")).messages).toEqual([
      { role: "user", content: "a" },
      { ...unknown, content: [], stopReason: "stop", timestamp: 1770159126410 },
      { ...unknown, content: [expect.any(Object)], stopReason: "toolUse", timestamp },
      { role: "toolResult", toolCallId: "1", content: [] },
      { role: "user", content: [] },
    ]);
    // A model that Pi calls so does not count.
    expect((await server.result("get_state")).model).toBeNull();
    expect((await server.result("verify_session")).damage).toEqual([]);
  });

  test("of the model that speaks there", async () => {
    const server = serve();
    const spoken = { provider: "openai", model: "gpt-5", api: "openai-responses" };
    await append(server, user("a", { id: "root" }));
    await server.result("set_model", { provider: "openai", modelId: "gpt-5" });
    await append(server, answer({ id: "b" }));
    await append(
      server,
      answer({ id: "c" }, spoken),
      answer(),
      { type: "model_change", provider: "anthropic", modelId: "claude-sonnet-4-5", id: "d" },
      answer(),
      answer({ parentId: "c" }),
      answer({ parentId: "b" }),
      answer({ parentId: "root" }),
      answer({ parentId: "c" }, { provider: "openai" }),
      answer({ parentId: "c" }, { provider: "google" }),
    );
    await append(server, answer({ parentId: "c" }));
    const { entries } = await server.result("get_entries", { types: ["message"] });
    expect(
      entries.slice(1).map(({ message: { provider, model, api } }: Json) => `${provider} ${model} ${api}`),
    ).toEqual([
      "openai gpt-5 unknown",
      "openai gpt-5 openai-responses",
      "openai gpt-5 openai-responses",
      "anthropic claude-sonnet-4-5 unknown",
      "openai gpt-5 openai-responses",
      "openai gpt-5 unknown",
      "unknown unknown unknown",
      "openai gpt-5 openai-responses",
      "google unknown unknown",
      "openai gpt-5 openai-responses",
    ]);
  });

  const WHOLE =
    '"role":"assistant","content":[{"type":"text","text":"\\u0041\\/"}],"api":"x","provider":"y","model":"z",' +
    '"usage":{"input":1.0,"output":2e0,"cacheRead":0,"cacheWrite":0,"totalTokens":3,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":1E-3},"of later":[ 1 ]},' +
    '"stopReason":"end","timestamp":5';
  const without = (part: string, by: string): string => `{${WHOLE.replace(part, by)}}`;

  test.each([
    ["nothing is lacking", `{${WHOLE}}`, `{${WHOLE}}`],
    ["a counter", without('"cacheRead":0,"c', '"c'), '"of later":[ 1 ],"cacheRead":0},"stopReason":"end"'],
    ["the total", without('"totalTokens":3,', ""), '"of later":[ 1 ],"totalTokens":3},"stopReason"'],
    ["part of the cost", without('"cost":{"input":0,', '"cost":{'), '"total":1E-3,"input":0},"of later"'],
    ["all of the cost but its sum", `{"role":"assistant","usage":{"cost":1.50}}`, '"cacheWrite":0,"total":1.50},'],
    [
      "usage",
      `{"role":"assistant","x":1E2,"content":[ ]}`,
      '{"role":"assistant","x":1E2,"content":[ ],"api":"unknown",',
    ],
    ["blocks", `{"role":"assistant","content":"\\u0041\\/"}`, '"content":[{"type":"text","text":"\\u0041\\/"}],"api"'],
    [
      "all, in an object with spaces",
      `{ "role" : "assistant" }`,
      '{ "role" : "assistant" ,"content":[],"api":"unknown"',
    ],
  ])("and all else as it was sent: %s", async (_what, message, expected) => {
    const server = serve();
    await resultOfText(server, "append", `{"entries":[{"type":"message","message":${message},"later":[ 2 ]}]}`);
    const { sessionFile: file } = await server.result("get_state");
    const folder = join(file, "segments");
    const files = store === "jsonl" ? [file] : readdirSync(folder).map((name) => join(folder, name));
    const bytes = files.map((path) => readFileSync(path, "utf8")).join("");
    expect(bytes).toContain(expected);
    expect(bytes).toContain(',"later":[ 2 ]}');
    expect((await server.result("verify_session")).damage).toEqual([]);
    const [{ content, usage, ...rest }] = (await server.result("get_messages")).messages;
    expect([Array.isArray(content), typeof usage.cost.total, Object.keys(rest).sort()]).toEqual([
      true,
      "number",
      expect.arrayContaining(["api", "model", "provider", "role", "stopReason", "timestamp"]),
    ]);
  });
});

describe("an entry that names others", () => {
  const label = (targetId: string, more: object = {}): Json => ({ type: "label", targetId, label: "x", ...more });
  const edit = (targetId: string): Json => ({ type: "context_edit", targetId, replacement: null });
  const compaction = (firstKeptEntryId: string, more: object = {}): Json => ({
    ...{ type: "compaction", summary: "s", firstKeptEntryId, tokensBefore: 1 },
    ...more,
  });
  const stored = async (): Promise<HereServer> => {
    const { server } = await conversation(
      user("a", { id: "a" }),
      toolCall("1", { id: "call" }),
      toolResult("1", "r", { id: "result" }),
      user("b", { id: "aside", parentId: "a" }),
    );
    await server.result("branch", { entryId: "result" });
    return server;
  };
  const x = user("x", { id: "x" });

  test.each<[string, string, Json[]]>([
    ["a label of nobody", "0.targetId", [label("nobody")]],
    ["an edit of nobody", "0.targetId", [edit("nobody")]],
    ["a label of what comes after it", "0.targetId", [label("x"), x]],
    ["a label of itself", "1.targetId", [x, label("self", { id: "self" })]],
    ["a compaction that keeps from nowhere", "0.firstKeptEntryId", [compaction("nobody")]],
    ["from another branch", "0.firstKeptEntryId", [compaction("aside")]],
    ["from between a call and its result", "0.firstKeptEntryId", [compaction("result")]],
    ["from what comes after it", "0.firstKeptEntryId", [compaction("x"), x]],
    ["from an entry that is not above it", "1.firstKeptEntryId", [x, compaction("x", { parentId: "a" })]],
    [
      "from between a call and its result that come with it",
      "2.firstKeptEntryId",
      [toolCall("2", { id: "c" }), toolResult("2", "r", { id: "r" }), compaction("r")],
    ],
    [
      "from between a stored call and its result that comes with it",
      "2.firstKeptEntryId",
      [user("x", { id: "x", parentId: "call" }), toolResult("1", "r"), compaction("x")],
    ],
    ["from anywhere, with no entry above it", "0.firstKeptEntryId", [compaction("a", { parentId: null })]],
  ])("is refused where the commands refuse it: %s", async (_what, path, entries) => {
    const server = await stored();
    const before = await server.result("get_state");
    const { data } = await server.failure("append", { entries });
    const name = path.endsWith("targetId") ? "entry_not_found" : "invalid_boundary";
    expect(data).toMatchObject({ name, path: `entries.${path}`, entryId: expect.any(String) });
    expect(await server.result("get_state")).toEqual(before);
  });

  test.each<[string, Json[]]>([
    ["a label of a stored entry, on whatever branch", [label("aside")]],
    ["a label and an edit of what came before them", [x, label("x"), edit("x")]],
    ["a label of a label", [label("a", { id: "l" }), label("l")]],
    ["a compaction that keeps from the path", [compaction("call")]],
    ["that keeps nothing", [compaction("c", { id: "c" })]],
    ["that keeps from what came before it", [x, assistant("y"), compaction("x")]],
    ["that keeps a call with its result", [toolCall("2", { id: "c" }), toolResult("2", "r"), compaction("c")]],
    ["on another branch", [user("x", { id: "x", parentId: "aside" }), compaction("aside")]],
  ])("is stored: %s", async (_what, entries) => {
    const server = await stored();
    const { entryIds, warnings } = await server.result("append", { entries });
    expect([entryIds.length, warnings]).toEqual([entries.length, undefined]);
    expect((await server.result("verify_session")).damage).toEqual([]);
  });
});

const CALL = { type: "toolCall", id: "c", name: "read", arguments: { path: "a" } };
const IMAGE = { type: "image", data: "AA==", mimeType: "image/png" };

function said(role: string, content?: Json, more: object = {}): Json {
  return { type: "message", message: { role, ...(content === undefined ? {} : { content }), ...more } };
}
const asked = (...content: Json[]): Json => said("user", content);
const answered = (block: object): Json => said("assistant", [{ ...CALL, ...block }]);

async function warningsOf(...entries: Json[]): Promise<Json[] | undefined> {
  const { server } = await conversation();
  const { entryIds, warnings } = await server.result("append", { entries });
  expect(entryIds).toHaveLength(entries.length);
  return warnings;
}

const FUNCTION = { id: "c", type: "function", function: { name: "read", arguments: "{}" } };
const TEXT = { type: "text", text: "x" };
const SOURCE = { type: "base64", media_type: "image/png", data: "AA==" };

test.each<[path: string, draft: Json, meant: string]>([
  ["content.0.type", said("assistant", [{ type: "tool_use", input: {} }]), 'toolCall ({"type":"toolCall","id":'],
  ["content.1.type", asked(TEXT, { type: "tool_result" }), '"role":"toolResult","toolCallId"'],
  ["content.0.type", asked({ type: "image_url", image_url: {} }), 'image ({"type":"image","data":"<base64>"'],
  ["content.0", asked({ type: "image", source: SOURCE }), '{"type":"image","data":"<base64>","mimeType":"image/png"}'],
  ["content.0.data", asked({ ...IMAGE, data: "data:image/png;base64,AA==" }), "base64"],
  ["content.0.data", asked({ ...IMAGE, data: "@@@ not base64" }), "base64"],
  ["content.0.type", said("assistant", [IMAGE]), "no images in assistant messages"],
  ["content.0.type", asked({ type: "input_text", text: "x" }), "Did you mean text"],
  ["content.0.type", answered({ type: "toolcall" }), "Did you mean toolCall"],
  ["content.0.type", asked({ type: "hologram" }), "Pi knows no block hologram"],
  ["tool_calls", said("assistant", [], { tool_calls: [FUNCTION] }), '{"type":"toolCall"'],
  ["content.0.arguments", answered({ arguments: '{"path":"a"}' }), "object, not its JSON text"],
  ["content.0.arguments", answered({ arguments: undefined }), "object"],
  ["content.0.name", answered({ name: undefined }), "name"],
  ["content.0.id", answered({ id: 5 }), "id"],
  ["content.0.text", asked({ type: "text", content: "x" }), "text"],
  ["content.0.thinking", said("assistant", [{ type: "thinking", text: "x" }]), "thinking"],
  ["toolName", said("toolResult", [], { toolCallId: "c" }), "toolName"],
])("a block as the APIs of models have it: a warning at %s names what Pi reads (%#)", async (path, draft, meant) => {
  const warning = { path: `entries.1.message.${path}`, message: expect.stringContaining(meant) };
  expect(await warningsOf(user("a"), draft)).toEqual([warning]);
});

test("a timestamp that is no time is stored, with a warning", async () => {
  const warning = { path: "entries.0.timestamp", message: expect.stringContaining('"yesterday" is no time') };
  expect(await warningsOf(user("a", { timestamp: "yesterday" }))).toEqual([warning]);
  expect(await warningsOf(user("a", { timestamp: "2026-01-24T16:22:26.831Z" }))).toBeUndefined();
});

test("also in a message of an extension, and not of each block when there are many", async () => {
  const extension = { type: "custom_message", customType: "x", content: [{ type: "image_url" }] };
  expect(await warningsOf(extension)).toMatchObject([{ path: "entries.0.content.0.type" }]);
  const warnings = await warningsOf(said("assistant", Array(1000).fill({ type: "tool_use" })));
  expect(warnings).toHaveLength(11);
  const more = { path: "entries.0.message.content", message: expect.stringContaining("990 more") };
  expect(warnings?.at(-1)).toEqual(more);
});

test.each<[string, Json]>([
  ["around a message", { type: "assistant", message: { role: "assistant", content: [] } }],
  ["of whatever name", { type: "turn", message: { role: "user", content: "x" } }],
  ["around the members of one", { type: "user", content: "x" }],
])("an entry whose type is a role is told what a message is: %s", async (_what, draft) => {
  const message = expect.stringMatching(/\{"type":"message","message":\{"role":/);
  expect(await warningsOf(draft)).toEqual([{ path: "entries.0.type", message }]);
});

test("nothing is said of what Pi itself writes", async () => {
  const warnings = await warningsOf(
    user("a"),
    asked({ type: "text", text: "" }, IMAGE, { ...IMAGE, data: { $piBlob: "sha256:00", sizeBytes: 1 } }),
    assistant("b"),
    said("assistant", [{ type: "thinking", thinking: "", thinkingSignature: "s" }, CALL]),
    toolCall("c"),
    toolResult("c", "r"),
    said("system", "", { sections: {} }),
    said("bashExecution", undefined, { command: "ls", output: "" }),
    { type: "todo_list" },
    { type: "custom", customType: "mesage" },
    { type: "note_of_mine", message: "no role" },
    { type: "note_of_mine", message: { role: 5 } },
    { type: "custom_message", customType: "x", content: [{ type: "text", text: "x" }] },
    { type: "custom_message", customType: "x", content: "x" },
  );
  expect(warnings).toBeUndefined();
});

test.each<[Json, string, RegExp]>([
  [said("tool", "x"), "message.role", /toolResult/],
  [said("asistant", "x"), "message.role", /assistant/],
  [said("Tool_Result"), "message.role", /toolResult/],
  [said("narrator", "x"), "message.role", /knows no role narrator/],
  [said("system", "You are."), "message.role", /sections/],
  [said("user"), "message.content", /without content/],
  [said("toolResult", [], { toolName: "x" }), "message.toolCallId", /call/],
  [said("assistant", "x"), "message.content", /block/],
  [{ type: "mesage", message: { role: "user", content: "x" } }, "type", /message/],
  [{ type: "modelChange", provider: "x", modelId: "y" }, "type", /model_change/],
  [{ type: "labels" }, "type", /label/],
])("what may not be meant so is said: %j", async (draft, path, about) => {
  expect(await warningsOf(user("a"), draft)).toEqual([
    { path: `entries.1.${path}`, message: expect.stringMatching(about) },
  ]);
});

acrossTiers(describe, ["jsonl", "v2"])("in the store %s", (store) => {
  test("a repeat of the key is answered with the same warnings, after a restart, too", async () => {
    const server = serveHere(["--store", store, "--events", "none"]);
    for (const [n, draft] of [said("narrator", "x"), said("user", "x")].entries()) {
      const params = { entries: [user("a"), draft], idempotencyKey: `${n}` };
      const first = await server.result("append", params);
      expect([first.warnings?.length, first.leafId]).toEqual([n === 0 ? 1 : undefined, first.entryIds[1]]);
      expect((await server.result("get_entry", { entryId: first.leafId })).entry).toMatchObject(draft);
      expect(await server.result("append", params)).toEqual(first);
    }
    const { entryIds } = await server.result("append", { entries: [said("narrator", "x")], idempotencyKey: "k" });
    const again = await restarted(server);
    const repeated = await again.result("append", { entries: [said("narrator", "x")], idempotencyKey: "k" });
    expect(repeated).toMatchObject({ entryIds, warnings: [{ path: "entries.0.message.role" }] });
  });
});
