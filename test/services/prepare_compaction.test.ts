import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { assistant, toolResult, user } from "../support/drafts.ts";
import { sessionText } from "../support/example.ts";
import { type HereServer, type Json, serveHere, spawnServer, temporaryPlace } from "../support/server.ts";
import { SWEEP, SYSTEM } from "../support/tiers.ts";
import { calls, reporting } from "../support/turns.ts";

/** Text of so many tokens by Pi's estimate. */
const tokens = (count: number): string => "abcd".repeat(count);

async function serverWith(...entries: Json[]): Promise<{ server: HereServer; ids: string[] }> {
  const server = serveHere(["--no-session"]);
  const { entryIds } = await server.result("append", { entries });
  return { server, ids: entryIds };
}

function texts(messages: Json[]): string[] {
  return messages.map(({ content, role }) =>
    typeof content === "string" ? content : `${role} ${content[0]?.text ?? ""}`,
  );
}

describe("where it cuts", () => {
  test("the newest messages are kept until they reach the budget", async () => {
    const { server, ids } = await serverWith(
      user(tokens(10)),
      assistant(tokens(10)),
      user(tokens(10)),
      assistant(tokens(10)),
      user(tokens(10)),
    );
    const prepare = (keepRecentTokens: number): Promise<Json> =>
      server.result("prepare_compaction", { keepRecentTokens });
    expect((await prepare(10)).firstKeptEntryId).toBe(ids[4]);
    expect((await prepare(21)).firstKeptEntryId).toBe(ids[2]);
    expect(await prepare(30)).toMatchObject({ firstKeptEntryId: ids[2], isSplitTurn: false, turnPrefixMessages: [] });
    expect((await prepare(30)).messagesToSummarize).toHaveLength(2);
  });

  test("what fits into the budget is kept whole, and there is nothing to summarise", async () => {
    const { server, ids } = await serverWith(user("Hello"), assistant("Hi"));
    expect(await server.result("prepare_compaction")).toMatchObject({
      firstKeptEntryId: ids[0],
      messagesToSummarize: [],
      turnPrefixMessages: [],
      conversationText: "",
    });
  });

  test("an empty session has nothing to keep", async () => {
    const server = serveHere(["--no-session"]);
    expect(await server.result("prepare_compaction")).toMatchObject({
      shouldCompact: false,
      contextTokens: 0,
      firstKeptEntryId: null,
      messagesToSummarize: [],
    });
  });

  test("never at a tool result: the call before it, or what follows, is the first that is kept", async () => {
    const { server, ids } = await serverWith(
      user("Read it"),
      calls("", "c1"),
      toolResult("c1", tokens(50)),
      assistant("Done"),
      user("Thanks"),
    );
    for (let keepRecentTokens = 0; keepRecentTokens < 80; keepRecentTokens++) {
      const { firstKeptEntryId } = await server.result("prepare_compaction", { keepRecentTokens });
      expect(firstKeptEntryId).not.toBe(ids[2]);
    }
    expect((await server.result("prepare_compaction", { keepRecentTokens: 20 })).firstKeptEntryId).toBe(ids[3]);
  });

  test("a cut inside a turn has the turn's beginning as its prefix", async () => {
    const { server, ids } = await serverWith(
      user("First"),
      assistant("Yes"),
      user("Second"),
      calls("Looking", "c1"),
      toolResult("c1", "found"),
      calls("Again", "c2"),
      toolResult("c2", tokens(100)),
      assistant(tokens(100)),
    );
    const plan = await server.result("prepare_compaction", { keepRecentTokens: 100 });
    expect(plan).toMatchObject({ firstKeptEntryId: ids[7], isSplitTurn: true });
    expect(texts(plan.messagesToSummarize)).toEqual(["First", "assistant Yes"]);
    expect(texts(plan.turnPrefixMessages)).toEqual([
      "Second",
      "assistant Looking",
      "toolResult found",
      "assistant Again",
      `toolResult ${tokens(100)}`,
    ]);
    expect(plan.conversationText.indexOf("First")).toBeLessThan(plan.conversationText.indexOf("Second"));
  });

  test("entries that say nothing to the model go with what follows them", async () => {
    const { server, ids } = await serverWith(
      user("First"),
      assistant("Yes"),
      { type: "custom", customType: "state" },
      { type: "thinking_level_change", thinkingLevel: "high" },
      user(tokens(10)),
    );
    const plan = await server.result("prepare_compaction", { keepRecentTokens: 10 });
    expect(plan.firstKeptEntryId).toBe(ids[2]);
  });

  test("parallel results that another message interrupts stay with their call", async () => {
    const { server, ids } = await serverWith(
      user("First"),
      calls("Both", "a", "b"),
      toolResult("a", "one"),
      user("Hurry"),
      toolResult("b", tokens(50)),
      user("More"),
    );
    const plan = await server.result("prepare_compaction", { keepRecentTokens: 53 });
    expect(plan.firstKeptEntryId).toBe(ids[1]);
    await server.result("compact_append", { ...boundary(plan), summary: "s" });
  });

  test("results at the end that are over the limit alone are kept with their call", async () => {
    const { server, ids } = await serverWith(user("Read"), calls("", "c1"), toolResult("c1", tokens(500)));
    const over = { keepRecentTokens: 100, contextWindow: 100, reserveTokens: 0 };
    expect(await server.result("prepare_compaction", over)).toMatchObject({
      shouldCompact: true,
      firstKeptEntryId: ids[1],
      isSplitTurn: true,
    });
  });
});

