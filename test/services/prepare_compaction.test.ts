/** Data for a host's compaction: the cut, the entries to summarise, the size of the context. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { append, conversation, talk, tokens } from "../support/asking.ts";
import { serveContent } from "../support/cases.ts";
import { toolResult, user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { type HereServer, type Json, spawnServer, temporaryPlace } from "../support/server.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";
import { calls, reporting } from "../support/turns.ts";

const EMPTY = { messagesToSummarize: [], turnPrefixMessages: [], isSplitTurn: false };

const texts = (messages: Json[]): string[] =>
  messages.map(({ content, role }) => (typeof content === "string" ? content : `${role} ${content[0]?.text ?? ""}`));

/** Returns the prepared data, by default with as little kept as possible. */
const prepared = (server: HereServer, keepRecentTokens = 0): Promise<Json> =>
  server.result("prepare_compaction", { keepRecentTokens });

/** A session with these entries, and the data prepared in it. */
async function planOf(budget: number, entries: Json[]): Promise<{ plan: Json; ids: string[]; server: HereServer }> {
  const { server, ids } = await conversation(...entries);
  return { server, ids, plan: await prepared(server, budget) };
}

/** Appends the compaction that was prepared. */
async function compact(server: HereServer, plan: Json, summary = "s"): Promise<void> {
  const { firstKeptEntryId, tokensBefore, details } = plan;
  await server.result("compact_append", { firstKeptEntryId, tokensBefore, details, summary });
}

describe("where it cuts", () => {
  test("the newest messages are kept until they reach the budget", async () => {
    const { server, ids, plan } = await planOf(30, talk("u *10 | a *10 | u *10 | a *10 | u *10"));
    expect(plan).toMatchObject({ firstKeptEntryId: ids[2], isSplitTurn: false, turnPrefixMessages: [] });
    expect(plan.messagesToSummarize).toHaveLength(2);
    expect((await prepared(server, 10)).firstKeptEntryId).toBe(ids[4]);
    expect((await prepared(server, 21)).firstKeptEntryId).toBe(ids[2]);
    // A turn that fits into the budget is kept whole.
    const whole = { ...EMPTY, firstKeptEntryId: ids[0], conversationText: "" };
    expect(await server.result("prepare_compaction")).toMatchObject(whole);
  });

  test("an empty session has nothing to keep", async () => {
    const { server } = await conversation();
    const nothing = { ...EMPTY, shouldCompact: false, contextTokens: 0, firstKeptEntryId: null };
    expect(await server.result("prepare_compaction")).toMatchObject(nothing);
  });

  test("never at a tool result: the call before it, or what follows, is the first that is kept", async () => {
    const { server, ids } = await planOf(0, talk("u Read it | c :c1 | r c1 *50 | a Done | u Thanks"));
    for (let budget = 0; budget < 80; budget++)
      expect((await prepared(server, budget)).firstKeptEntryId).not.toBe(ids[2]);
    expect((await prepared(server, 20)).firstKeptEntryId).toBe(ids[3]);
  });

  test("a cut inside a turn has the turn's beginning as its prefix", async () => {
    const turns = "u First | a Yes | u Second | c Looking: c1 | r c1 found | c Again: c2 | r c2 *100 | a *100";
    const { ids, plan } = await planOf(100, talk(turns));
    expect(plan).toMatchObject({ firstKeptEntryId: ids[7], isSplitTurn: true });
    expect(texts(plan.messagesToSummarize)).toEqual(["First", "assistant Yes"]);
    const prefix = ["Second", "assistant Looking", "toolResult found", "assistant Again", `toolResult ${tokens(100)}`];
    expect(texts(plan.turnPrefixMessages)).toEqual(prefix);
    expect(plan.conversationText.indexOf("First")).toBeLessThan(plan.conversationText.indexOf("Second"));
  });

  test("entries that say nothing to the model go with what follows them", async () => {
    const silent = { type: "custom", customType: "state" };
    const { ids, plan } = await planOf(10, [...talk("u First | a Yes"), silent, silent, user(tokens(10))]);
    expect(plan.firstKeptEntryId).toBe(ids[2]);
  });

  test("parallel results that another message interrupts stay with their call", async () => {
    const turns = talk("u First | c Both: a b | r a one | u Hurry | r b *50 | u More");
    const { server, ids, plan } = await planOf(53, turns);
    expect(plan.firstKeptEntryId).toBe(ids[1]);
    await compact(server, plan);
  });

  test("results at the end that are over the limit alone are kept with their call", async () => {
    const { server, ids } = await conversation(...talk("u Read | c :c1 | r c1 *500"));
    const over = { keepRecentTokens: 100, contextWindow: 100, reserveTokens: 0 };
    const plan = { shouldCompact: true, firstKeptEntryId: ids[1], isSplitTurn: true };
    expect(await server.result("prepare_compaction", over)).toMatchObject(plan);
  });
});

