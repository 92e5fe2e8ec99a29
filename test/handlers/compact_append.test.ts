/** Appending a compaction: what the model sees then, and where one may not begin to keep. */

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { assistant, toolCall, toolResult, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";

/** u1 c1 r1 r2 a1 u2 c2 r3, where c1 calls two tools and c2 one; and x beside u2. */
async function session(): Promise<HereServer> {
  const server = serveHere(["--events", "none"]);
  const twoCalls = toolCall("1", { id: "c1" });
  twoCalls.message.content.push({ type: "toolCall", id: "2", name: "read", arguments: {} });
  await server.result("append", {
    entries: [
      user("one", { id: "u1" }),
      twoCalls,
      toolResult("1", "x", { id: "r1" }),
      toolResult("2", "y", { id: "r2" }),
      assistant("done", { id: "a1" }),
      user("beside", { id: "x" }),
      user("two", { id: "u2", parentId: "a1" }),
      toolCall("3", { id: "c2" }),
      toolResult("3", "z", { id: "r3" }),
    ],
  });
  return server;
}

const compaction = (firstKeptEntryId: string | null, more: object = {}): Json => ({
  summary: "So far.",
  firstKeptEntryId,
  tokensBefore: 1234,
  ...more,
});

async function seen(server: HereServer): Promise<string[]> {
  const { messages } = await server.result("get_messages");
  return messages.map(({ role, summary, toolCallId, content }: Json) =>
    role === "compactionSummary"
      ? `summary: ${summary}`
      : toolCallId
        ? `result ${toolCallId}`
        : (content?.[0]?.text ?? (typeof content === "string" ? content : role)),
  );
}

test.each<[string | null, string[]]>([
  ["u1", ["one", "assistant", "result 1", "result 2", "done", "two", "assistant", "result 3"]],
  ["c1", ["assistant", "result 1", "result 2", "done", "two", "assistant", "result 3"]],
  ["a1", ["done", "two", "assistant", "result 3"]],
  ["u2", ["two", "assistant", "result 3"]],
  ["c2", ["assistant", "result 3"]],
  [null, []],
])("what is kept from %s on follows the summary", async (firstKept, kept) => {
  const server = await session();
  const result = await server.result("compact_append", compaction(firstKept));
  expect(result).toEqual({
    entryId: expect.any(String),
    leafId: result.entryId,
    firstKeptEntryId: firstKept ?? result.entryId,
  });
  expect(await seen(server)).toEqual(["summary: So far.", ...kept]);
  await server.result("append", { entries: [user("on we go")] });
  expect(await seen(server)).toEqual(["summary: So far.", ...kept, "on we go"]);
  expect(await server.result("get_state")).toMatchObject({ entryCount: 11, messageCount: kept.length + 2 });
});

describe("a boundary is refused, with the nearest that would do,", () => {
  test.each<[string, string, string[]]>([
    ["between a call and its result", "r3", ["c2"]],
    ["between a call and the first of its results", "r1", ["c1", "a1"]],
    ["between the results of one message", "r2", ["c1", "a1"]],
    ["off the path", "x", []],
    ["unknown", "nope", []],
  ])("%s", async (_what, entryId, nearest) => {
    const server = await session();
    const error = await server.failure("compact_append", compaction(entryId));
    expect(error).toMatchObject({ code: -32803, data: { name: "invalid_boundary", entryId, nearest } });
    for (const id of nearest) expect(error.message).toContain(id);
    expect(await server.result("get_state")).toMatchObject({ entryCount: 9, leafId: "r3" });
    for (const id of nearest) {
      await server.result("branch", { entryId: "r3" });
      expect((await server.result("compact_append", compaction(id))).firstKeptEntryId).toBe(id);
    }
  });
});

test.each<[string, object, string]>([
  ["an empty summary", { summary: "" }, "summary"],
  ["a summary of white space", { summary: " \n\t" }, "summary"],
  ["no summary", { summary: undefined }, "summary"],
  ["no boundary", { firstKeptEntryId: undefined }, "firstKeptEntryId"],
  ["negative tokens", { tokensBefore: -1 }, "tokensBefore"],
  ["no tokens", { tokensBefore: undefined }, "tokensBefore"],
])("%s is refused", async (_what, params, path) => {
  const server = await session();
  expect(await server.failure("compact_append", compaction("u2", params))).toMatchObject({
    code: -32602,
    data: { issues: [{ path }] },
  });
  expect((await server.result("get_state")).entryCount).toBe(9);
});

test("a second one counts from the first", async () => {
  const server = await session();
  await server.result("compact_append", compaction("u2"));
  await server.result("append", { entries: [user("three", { id: "u3" }), assistant("fine")] });
  await server.result("compact_append", compaction("u3", { summary: "And more." }));
  expect(await seen(server)).toEqual(["summary: And more.", "three", "fine"]);
  await server.result("branch", { entryId: "u3" });
  expect(await seen(server)).toEqual(["summary: So far.", "two", "assistant", "result 3", "three"]);
});

test("details and usage are stored as they were sent", async () => {
  const server = await session();
  server.send(
    '{"jsonrpc":"2.0","id":"raw","method":"compact_append","params":{"summary":"s","firstKeptEntryId":"u2","tokensBefore":5e1,"details":{"n":1.0,"big":9007199254740993},"usage":{"input":1e2},"fromHook":true}}',
  );
  await server.reply("raw");
  const { sessionFile } = await server.result("get_state");
  const line = readFileSync(sessionFile, "utf8").trimEnd().split("\n").at(-1) as string;
  expect(line).toContain('"details":{"n":1.0,"big":9007199254740993}');
  expect(line).toContain('"usage":{"input":1e2}');
  expect(JSON.parse(line)).toMatchObject({ type: "compaction", parentId: "r3", tokensBefore: 50, fromHook: true });
});

test("of two that race, the one with the stale leaf fails", async () => {
  const server = await session();
  const params = compaction("u2", { expectedLeafId: "r3" });
  server.send(
    { jsonrpc: "2.0", id: 1, method: "compact_append", params },
    { jsonrpc: "2.0", id: 2, method: "compact_append", params },
  );
  const [first, second] = await server.take(2);
  expect(second.error).toMatchObject({ code: -32801, data: { name: "content_modified", leafId: first.result.leafId } });
  expect((await server.result("get_state")).entryCount).toBe(10);
});