const boundary = ({ firstKeptEntryId, tokensBefore, details }: Json): Json => ({
  firstKeptEntryId,
  tokensBefore,
  details,
});

describe("after a compaction", () => {
  test("the span begins where the one before kept from, and its summary and files go along", async () => {
    const { server, ids } = await serverWith(
      user("One"),
      calls("", { id: "c1", name: "edit", arguments: { path: "old.ts" } }),
      toolResult("c1", "ok"),
      user("Two"),
      assistant(tokens(10)),
    );
    const first = await server.result("prepare_compaction", { keepRecentTokens: 11 });
    expect(first).toMatchObject({ firstKeptEntryId: ids[3], details: { readFiles: [], modifiedFiles: ["old.ts"] } });
    await server.result("compact_append", { ...boundary(first), summary: "One was done." });
    await server.result("append", {
      entries: [calls("", { id: "c2", arguments: { path: "new.ts" } }), toolResult("c2", "ok"), user(tokens(10))],
    });
    const second = await server.result("prepare_compaction", { keepRecentTokens: 10 });
    expect(second.previousSummary).toBe("One was done.");
    expect(texts(second.messagesToSummarize)).toEqual([
      "Two",
      `assistant ${tokens(10)}`,
      "assistant ",
      "toolResult ok",
    ]);
    expect(second.details).toEqual({ readFiles: ["new.ts"], modifiedFiles: ["old.ts"] });
    expect(second.isSplitTurn).toBe(false);
  });

  test("nothing is to be summarised directly behind it, and what is kept stays the same", async () => {
    const { server } = await serverWith(user("One"), assistant("Yes"), user("Two"), assistant("Yes"));
    const first = await server.result("prepare_compaction", { keepRecentTokens: 2 });
    await server.result("compact_append", { ...boundary(first), summary: "s" });
    const before = await server.result("get_messages");
    const second = await server.result("prepare_compaction", { keepRecentTokens: 0 });
    expect(second).toMatchObject({ messagesToSummarize: [], turnPrefixMessages: [], isSplitTurn: false });
    await server.result("compact_append", { ...boundary(second), summary: "s" });
    const after = await server.result("get_messages");
    expect(after.messages.slice(1)).toEqual(before.messages.slice(1));
  });

  test("files of a summary that an extension wrote are its own business", async () => {
    const { server, ids } = await serverWith(user("One"), assistant("Yes"), user("Two"));
    const details = { readFiles: ["theirs.ts"], modifiedFiles: [] };
    const compaction = { firstKeptEntryId: ids[2], tokensBefore: 1, summary: "s", details, fromHook: true };
    await server.result("compact_append", compaction);
    await server.result("append", { entries: [user("Three")] });
    expect((await server.result("prepare_compaction", { keepRecentTokens: 0 })).details.readFiles).toEqual([]);
  });

  test("what keeps nothing begins behind it", async () => {
    const { server } = await serverWith(user("One"), assistant("Yes"));
    await server.result("compact_append", { firstKeptEntryId: null, tokensBefore: 1, summary: "all of it" });
    const { entryIds } = await server.result("append", { entries: [user("Two"), assistant("Yes"), user("Three")] });
    const plan = await server.result("prepare_compaction", { keepRecentTokens: 0 });
    expect(plan).toMatchObject({ firstKeptEntryId: entryIds[2], previousSummary: "all of it" });
    expect(texts(plan.messagesToSummarize)).toEqual(["Two", "assistant Yes"]);
  });
});

