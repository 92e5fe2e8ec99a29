/** The contents and costs of a session, and the fill of its context. */

import { describe, expect, test } from "vitest";
import { append, conversation, nameOf } from "../support/asking.ts";
import { toolResult, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { calls, reporting } from "../support/turns.ts";

const NOTHING = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
const paid = (input: number, total: number): Json => ({ ...NOTHING, input, output: 1, cost: { ...NOTHING, total } });
const answer = (input: number, cost: number, more: Json = {}): Json => ({
  ...reporting(0, { usage: paid(input, cost) }),
  ...more,
});
const stats = (server: HereServer, params: object = {}): Promise<Json> => server.result("get_session_stats", params);

test("the whole file and the path to the leaf are counted apart", async () => {
  const { server, ids } = await conversation(user("a"), answer(100, 1));
  await append(server, calls("b", "1", "2"), toolResult("1", "c"), answer(10, 2));
  await server.result("branch", { entryId: ids[1] });
  await append(server, user("d"), answer(1000, 4));
  expect(await stats(server)).toMatchObject({
    ...{ userMessages: 2, assistantMessages: 4, toolCalls: 2, toolResults: 1, totalMessages: 7 },
    ...{ tokens: { input: 1110, output: 3, total: 1113 }, cost: 7 },
    path: {
      ...{ userMessages: 2, assistantMessages: 2, toolCalls: 0, toolResults: 0, totalMessages: 4 },
      ...{ tokens: { input: 1100, output: 2, total: 1102 }, cost: 5 },
    },
  });
});

test("usage entries and what summaries cost count", async () => {
  const usageEntry = { type: "usage", kind: "title", provider: "p", model: "m", usage: paid(5, 1) };
  const { server, ids } = await conversation(user("a"), user("b"), usageEntry);
  const compaction = { summary: "s", firstKeptEntryId: ids[1], tokensBefore: 1, usage: paid(50, 2) };
  await server.result("compact_append", compaction);
  await server.result("branch", { entryId: ids[0], summary: { summary: "s", usage: paid(500, 4) } });
  const path = { tokens: { input: 500 }, cost: 4 };
  expect(await stats(server)).toMatchObject({ tokens: { input: 555 }, cost: 7, path });
});

test("a writer that keeps only the total is counted by it", async () => {
  const { server } = await conversation(reporting(0, { usage: { totalTokens: 123 } }));
  expect((await stats(server)).tokens).toMatchObject({ input: 0, total: 123 });
});

test("a fork tells what it took over from what was paid for in it, whatever time that names", async () => {
  const server = serveHere();
  const ids = await append(server, user("a"), answer(100, 1), user("b"));
  const { sessionFile: parentSession } = await server.result("get_state");
  await server.result("set_label", { entryId: ids[0], label: "here" });
  await server.result("fork", { entryId: ids[2] });
  expect(await stats(server)).toMatchObject({ own: { cost: 0 }, inherited: { cost: 1 }, cost: 1 });
  await append(server, answer(10, 2), answer(10, 2, { timestamp: "2001-01-01T00:00:00.000Z" }));
  const own = { tokens: { input: 20 }, cost: 4 };
  expect(await stats(server)).toMatchObject({ own, inherited: { tokens: { input: 100 }, cost: 1 }, cost: 5 });
  await server.result("clone");
  expect(await stats(server)).toMatchObject({ own: { cost: 0 }, inherited: { cost: 5 } });
  // One that names a parent and took over nothing has everything of its own.
  await server.result("new_session", { parentSession });
  await append(server, user("b"), answer(10, 2));
  expect(await stats(server)).toMatchObject({ own: { cost: 2 }, inherited: { cost: 0 } });
});

acrossTiers(describe, ["jsonl", "v2"])("how full the context is, in the store %s", (store) => {
  const usage = async (server: HereServer): Promise<Json> => (await stats(server)).contextUsage;
  const serve = async (...entries: Json[]): Promise<HereServer> => {
    const server = serveHere(["--store", store, "--events", "none"]);
    await append(server, ...entries);
    return server;
  };
  const answers = (tokens: number, more: Json = {}): Json =>
    reporting(tokens, { provider: "anthropic", model: "claude-sonnet-4-5", ...more });

  test("is what the last answer reports and an estimate of what came after it, of the model's window", async () => {
    const server = await serve(user("a"), answers(5000), user("12345678"));
    expect(await usage(server)).toEqual({ tokens: 5002, contextWindow: 200_000, percent: (5002 / 200_000) * 100 });
    await server.result("set_model", { provider: "x", modelId: "nobody-knows-it" });
    expect(await usage(server)).toMatchObject({ tokens: 5002, contextWindow: 128_000 });
  });

  test("is estimated where nothing is reported, and absent where no model is named", async () => {
    const server = await serve(user("12345678"), answers(0, { stopReason: "aborted" }));
    expect(await usage(server)).toMatchObject({ tokens: 3 });
    const unnamed = await serve(user("a"), { type: "message", message: { role: "assistant", content: [] } });
    expect(await stats(unnamed)).not.toHaveProperty("contextUsage");
  });

  test("is not known after a compaction until an answer reports it", async () => {
    const server = await serve(user("a"), answers(5000));
    await server.result("compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 5000 });
    const unknown = { tokens: null, contextWindow: 200_000, percent: null };
    expect(await usage(server)).toEqual(unknown);
    await append(server, user("b"), answers(0));
    expect(await usage(server)).toEqual(unknown);
    await append(server, answers(300), answers(900, { stopReason: "error" }));
    expect(await usage(server)).toMatchObject({ tokens: 301 });
  });
});

test("of any session by its path, which stays closed, and of the path to any entry with its context", async () => {
  const server = serveHere(["--events", "none"]);
  const named = { provider: "anthropic", model: "claude-sonnet-4-5" };
  const ids = await append(server, user("a"), reporting(5000, { ...named, usage: { ...paid(5000, 1), output: 0 } }));
  await append(server, user("b"), answer(10, 2));
  const { sessionFile: sessionPath, sessionId } = await server.result("get_state");
  await server.result("new_session");
  const path = { totalMessages: 2, cost: 1 };
  const found = await stats(server, { sessionPath, leafId: ids[1] });
  expect(found).toMatchObject({ sessionId, totalMessages: 4, cost: 3, path, contextUsage: { tokens: 5000 } });
  const none = { totalMessages: 4, path: { totalMessages: 0, cost: 0 } };
  expect(await stats(server, { sessionPath, leafId: null })).toMatchObject(none);
  expect((await server.result("list_open_sessions")).sessions).toHaveLength(1);
  expect(await nameOf(server, "get_session_stats", { sessionPath, leafId: "none" })).toBe("entry_not_found");
  expect(await stats(server)).toMatchObject({ totalMessages: 0 });
});
