/** The protocol of both eras: every line of ours is valid against the published schemas, and every mistake has its error. */

import { readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import { beforeAll, expect, test } from "vitest";
import { INSTRUCTIONS } from "../../../src/modules/recall/protocol.ts";
import { assistant, user } from "../../support/drafts.ts";
import { chain, put } from "../../support/searching.ts";
import { type Json, temporaryPlace } from "../../support/server.ts";
import { MODERN_META, recallHere } from "./support/recall.ts";

const ajv = new Ajv2020({ strict: false, validateFormats: false });

beforeAll(() => {
  for (const version of ["2026-07-28", "2025-11-25"]) {
    const text = readFileSync(new URL(`support/schema-${version}.json`, import.meta.url), "utf8");
    ajv.addSchema(JSON.parse(text), version);
  }
});

function requireValid(version: string, definition: string, message: Json): void {
  const validate = ajv.getSchema(`${version}#/$defs/${definition}`);
  if (!validate) throw new Error(`There is no ${definition} in ${version}.`);
  if (!validate(message))
    throw new Error(`${JSON.stringify(message).slice(0, 300)}\n${JSON.stringify(validate.errors)}`);
}

/** A server on one session, with a secret in it. */
function served() {
  const place = temporaryPlace();
  const entries = chain(user("Where is the cache?"), assistant("In memory."));
  put(place, "01aaaaaa-1111", [
    ...entries,
    { type: "label", id: "11111111", parentId: entries[1].id, targetId: entries[1].id, label: "found" },
  ]);
  return { ...recallHere({ place }), entryId: entries[0].id };
}

/** Requests with the names of their results in the schemas. */
const requestsOf = (entryId: string): readonly [method: string, params: Json, result: string][] => [
  ["tools/list", {}, "ListToolsResult"],
  ["tools/call", { name: "find", arguments: { query: "cache" } }, "CallToolResult"],
  ["tools/call", { name: "open", arguments: { ref: "nothing" } }, "CallToolResult"],
  ["tools/call", { name: "recent" }, "CallToolResult"],
  ["resources/list", {}, "ListResourcesResult"],
  ["resources/templates/list", { cursor: "" }, "ListResourceTemplatesResult"],
  ["resources/read", { uri: "pi-session://status" }, "ReadResourceResult"],
  ["resources/read", { uri: "pi-session://01aaaaaa" }, "ReadResourceResult"],
  ["resources/read", { uri: `pi-session://01aaaaaa/${entryId}` }, "ReadResourceResult"],
  ["resources/read", { uri: "pi-session://01aaaaaa/found" }, "ReadResourceResult"],
  ["prompts/list", {}, "ListPromptsResult"],
  ["prompts/get", { name: "recall", arguments: { topic: "the cache" } }, "GetPromptResult"],
  [
    "completion/complete",
    { ref: { type: "ref/resource", uri: "pi-session://{session}" }, argument: { name: "session", value: "01a" } },
    "CompleteResult",
  ],
  [
    "completion/complete",
    {
      ref: { type: "ref/resource", uri: "pi-session://{session}/{entry}" },
      argument: { name: "entry", value: "fo" },
      context: { arguments: { session: "01aaaaaa" } },
    },
    "CompleteResult",
  ],
];

test("the modern era needs no handshake: every result is valid, complete, and says how long it lasts", async () => {
  const { request, entryId } = served();
  const discovered = await request("server/discover");
  requireValid("2026-07-28", "DiscoverResultResponse", discovered);
  expect(discovered.result).toMatchObject({
    resultType: "complete",
    supportedVersions: ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"],
    instructions: INSTRUCTIONS,
    cacheScope: "public",
    _meta: { "io.modelcontextprotocol/serverInfo": { name: "pi-session-server" } },
  });
  const results: Json[] = [];
  for (const [method, params, result] of requestsOf(entryId)) {
    const reply = await request(method, params);
    expect(reply.error, method).toBeUndefined();
    requireValid("2026-07-28", `${result}Response`, reply);
    results.push(reply.result);
  }
  expect(results.at(-2).completion.values).toEqual(["01aaaaaa"]);
  expect(results.at(-1).completion.values).toEqual(["found"]);
});

test.each(["2025-11-25", "2025-06-18", "2025-03-26"])(
  "the era of %s begins with initialize, and pings",
  async (version) => {
    const { conversation, entryId } = served();
    let ids = 0;
    const ask = (method: string, params?: Json): Promise<Json> =>
      conversation.take({ jsonrpc: "2.0", id: `r${++ids}`, method, params });
    expect((await ask("tools/list")).error.code).toBe(-32602);
    const { result } = await ask("initialize", {
      protocolVersion: version,
      capabilities: {},
      clientInfo: { name: "t", version: "1" },
    });
    requireValid("2025-11-25", "InitializeResult", result);
    expect(result).toMatchObject({ protocolVersion: version, instructions: INSTRUCTIONS });
    expect(await conversation.take({ jsonrpc: "2.0", method: "notifications/initialized" })).toBeUndefined();
    expect((await ask("ping")).result).toEqual({});
    for (const [method, params, name] of requestsOf(entryId)) {
      const reply = await ask(method, params);
      requireValid("2025-11-25", "JSONRPCResultResponse", reply);
      requireValid("2025-11-25", name, reply.result);
      expect(Object.keys(reply.result)).not.toContain("resultType");
    }
    const batch = (await conversation.take([{ jsonrpc: "2.0", id: "b", method: "ping" }])) as Json;
    if (version === "2025-03-26") expect(batch).toEqual([{ jsonrpc: "2.0", id: "b", result: {} }]);
    else expect(batch.error.code).toBe(-32600);
    expect((await ask("server/discover")).error.code).toBe(-32602);
    // A request that carries its version is modern, whatever came before.
    expect(
      (
        (await conversation.take({
          jsonrpc: "2.0",
          id: 9,
          method: "tools/list",
          params: { _meta: MODERN_META },
        })) as Json
      ).result.resultType,
    ).toBe("complete");
  },
);

test("an unknown version of initialize gets the newest of that era", async () => {
  const { conversation } = recallHere();
  const reply = (await conversation.take({
    jsonrpc: "2.0",
    id: 1,
    method: "initialize",
    params: { protocolVersion: "2031-01-01", capabilities: {} },
  })) as Json;
  expect(reply.result.protocolVersion).toBe("2025-11-25");
});

test("every mistake has its error, and costs only its message", async () => {
  const { conversation, request } = recallHere();
  const codeOf = async (message: unknown): Promise<number | undefined> => {
    const reply = (await conversation.take(message)) as Json;
    if (reply?.error) requireValid("2026-07-28", "JSONRPCErrorResponse", reply);
    return reply?.error?.code;
  };
  const modern = (method: string, params: Json = {}, id: unknown = 1): Json => ({
    jsonrpc: "2.0",
    id,
    method,
    params: { _meta: MODERN_META, ...params },
  });
  for (const odd of [
    1,
    null,
    "x",
    [],
    {},
    { jsonrpc: "1.0", id: 1, method: "ping" },
    { jsonrpc: "2.0", id: null, method: "ping" },
    { jsonrpc: "2.0", id: 1.5, method: "ping" },
    { jsonrpc: "2.0", id: 1, method: 7 },
  ])
    expect(await codeOf(odd), JSON.stringify(odd)).toBe(-32600);
  expect(await codeOf(modern("no/such"))).toBe(-32601);
  expect(await codeOf(modern("ping"))).toBe(-32601);
  expect(await codeOf(modern("logging/setLevel", { level: "debug" }))).toBe(-32601);
  expect(await codeOf(modern("tools/call", { name: "nope" }))).toBe(-32602);
  expect(await codeOf(modern("tools/call", { name: "find", arguments: [] }))).toBe(-32602);
  expect(await codeOf(modern("resources/read", { uri: "file:///etc/passwd" }))).toBe(-32602);
  expect(await codeOf(modern("resources/read", { uri: "pi-session://%zz" }))).toBe(-32602);
  expect(await codeOf(modern("prompts/get", { name: "nope" }))).toBe(-32602);
  expect(await codeOf(modern("prompts/get", { name: "recall" }))).toBe(-32602);
  expect(await codeOf(modern("tools/list", { cursor: "abc" }))).toBe(-32602);
  expect(
    await codeOf({
      jsonrpc: "2.0",
      id: 1,
      method: "tools/list",
      params: { _meta: { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } },
    }),
  ).toBe(-32602);
  expect(await codeOf({ jsonrpc: "2.0", id: 1, result: {} })).toBeUndefined();
  expect(await codeOf({ jsonrpc: "2.0", method: "notifications/unknown" })).toBeUndefined();
  const other = (await conversation.take(
    modern("tools/list", { _meta: { ...MODERN_META, "io.modelcontextprotocol/protocolVersion": "2027-01-01" } }),
  )) as Json;
  requireValid("2026-07-28", "UnsupportedProtocolVersionError", other);
  expect(conversation.refuse("parse")).toEqual({
    jsonrpc: "2.0",
    error: { code: -32700, message: "The line is not JSON in UTF-8." },
  });
  expect(conversation.refuse("too_large", '"a7"')).toMatchObject({
    id: "a7",
    error: { code: -32600 },
  });
  for (const given of [
    { query: 1 },
    { nope: 1 },
    { query: "x".repeat(5000) },
    { query: "x", in: "everything" },
    { query: "x", agents: ["nobody"] },
    { query: "x", since: "no time" },
  ]) {
    const { result } = await request("tools/call", { name: "find", arguments: given });
    expect(result.isError, JSON.stringify(given).slice(0, 80)).toBe(true);
    expect(result.content[0].text.length).toBeLessThan(300);
  }
});

test("a cancelled request gets no reply, and others go on", async () => {
  let release = (): void => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const { conversation } = recallHere({ asked: (command) => (command === "search_sessions" ? held : undefined) });
  const call = (id: number, name: string): Json => ({
    jsonrpc: "2.0",
    id,
    method: "tools/call",
    params: { name, arguments: { query: "two words of no session" }, _meta: MODERN_META },
  });
  const slow = conversation.take(call(1, "find"));
  expect(((await conversation.take(call(1, "find"))) as Json).error.code).toBe(-32600);
  await conversation.take({
    jsonrpc: "2.0",
    method: "notifications/cancelled",
    params: { requestId: 1, reason: "no longer needed" },
  });
  expect(await slow).toBeUndefined();
  expect(
    ((await conversation.take({ jsonrpc: "2.0", id: 2, method: "tools/list", params: { _meta: MODERN_META } })) as Json)
      .result.tools.length,
  ).toBe(6);
  await conversation.take({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: 77 } });
  release();
});

