import { describe, expect, test } from "vitest";
import { toolResult, user } from "../support/drafts.ts";
import { type HereServer, type Json, serveHere } from "../support/server.ts";
import { acrossTiers } from "../support/tiers.ts";
import { calls, reporting } from "../support/turns.ts";

const paid = (input: number, total: number): Json => ({
  input,
  output: 1,
  cacheRead: 0,
  cacheWrite: 0,
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total },
});

const answer = (input: number, cost: number, more: Json = {}): Json => ({
  ...reporting(0, { usage: paid(input, cost) }),
  ...more,
});

const stats = (server: HereServer): Promise<Json> => server.result("get_session_stats");

test("the whole file and the path to the leaf are counted apart", async () => {
  const server = serveHere(["--no-session"]);
  const { entryIds } = await server.result("append", { entries: [user("a"), answer(100, 1)] });
  await server.result("append", { entries: [calls("b", "1", "2"), toolResult("1", "c"), answer(10, 2)] });
  await server.result("branch", { entryId: entryIds[1] });
  await server.result("append", { entries: [user("d"), answer(1000, 4)] });
  expect(await stats(server)).toMatchObject({
    userMessages: 2,
    assistantMessages: 4,
    toolCalls: 2,
    toolResults: 1,
    totalMessages: 7,
    tokens: { input: 1110, output: 3, total: 1113 },
    cost: 7,
    path: {
      userMessages: 2,
      assistantMessages: 2,
      toolCalls: 0,
      toolResults: 0,
      totalMessages: 4,
      tokens: { input: 1100, output: 2, total: 1102 },
      cost: 5,
    },
  });
});

test("usage entries and what summaries cost count", async () => {
  const server = serveHere(["--no-session"]);
  const usageEntry = { type: "usage", kind: "title", provider: "p", model: "m", usage: paid(5, 1) };
  const { entryIds } = await server.result("append", { entries: [user("a"), user("b"), usageEntry] });
  const compaction = { summary: "s", firstKeptEntryId: entryIds[1], tokensBefore: 1, usage: paid(50, 2) };
  await server.result("compact_append", compaction);
  await server.result("branch", { entryId: entryIds[0], summary: { summary: "s", usage: paid(500, 4) } });
  expect(await stats(server)).toMatchObject({
    tokens: { input: 555 },
    cost: 7,
    path: { tokens: { input: 500 }, cost: 4 },
  });
});

test("a writer that keeps only the total is counted by it", async () => {
  const server = serveHere(["--no-session"]);
  await server.result("append", { entries: [reporting(0, { usage: { totalTokens: 123 } })] });
  expect((await stats(server)).tokens).toMatchObject({ input: 0, total: 123 });
});

test("a fork tells what it took over from what was paid for in it", async () => {
  const server = serveHere();
  const { entryIds } = await server.result("append", { entries: [user("a"), answer(100, 1), user("b")] });
  await server.result("set_label", { entryId: entryIds[0], label: "here" });
  await server.result("fork", { entryId: entryIds[2] });
  expect(await stats(server)).toMatchObject({ own: { cost: 0 }, inherited: { cost: 1 }, cost: 1 });
  await server.result("append", { entries: [answer(10, 2)] });
  expect(await stats(server)).toMatchObject({
    own: { tokens: { input: 10 }, cost: 2 },
    inherited: { tokens: { input: 100 }, cost: 1 },
    cost: 3,
  });
  await server.result("clone");
  expect(await stats(server)).toMatchObject({ own: { cost: 0 }, inherited: { cost: 3 } });
});

test("an entry of a fork's own that names an old time is its own", async () => {
  const server = serveHere();
  const { entryIds } = await server.result("append", { entries: [user("a"), answer(100, 1), user("b")] });
  await server.result("fork", { entryId: entryIds[2] });
  const old = { timestamp: "2001-01-01T00:00:00.000Z" };
  await server.result("append", { entries: [answer(10, 2, old), answer(10, 2, old)] });
  expect(await stats(server)).toMatchObject({ own: { cost: 4 }, inherited: { cost: 1 } });
});

test("a session that names a parent and took over nothing has everything of its own", async () => {
  const server = serveHere();
  await server.result("append", { entries: [user("a"), answer(100, 1)] });
  const { sessionFile } = await server.result("get_state");
  await server.result("new_session", { parentSession: sessionFile });
  await server.result("append", { entries: [user("b"), answer(10, 2)] });
  expect(await stats(server)).toMatchObject({ own: { cost: 2 }, inherited: { cost: 0 } });
});

acrossTiers(describe, ["jsonl", "v2"])("how full the context is, in the store %s", (store) => {
  const usage = async (server: HereServer): Promise<Json> => (await stats(server)).contextUsage;
  const serve = async (...entries: Json[]): Promise<HereServer> => {
    const server = serveHere(["--store", store, "--events", "none"]);
    await server.result("append", { entries });
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

  test("is estimated where nothing is reported", async () => {
    const server = await serve(user("12345678"), answers(0, { stopReason: "aborted" }));
    expect(await usage(server)).toMatchObject({ tokens: 3 });
  });

  test("is not known after a compaction until an answer reports it", async () => {
    const server = await serve(user("a"), answers(5000));
    await server.result("compact_append", { summary: "s", firstKeptEntryId: null, tokensBefore: 5000 });
    const unknown = { tokens: null, contextWindow: 200_000, percent: null };
    expect(await usage(server)).toEqual(unknown);
    await server.result("append", { entries: [user("b"), answers(0)] });
    expect(await usage(server)).toEqual(unknown);
    await server.result("append", { entries: [answers(300), answers(900, { stopReason: "error" })] });
    expect(await usage(server)).toMatchObject({ tokens: 301 });
  });

  test("is absent where no model is named", async () => {
    const server = await serve(user("a"), { type: "message", message: { role: "assistant", content: [] } });
    expect(await stats(server)).not.toHaveProperty("contextUsage");
  });
});

test("of any session by its path, which stays closed, and of the path to any entry", async () => {
  const server = serveHere(["--events", "none"]);
  const { entryIds } = await server.result("append", { entries: [user("a"), answer(100, 1)] });
  await server.result("append", { entries: [user("b"), answer(10, 2)] });
  const { sessionFile, sessionId } = await server.result("get_state");
  await server.result("new_session");
  const found = await server.result("get_session_stats", { sessionPath: sessionFile, leafId: entryIds[1] });
  expect(found).toMatchObject({ sessionId, totalMessages: 4, cost: 3, path: { totalMessages: 2, cost: 1 } });
  expect(await server.result("get_session_stats", { sessionPath: sessionFile, leafId: null })).toMatchObject({
    totalMessages: 4,
    path: { totalMessages: 0, cost: 0 },
  });
  expect((await server.result("list_open_sessions")).sessions).toHaveLength(1);
  const unknown = await server.failure("get_session_stats", { sessionPath: sessionFile, leafId: "none" });
  expect(unknown.data.name).toBe("entry_not_found");
  expect(await stats(server)).toMatchObject({ totalMessages: 0 });
});

test("the context at an entry is that of its path", async () => {
  const server = serveHere(["--no-session", "--events", "none"]);
  const named = { provider: "anthropic", model: "claude-sonnet-4-5" };
  const { entryIds } = await server.result("append", { entries: [user("a"), reporting(5000, named)] });
  await server.result("append", { entries: [user("b"), reporting(7000, named)] });
  const { contextUsage } = await server.result("get_session_stats", { leafId: entryIds[1] });
  expect(contextUsage).toMatchObject({ tokens: 5000 });
});