describe("after a compaction", () => {
  test("the span begins where the one before kept from, and its summary and files go along", async () => {
    const edit = calls("", { id: "c1", name: "edit", arguments: { path: "old.ts" } });
    const { server, ids, plan } = await planOf(11, [user("One"), edit, ...talk("r c1 ok | u Two | a *10")]);
    expect(plan).toMatchObject({ firstKeptEntryId: ids[3], details: { readFiles: [], modifiedFiles: ["old.ts"] } });
    await compact(server, plan, "One was done.");
    const reading = calls("", { id: "c2", arguments: { path: "new.ts" } });
    await append(server, reading, ...talk("r c2 ok | u *10"));
    const second = await prepared(server, 10);
    expect([second.previousSummary, second.isSplitTurn]).toEqual(["One was done.", false]);
    const summarised = ["Two", `assistant ${tokens(10)}`, "assistant ", "toolResult ok"];
    expect(texts(second.messagesToSummarize)).toEqual(summarised);
    expect(second.details).toEqual({ readFiles: ["new.ts"], modifiedFiles: ["old.ts"] });
  });

  test("nothing is to be summarised directly behind it, and what is kept stays the same", async () => {
    const { server, plan } = await planOf(2, talk("u One | a Yes | u Two | a Yes"));
    await compact(server, plan);
    const before = await server.result("get_messages");
    const second = await prepared(server);
    expect(second).toMatchObject(EMPTY);
    await compact(server, second);
    expect((await server.result("get_messages")).messages.slice(1)).toEqual(before.messages.slice(1));
  });

  test("files of a summary that an extension wrote are its own business", async () => {
    const { server, ids } = await conversation(...talk("u One | a Yes | u Two"));
    const details = { readFiles: ["theirs.ts"], modifiedFiles: [] };
    const compaction = { firstKeptEntryId: ids[2], tokensBefore: 1, summary: "s", details, fromHook: true };
    await server.result("compact_append", compaction);
    await append(server, user("Three"));
    expect((await prepared(server)).details.readFiles).toEqual([]);
  });

  test("what keeps nothing begins behind it", async () => {
    const { server } = await conversation(...talk("u One | a Yes"));
    await server.result("compact_append", { firstKeptEntryId: null, tokensBefore: 1, summary: "all of it" });
    const ids = await append(server, ...talk("u Two | a Yes | u Three"));
    const plan = await prepared(server);
    expect(plan).toMatchObject({ firstKeptEntryId: ids[2], previousSummary: "all of it" });
    expect(texts(plan.messagesToSummarize)).toEqual(["Two", "assistant Yes"]);
  });
});