test("a subscription is acknowledged, and lasts until it is cancelled", async () => {
  const { conversation, notices } = recallHere();
  const listening = conversation.take({
    jsonrpc: "2.0",
    id: "s",
    method: "subscriptions/listen",
    params: { _meta: MODERN_META, notifications: { toolsListChanged: true } },
  });
  await Promise.resolve();
  requireValid("2026-07-28", "SubscriptionsAcknowledgedNotification", notices[0]);
  await conversation.take({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "s" } });
  expect(await listening).toBeUndefined();
});

test("what models see before they ask is short, and says the use first", async () => {
  const { request } = recallHere();
  const { tools } = (await request("tools/list")).result;
  expect(JSON.stringify(tools).length).toBeLessThanOrEqual(7000);
  expect(tools.map(({ name }: Json) => name)).toEqual(["find", "recent", "open", "tree", "compare", "history"]);
  for (const { description, inputSchema, annotations } of tools) {
    expect(description.length).toBeLessThanOrEqual(600);
    expect(annotations).toEqual({
      readOnlyHint: true,
      destructiveHint: false,
      idempotentHint: true,
      openWorldHint: false,
    });
    expect(ajv.validateSchema(inputSchema)).toBe(true);
  }
  expect(INSTRUCTIONS.length).toBeLessThanOrEqual(1500);
  expect(INSTRUCTIONS.split("\n")[0]).toMatch(/^Search past coding-agent sessions on this machine before /);
});