describe("tokens", () => {
  test("four characters are one, rounded up for each message", async () => {
    const { server } = await serverWith(user("abcde"), assistant("abc"));
    expect((await server.result("prepare_compaction")).contextTokens).toBe(3);
  });

  test("what the last answer reports counts, with estimates of what came after it", async () => {
    const { server } = await serverWith(user(tokens(999)), reporting(5000), user(tokens(7)));
    expect(await server.result("prepare_compaction")).toMatchObject({ contextTokens: 5007, tokensBefore: 5007 });
  });

  test.each([
    ["broken off", reporting(5000, { stopReason: "aborted" })],
    ["failed", reporting(5000, { stopReason: "error" })],
    ["without any", reporting(0)],
  ])("a report of an answer that was %s does not count", async (_, answer) => {
    const { server } = await serverWith(user(tokens(9)), answer);
    expect((await server.result("prepare_compaction")).contextTokens).toBe(10);
  });

  test("a report from before a compaction or a context edit was about another context", async () => {
    const { server, ids } = await serverWith(user(tokens(9)), reporting(5000), user(tokens(3)));
    await server.result("edit_context", { targetId: ids[0], replacement: null });
    expect((await server.result("prepare_compaction")).contextTokens).toBe(4);
    await server.result("append", { entries: [reporting(600)] });
    expect((await server.result("prepare_compaction")).contextTokens).toBe(600);
    await server.result("compact_append", { firstKeptEntryId: ids[2], tokensBefore: 1, summary: "abcd" });
    expect((await server.result("prepare_compaction")).contextTokens).toBe(5);
  });

  test("a compaction is due when they exceed the window less the reserve", async () => {
    const { server } = await serverWith(user("Hello"), reporting(800));
    const due = async (contextWindow: number): Promise<boolean> =>
      (await server.result("prepare_compaction", { contextWindow, reserveTokens: 200 })).shouldCompact;
    expect(await due(1000)).toBe(false);
    expect(await due(999)).toBe(true);
  });

  test("the window is the model's, or a common one where it is not known", async () => {
    const { server } = await serverWith(user("Hello"));
    expect((await server.result("prepare_compaction")).settings.contextWindow).toBe(128_000);
    await server.result("set_model", { provider: "anthropic", modelId: "claude-sonnet-4-5" });
    expect((await server.result("prepare_compaction")).settings.contextWindow).toBe(200_000);
  });
});

describe("settings", () => {
  test("Pi's defaults hold where nothing is configured", async () => {
    const { server } = await serverWith(user("Hello"));
    const { settings } = await server.result("prepare_compaction");
    expect(settings).toMatchObject({ enabled: true, reserveTokens: 16_384, keepRecentTokens: 20_000 });
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
  test("who said what, the calls with their arguments, no thoughts", async () => {
    const { server } = await serverWith(
      user("Read it"),
      {
        type: "message",
        message: {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "secret thought" },
            { type: "text", text: "Reading." },
            { type: "toolCall", id: "c1", name: "read", arguments: { path: "a.txt" } },
          ],
        },
      },
      toolResult("c1", "contents"),
      user("Next"),
    );
    const { conversationText } = await server.result("prepare_compaction", { keepRecentTokens: 0 });
    expect(conversationText).toBe(
      'User: Read it\n\nAssistant: Reading.\n\nTool call: read {"path":"a.txt"}\n\nTool result (read): contents',
    );
  });

  test("output of tools is cut at 2,000 characters, and how much is left out is said", async () => {
    const { server } = await serverWith(
      user("Read"),
      calls("", "c1", "c2"),
      toolResult("c1", "x".repeat(2000)),
      toolResult("c2", `${"y".repeat(1999)}😀${"z".repeat(100)}`),
      user("Next"),
    );
    const { conversationText } = await server.result("prepare_compaction", { keepRecentTokens: 0 });
    expect(conversationText).toContain(`${"x".repeat(2000)}\n\n`);
    expect(conversationText).toContain(`${"y".repeat(1999)}\n(102 more characters are left out here)`);
  });

  test("a command that the user kept out of the context stays out", async () => {
    const bash = (command: string, excludeFromContext: boolean): Json => ({
      type: "message",
      message: {
        role: "bashExecution",
        command,
        output: "out",
        cancelled: false,
        truncated: false,
        excludeFromContext,
      },
    });
    const { server } = await serverWith(bash("hidden", true), bash("shown", false), user("Next"));
    const { conversationText } = await server.result("prepare_compaction", { keepRecentTokens: 0 });
    expect(conversationText).toBe("Command of the user: shown\nout");
  });

  test("edits of the context hold here too", async () => {
    const { server, ids } = await serverWith(user("One"), user("Two"), user("Three"));
    await server.result("edit_context", { targetId: ids[0], replacement: null });
    await server.result("edit_context", { targetId: ids[1], replacement: { content: "Zwei" } });
    const plan = await server.result("prepare_compaction", { keepRecentTokens: 0 });
    expect(plan.conversationText).toBe("User: Zwei");
    expect(texts(plan.messagesToSummarize)).toEqual(["Zwei"]);
  });

  test("files: what was changed is not listed as read, each once, in order", async () => {
    const files = [
      ["read", "b.ts"],
      ["read", "a.ts"],
      ["read", "b.ts"],
      ["write", "d.ts"],
      ["edit", "c.ts"],
      ["read", "c.ts"],
      ["bash", "e.ts"],
    ];
    const list = files.map(([name, path], index) => ({ id: `c${index}`, name, arguments: { path } }));
    const { server } = await serverWith(
      user("Go"),
      calls("", ...list, { id: "odd", name: "read", arguments: null }),
      ...list.map(({ id }) => toolResult(id, "ok")),
      user("Next"),
    );
    expect((await server.result("prepare_compaction", { keepRecentTokens: 0 })).details).toEqual({
      readFiles: ["a.ts", "b.ts"],
      modifiedFiles: ["c.ts", "d.ts"],
    });
  });

  test("instructions for the summariser come back as they were sent", async () => {
    const { server } = await serverWith(user("Hello"));
    const { customInstructions } = await server.result("prepare_compaction", { customInstructions: "Be brief." });
    expect(customInstructions).toBe("Be brief.");
  });
});