describe("tokens", () => {
  test.each<[string, number, Json[]]>([
    ["four characters are one, rounded up for each message", 3, talk("u abcde | a abc")],
    ["the last report, and estimates after it", 5007, [...talk("u *999"), reporting(5000), ...talk("u *7")]],
    ["no report of what was broken off", 10, [...talk("u *9"), reporting(5000, { stopReason: "aborted" })]],
    ["nor of one that failed", 10, [...talk("u *9"), reporting(5000, { stopReason: "error" })]],
    ["nor of one without any", 10, [...talk("u *9"), reporting(0)]],
  ])("%s", async (_what, count, entries) => {
    const { plan } = await planOf(20_000, entries);
    expect(plan).toMatchObject({ contextTokens: count, tokensBefore: count });
  });

  test("a report from before a compaction or a context edit was about another context", async () => {
    const { server, ids } = await conversation(...talk("u *9"), reporting(5000), ...talk("u *3"));
    const count = async (): Promise<number> => (await server.result("prepare_compaction")).contextTokens;
    await server.result("edit_context", { targetId: ids[0], replacement: null });
    expect(await count()).toBe(4);
    await append(server, reporting(600));
    expect(await count()).toBe(600);
    await server.result("compact_append", { firstKeptEntryId: ids[2], tokensBefore: 1, summary: "abcd" });
    expect(await count()).toBe(5);
  });

  test("a compaction is due when they exceed the window less the reserve", async () => {
    const { server } = await conversation(user("Hello"), reporting(800));
    const due = async (contextWindow: number): Promise<boolean> =>
      (await server.result("prepare_compaction", { contextWindow, reserveTokens: 200, keepRecentTokens: 0 }))
        .shouldCompact;
    expect([await due(1000), await due(999)]).toEqual([false, true]);
  });

  test("in a small window the reserve and what is kept leave room, and one is due while there is something to summarise", async () => {
    const small = { contextWindow: 8192 };
    const { server } = await conversation();
    expect((await server.result("prepare_compaction", small)).shouldCompact).toBe(false);
    await append(server, ...talk("u *3000 | a *10 | u *2100 | a *10"));
    const plan = await server.result("prepare_compaction", small);
    expect(plan.settings).toMatchObject({ reserveTokens: 4096, keepRecentTokens: 2048 });
    expect([plan.shouldCompact, plan.messagesToSummarize.length]).toEqual([true, 2]);
    await compact(server, plan);
    expect((await server.result("prepare_compaction", small)).shouldCompact).toBe(false);
  });
});

describe("settings", () => {
  test("are Pi's defaults where nothing is configured, and the window of the model", async () => {
    const { server } = await conversation(user("Hello"));
    const params = { customInstructions: "Be brief." };
    const { settings, customInstructions } = await server.result("prepare_compaction", params);
    const defaults = { enabled: true, reserveTokens: 16_384, keepRecentTokens: 20_000, contextWindow: 128_000 };
    // Instructions come back as they were sent.
    expect([settings, customInstructions]).toMatchObject([defaults, "Be brief."]);
    await server.result("set_model", { provider: "anthropic", modelId: "claude-sonnet-4-5" });
    expect((await server.result("prepare_compaction")).settings.contextWindow).toBe(200_000);
  });

  test("the user's settings count more, the project's most, the request's own above all", SYSTEM, async () => {
    const place = temporaryPlace();
    const configure = (folder: string, compaction: unknown): void => {
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, "settings.json"), JSON.stringify({ compaction }));
    };
    configure(join(place.home, ".pi", "agent"), { reserveTokens: 111, keepRecentTokens: 222 });
    const server = spawnServer(["--no-session"], "lines", place);
    const settings = async (params?: Json): Promise<Json> =>
      (await server.result("prepare_compaction", params)).settings;
    expect(await settings()).toMatchObject({ enabled: true, reserveTokens: 111, keepRecentTokens: 222 });
    configure(join(place.cwd, ".pi"), { enabled: false, keepRecentTokens: 333, reserveTokens: "many" });
    expect(await settings()).toMatchObject({ enabled: false, reserveTokens: 111, keepRecentTokens: 333 });
    expect(await settings({ keepRecentTokens: 4 })).toMatchObject({ keepRecentTokens: 4 });
    const due = await server.result("prepare_compaction", { contextWindow: 0, reserveTokens: 1 });
    expect(due.shouldCompact).toBe(false);
  });
});