describe("compactions that others wrote", () => {
  const entry = (index: number, rest: Json): Json => ({
    ...rest,
    id: `e${index}`,
    parentId: index === 0 ? null : `e${index - 1}`,
  });
  const preparedOn = async (...entries: Json[]): Promise<Json> => {
    const place = temporaryPlace();
    const file = join(place.home, "session.jsonl");
    writeFileSync(
      file,
      sessionText(
        { id: "s1", cwd: place.cwd },
        entries.map((one, index) => entry(index, one)),
      ),
    );
    const server = serveHere(["--session", file], { place });
    return server.result("prepare_compaction", { keepRecentTokens: 0 });
  };

  test("one without a summary is passed over, and the one before it rules", async () => {
    const plan = await preparedOn(
      user("a"),
      user("b"),
      { type: "compaction", summary: "s", firstKeptEntryId: "e1", tokensBefore: 1 },
      user("c"),
      { type: "compaction", firstKeptEntryId: "e3" },
      user("d"),
    );
    expect(plan.previousSummary).toBe("s");
    expect(texts(plan.messagesToSummarize)).toEqual(["b", "c"]);
  });

  test("one that keeps from nowhere: what the context shows is summarised", async () => {
    const plan = await preparedOn(
      user("a"),
      user("b"),
      { type: "compaction", summary: "s", firstKeptEntryId: "gone", tokensBefore: 1 },
      user("c"),
      user("d"),
    );
    expect(texts(plan.messagesToSummarize)).toEqual(["a", "b", "c"]);
  });

  test("a boundary between a call and its result is taken as it is", async () => {
    const plan = await preparedOn(
      user("a"),
      calls("b", "1"),
      toolResult("1", "c"),
      { type: "compaction", summary: "s", firstKeptEntryId: "e2", tokensBefore: 1 },
      user("d"),
    );
    expect(plan.firstKeptEntryId).toBe("e4");
    expect(texts(plan.messagesToSummarize)).toEqual(["toolResult c"]);
  });
});

test("it changes nothing", async () => {
  const { server } = await serverWith(user("One"), assistant("Yes"), user("Two"));
  const before = await server.result("get_state");
  await server.result("prepare_compaction", { keepRecentTokens: 0 });
  await server.result("prepare_branch_summary", { targetId: null });
  expect(await server.result("get_state")).toEqual(before);
});

test(
  "of a call with a great many arguments, the summariser gets the first and their number, and all count",
  SWEEP,
  async () => {
    const many = Object.fromEntries(Array.from({ length: 30_000 }, (_, n) => [`a${n}`, n]));
    const asking = assistant("");
    const content = [{ type: "toolCall", id: "c", name: "other", arguments: many }];
    const { server } = await serverWith(
      user("One"),
      { ...asking, message: { ...asking.message, content } },
      user("Two"),
    );
    const plan = await server.result("prepare_compaction", { keepRecentTokens: 0 });
    expect(plan.conversationText).toContain('"a19999":19999,"…":"10000 more are not shown here"');
    const all = Math.ceil(JSON.stringify(many).length / 4);
    expect(plan.contextTokens / all).toBeCloseTo(1, 3);
  },
);