describe("what a summariser gets", () => {
  const bash = (command: string, excludeFromContext: boolean): Json => {
    const message = { role: "bashExecution", command, output: "out", cancelled: false, truncated: false };
    return { type: "message", message: { ...message, excludeFromContext } };
  };

  test("who said what, the calls with their arguments, no thoughts, and no command that was kept out", async () => {
    const [asked, read, result, next] = talk("u Read it | c Reading.: c1 | r c1 contents | u Next");
    read.message.content.unshift({ type: "thinking", thinking: "secret thought" });
    const { plan } = await planOf(0, [bash("hidden", true), asked, read, result, bash("ls", false), next]);
    expect(plan.conversationText.split("\n\n")).toEqual([
      "User: Read it",
      "Assistant: Reading.",
      'Tool call: read {"path":"a.txt"}',
      "Tool result (read): contents",
      "Command of the user: ls\nout",
    ]);
  });

  test("output of tools is cut at 2,000 characters, and how much is left out is said", async () => {
    const long = `${"y".repeat(1999)}😀${"z".repeat(100)}`;
    const results = [toolResult("c1", "x".repeat(2000)), toolResult("c2", long)];
    const { plan } = await planOf(0, [...talk("u Read | c :c1 c2"), ...results, user("Next")]);
    expect(plan.conversationText).toContain(`${"x".repeat(2000)}\n\n`);
    expect(plan.conversationText).toContain(`${"y".repeat(1999)}\n(102 more characters are left out here)`);
  });

  test("edits of the context hold here too", async () => {
    const { server, ids } = await conversation(...talk("u One | u Two | u Three"));
    await server.result("edit_context", { targetId: ids[0], replacement: null });
    await server.result("edit_context", { targetId: ids[1], replacement: { content: "Zwei" } });
    const plan = await prepared(server);
    expect([plan.conversationText, texts(plan.messagesToSummarize)]).toEqual(["User: Zwei", ["Zwei"]]);
  });

  test("files: what was changed is not listed as read, each once, in order", async () => {
    const files = ["read b.ts", "read a.ts", "read b.ts", "write d.ts", "edit c.ts", "read c.ts", "bash e.ts"];
    const list = files.map((one, index) => {
      const [name, path] = one.split(" ");
      return { id: `c${index}`, name, arguments: { path } };
    });
    const asking = calls("", ...list, { id: "odd", name: "read", arguments: null });
    const { plan } = await planOf(0, [user("Go"), asking, ...list.map(({ id }) => toolResult(id, "ok")), user("Next")]);
    expect(plan.details).toEqual({ readFiles: ["a.ts", "b.ts"], modifiedFiles: ["c.ts", "d.ts"] });
  });

  test("of a call with a great many arguments the first and their number, and all count", SWEEP, async () => {
    const many = Object.fromEntries(Array.from({ length: 30_000 }, (_, n) => [`a${n}`, n]));
    const asking = calls("", { id: "c", name: "other", arguments: many });
    const { plan } = await planOf(0, [user("One"), asking, user("Two")]);
    expect(plan.conversationText).toContain('"a19999":19999,"…":"10000 more are not shown here"');
    expect(plan.contextTokens / Math.ceil(JSON.stringify(many).length / 4)).toBeCloseTo(1, 3);
  });
});

const keeping = (firstKeptEntryId: string, summary?: string): Json => ({
  ...{ type: "compaction", firstKeptEntryId, tokensBefore: 1 },
  ...(summary === undefined ? {} : { summary }),
});

test.each<[string, Json[], Json]>([
  [
    "one without a summary is passed over, and the one before it rules",
    [user("b"), keeping("e1", "s"), user("c"), keeping("e3")],
    { previousSummary: "s", summarised: ["b", "c"] },
  ],
  [
    "one that keeps from nowhere: what the context shows is summarised",
    [user("b"), keeping("gone", "s"), user("c")],
    { previousSummary: "s", summarised: ["a", "b", "c"] },
  ],
  [
    "a boundary between a call and its result is taken as it is",
    [...talk("c b: 1 | r 1 c"), keeping("e2", "s")],
    { previousSummary: "s", summarised: ["toolResult c"] },
  ],
])("of compactions that others wrote, %s", async (_what, more, expected) => {
  const entries = [user("a"), ...more, user("d")];
  const named = entries.map((one, n) => ({ ...one, id: `e${n}`, parentId: n === 0 ? null : `e${n - 1}` }));
  const { server } = serveContent(sessionText({ id: "s1", cwd: "/" }, named));
  const { previousSummary, messagesToSummarize, firstKeptEntryId } = await prepared(server);
  expect({ previousSummary, summarised: texts(messagesToSummarize) }).toEqual(expected);
  expect(firstKeptEntryId).toBe(`e${entries.length - 1}`);
});

test("it changes nothing", async () => {
  const { server } = await conversation(...talk("u One | a Yes | u Two"));
  const before = await server.result("get_state");
  await prepared(server);
  await server.result("prepare_branch_summary", { targetId: null });
  expect(await server.result("get_state")).toEqual(before);
});
