/** What the model sees: each rule by hand, all of them together against a plain reading of the format. */

import { describe, expect, test } from "vitest";
import { prepareCompaction } from "../../../src/core/context/compaction.ts";
import { paired, pairUp } from "../../../src/core/context/pairing.ts";
import { draftOfText } from "../../../src/core/format/entry.ts";
import { bytesOf, textOf } from "../../../src/core/json/json.ts";
import type { Session } from "../../../src/core/session/session.ts";
import { ROOT } from "../../../src/core/tree/nodes.ts";
import { verify } from "../../support/corruption.ts";
import { assistantText, chain, entryText, headerText, id, TIME, userText } from "../../support/lines.ts";
import { randomModel } from "../../support/model.ts";
import { forSeedsAsync } from "../../support/random.ts";
import { messagesAt, sessionOf } from "../../support/sessions.ts";

const MS = Date.parse(TIME);

function messageLine(n: number, message: unknown): string {
  return entryText("message", id(n), n === 0 ? null : id(n - 1), { message });
}

function compactionLine(n: number, firstKept: string, more: Record<string, unknown> = {}): string {
  return entryText("compaction", id(n), id(n - 1), {
    summary: `summary ${n}`,
    firstKeptEntryId: firstKept,
    tokensBefore: 100 + n,
    ...more,
  });
}

const summaryOf = (n: number) => ({
  role: "compactionSummary",
  summary: `summary ${n}`,
  tokensBefore: 100 + n,
  timestamp: MS,
});

const said = (n: number) => ({ role: "user", content: `say ${id(n)}` });

async function seen(lines: string[], header?: string): Promise<unknown[]> {
  const session = await sessionOf(lines, header);
  expect(session.messageCount()).toBe(messagesAt(session).length);
  return messagesAt(session);
}

describe("without compaction", () => {
  test("the messages of the path, oldest first", async () => {
    expect(await seen(chain(4))).toEqual([said(0), said(1), said(2), said(3)]);
  });

  test("nothing of other branches", async () => {
    const lines = [...chain(3), userText(id(9), id(0)), userText(id(10), id(9))];
    expect(await seen(lines)).toEqual([said(0), said(9), said(10)]);
  });

  test("nothing before the first entry", async () => {
    const session = await sessionOf(chain(2));
    session.moveLeaf(ROOT);
    expect(messagesAt(session)).toEqual([]);
    expect(session.messageCount()).toBe(0);
  });

  test("a custom_message is a message of role custom", async () => {
    const custom = { customType: "note", content: [{ type: "text", text: "x" }], display: false };
    const lines = [
      entryText("custom_message", id(0), null, { ...custom, details: { a: 1.5 } }),
      entryText("custom_message", id(1), id(0), custom),
    ];
    expect(await seen(lines)).toEqual([
      { role: "custom", ...custom, details: { a: 1.5 }, timestamp: MS },
      { role: "custom", ...custom, timestamp: MS },
    ]);
  });

  test("a branch summary with text is a message, an empty one is nothing", async () => {
    const lines = [
      entryText("branch_summary", id(0), null, { fromId: "x", summary: "went there" }),
      entryText("branch_summary", id(1), id(0), { fromId: "x", summary: "" }),
      entryText("branch_summary", id(2), id(1), { fromId: "x" }),
      userText(id(3), id(2)),
    ];
    expect(await seen(lines)).toEqual([
      { role: "branchSummary", summary: "went there", fromId: "x", timestamp: MS },
      said(3),
    ]);
  });

  test("every other type of entry is nothing", async () => {
    const types = ["custom", "label", "session_info", "model_change", "thinking_level_change", "usage", "unheard_of"];
    const lines = types.map((type, n) =>
      entryText(type, id(n), n === 0 ? null : id(n - 1), { content: "c", summary: "s", message: { role: "user" } }),
    );
    expect(await seen([...lines, userText(id(9), id(types.length - 1))])).toEqual([said(9)]);
  });

  test("a message without message is nothing", async () => {
    const lines = [entryText("message", id(0), null, { message: null }), entryText("message", id(1), id(0))];
    expect(await seen([...lines, messageLine(2, "a text"), userText(id(3), id(2))])).toEqual([said(3)]);
  });

  test("missing content is an empty list where readers rely on content", async () => {
    const roles = ["user", "assistant", "toolResult", "custom", "bashExecution", "unheard_of", "system"];
    const lines = roles.map((role, n) => messageLine(n, { role, a: 1 }));
    expect(await seen(lines)).toEqual([
      { role: "user", a: 1, content: [] },
      { role: "assistant", a: 1, content: [] },
      { role: "toolResult", a: 1, content: [] },
      { role: "custom", a: 1 },
      { role: "bashExecution", a: 1 },
      { role: "unheard_of", a: 1 },
      { role: "system", a: 1, content: "" },
    ]);
    expect(await seen([entryText("custom_message", id(0), null, { customType: "note" })])).toEqual([
      { role: "custom", customType: "note", content: [], timestamp: MS },
    ]);
    expect(await seen([messageLine(0, { role: "user", content: null, a: 1 })])).toEqual([
      { role: "user", content: [], a: 1 },
    ]);
    expect(await seen([messageLine(0, { role: "user", content: "" })])).toEqual([{ role: "user", content: "" }]);
  });

  test("a message is given byte for byte", async () => {
    const message = '{"role":"user","n":1.0,"big":9007199254740993,"n":-0,"e":1e400,"content":"\\u0041\u2028" }';
    const line = `{"type":"message","id":"${id(0)}","parentId":null,"timestamp":"${TIME}","message":${message}}`;
    const session = await sessionOf([line]);
    const [text] = [...session.messageTexts(session.context().items)];
    expect(Buffer.from(text).toString()).toBe(message);
  });

  test("a timestamp that is none is 0, never NaN", async () => {
    const line = (n: number, timestamp: string) =>
      `{"type":"branch_summary","id":"${id(n)}","parentId":${n ? `"${id(n - 1)}"` : null}${timestamp},"fromId":"x","summary":"s"}`;
    const stamps = [
      ',"timestamp":"yesterday"',
      "",
      ',"timestamp":5',
      ',"timestamp":null',
      ',"timestamp":"9999-12-31T00:00:00Z"',
    ];
    const times = (await seen(stamps.map((stamp, n) => line(n, stamp)))).map(
      (message) => (message as { timestamp: number }).timestamp,
    );
    expect(times).toEqual([0, 0, 0, 0, Date.parse("9999-12-31T00:00:00Z")]);
  });
});

describe("with a compaction", () => {
  test("its summary, the kept entries, what came after", async () => {
    const lines = [...chain(4), compactionLine(4, id(2)), ...chain(2, 5)];
    expect(await seen(lines)).toEqual([summaryOf(4), said(2), said(3), said(5), said(6)]);
  });

  test("at the leaf, it rules already", async () => {
    expect(await seen([...chain(3), compactionLine(3, id(2))])).toEqual([summaryOf(3), said(2)]);
  });

  test("its own id keeps nothing", async () => {
    const lines = [...chain(3), compactionLine(3, id(3)), ...chain(1, 4)];
    expect(await seen(lines)).toEqual([summaryOf(3), said(4)]);
  });

  test("the latest rules, and older ones in the kept range yield nothing", async () => {
    const lines = [...chain(2), compactionLine(2, id(1)), ...chain(2, 3), compactionLine(5, id(1)), ...chain(1, 6)];
    expect(await seen(lines)).toEqual([summaryOf(5), said(1), said(3), said(4), said(6)]);
  });

  test("three in a row leave no message in neither set", async () => {
    const lines = [
      ...chain(2),
      compactionLine(2, id(1)),
      compactionLine(3, id(2)),
      compactionLine(4, id(3)),
      ...chain(1, 5),
    ];
    expect(await seen(lines)).toEqual([summaryOf(4), said(5)]);
    const deps = [...chain(2), compactionLine(2, id(1)), ...chain(1, 3), compactionLine(4, id(1)), ...chain(1, 5)];
    expect(await seen(deps)).toEqual([summaryOf(4), said(1), said(3), said(5)]);
  });

  test("on another branch means nothing here", async () => {
    const lines = [...chain(2), compactionLine(2, id(2)), userText(id(3), id(1))];
    expect(await seen(lines)).toEqual([said(0), said(1), said(3)]);
  });

  test.each([
    ["on another branch", id(20)],
    ["after the compaction", id(6)],
    ["nowhere", "deadbeef"],
    ["missing", undefined],
    ["no text", 5],
    ["null", null],
  ])("a kept entry that is %s keeps everything since the compaction before, and says so", async (_, firstKept) => {
    const lines = [
      ...chain(3),
      userText(id(20), id(0)),
      entryText("compaction", id(3), id(2), { summary: "summary 3", firstKeptEntryId: id(1), tokensBefore: 103 }),
      ...chain(1, 4),
      compactionLine(5, firstKept as string),
      ...chain(1, 6),
    ];
    const session = await sessionOf(lines);
    expect(messagesAt(session)).toEqual([summaryOf(5), said(4), said(6)]);
    expect(session.messageCount()).toBe(3);
    expect(session.context().misplacedBoundary).toBe(true);
    const before = session.context(session.position(id(4)));
    expect(before.misplacedBoundary).toBe(false);
    const first = await sessionOf([...chain(2), compactionLine(2, firstKept as string)]);
    expect(messagesAt(first)).toEqual([summaryOf(2), said(0), said(1)]);
  });

  test("as the first entry, it keeps nothing because there is nothing", async () => {
    const line = entryText("compaction", id(0), null, { summary: "s", firstKeptEntryId: "deadbeef", tokensBefore: 1 });
    expect(await seen([line])).toEqual([{ role: "compactionSummary", summary: "s", tokensBefore: 1, timestamp: MS }]);
  });

  test("a system message of its own comes first, those of the kept range are left out, later ones stay", async () => {
    const system = { role: "system", content: "be kind" };
    const lines = [
      userText(id(0), null),
      messageLine(1, { role: "system", content: "old" }),
      userText(id(2), id(1)),
      compactionLine(3, id(0), { systemMessage: system }),
      messageLine(4, { role: "system", content: "new" }),
    ];
    expect(await seen(lines)).toEqual([system, summaryOf(3), said(0), said(2), { role: "system", content: "new" }]);
    expect(await seen(lines.slice(0, 3))).toEqual([said(0), { role: "system", content: "old" }, said(2)]);
  });

  test("with an empty summary it rules, with a malformed one the one before does", async () => {
    const end = (rest: Record<string, unknown>) => [
      ...chain(2),
      compactionLine(2, id(1)),
      ...chain(2, 3),
      entryText("compaction", id(5), id(4), { firstKeptEntryId: id(4), tokensBefore: 105, ...rest }),
      ...chain(1, 6),
    ];
    expect(await seen(end({ summary: "" }))).toEqual([{ ...summaryOf(5), summary: "" }, said(4), said(6)]);
    const malformed = [summaryOf(2), said(1), said(3), said(4), said(6)];
    for (const summary of [undefined, null, 5, ["text"]]) expect(await seen(end({ summary }))).toEqual(malformed);
    const none = entryText("compaction", id(2), id(1), { firstKeptEntryId: id(1) });
    expect(await seen([...chain(2), none, ...chain(1, 3)])).toEqual([said(0), said(1), said(3)]);
  });
});

describe("context edits", () => {
  const edit = (n: number, target: string, replacement: unknown) =>
    entryText("context_edit", id(n), id(n - 1), { targetId: target, replacement });

  test("null leaves the target out", async () => {
    expect(await seen([...chain(2), edit(2, id(0), null)])).toEqual([said(1)]);
  });

  test("a value replaces the content and nothing else", async () => {
    const lines = [
      messageLine(0, { role: "user", a: 1.5, content: "before", b: [2] }),
      edit(1, id(0), { content: "after" }),
    ];
    expect(await seen(lines)).toEqual([{ role: "user", a: 1.5, content: "after", b: [2] }]);
    const none = [messageLine(0, { role: "user" }), edit(1, id(0), { content: [] })];
    expect(await seen(none)).toEqual([{ role: "user", content: [] }]);
  });

  test("the latest on the path wins", async () => {
    const edits = [edit(1, id(0), { content: "one" }), edit(2, id(0), null), edit(3, id(0), { content: "three" })];
    expect(await seen([...chain(1), ...edits])).toEqual([{ role: "user", content: "three" }]);
    expect(await seen([...chain(1), ...edits.slice(0, 2)])).toEqual([]);
  });

  test("on another branch changes nothing here", async () => {
    expect(await seen([...chain(2), edit(2, id(0), null), userText(id(3), id(1))])).toEqual([
      said(0),
      said(1),
      said(3),
    ]);
  });

  test("a text becomes a block where the role takes blocks only", async () => {
    const lines = [
      assistantText(id(0), null),
      messageLine(1, { role: "toolResult", toolCallId: "c", content: [] }),
      entryText("custom_message", id(2), id(1), { customType: "note", content: "n" }),
      edit(3, id(0), { content: 'a "b"' }),
      edit(4, id(1), { content: "r" }),
      edit(5, id(2), { content: "c" }),
    ];
    expect((await seen(lines)).map((message) => (message as { content: unknown }).content)).toEqual([
      [{ type: "text", text: 'a "b"' }],
      [{ type: "text", text: "r" }],
      "c",
    ]);
  });

  test("of a message without such content leave it out or leave it alone", async () => {
    const bash = { role: "bashExecution", command: "ls", output: "" };
    const summary = entryText("branch_summary", id(1), id(0), { fromId: "x", summary: "s" });
    const lines = [messageLine(0, bash), summary, edit(2, id(0), { content: "x" }), edit(3, id(1), { content: "x" })];
    expect(await seen(lines)).toEqual([bash, { role: "branchSummary", summary: "s", fromId: "x", timestamp: MS }]);
    expect(await seen([...lines, edit(4, id(0), null), edit(5, id(1), null)])).toEqual([]);
  });

  test("of what is not there, or without a value, are nothing", async () => {
    const lines = [
      ...chain(1),
      edit(1, "deadbeef", null),
      edit(2, id(0), "text"),
      edit(3, id(0), {}),
      edit(4, id(0), undefined),
    ];
    expect(await seen(lines)).toEqual([said(0)]);
  });

  test("of entries that were compacted away are nothing; of kept ones they hold", async () => {
    const lines = [
      ...chain(2),
      edit(2, id(0), { content: "x" }),
      edit(3, id(1), { content: "y" }),
      compactionLine(4, id(1)),
    ];
    expect(await seen(lines)).toEqual([summaryOf(4), { role: "user", content: "y" }]);
  });
});

describe("model and level", () => {
  const change = (n: number, type: string, more: Record<string, unknown>, parent = n - 1) =>
    entryText(type, id(n), parent < 0 ? null : id(parent), more);

  test("are those of the path, the last that is named", async () => {
    const session = await sessionOf([
      change(0, "model_change", { provider: "p", modelId: "m0" }),
      change(1, "thinking_level_change", { thinkingLevel: "high" }),
      assistantText(id(2), id(1)),
      change(3, "model_change", { provider: "p", modelId: "m3" }, 1),
      messageLine(4, { role: "assistant", content: [] }),
      change(5, "thinking_level_change", { thinkingLevel: "low" }),
    ]);
    const at = (n: number) => [session.model(n)?.id ?? null, session.thinkingLevel(n)];
    expect([0, 1, 2, 3, 4, 5].map(at)).toEqual([
      ["m0", "off"],
      ["m0", "high"],
      ["sonnet", "high"],
      ["m3", "high"],
      ["m3", "high"],
      ["m3", "low"],
    ]);
    expect(session.model(2)).toEqual({ provider: "anthropic", id: "sonnet" });
    expect([session.model(ROOT), session.thinkingLevel(ROOT)]).toEqual([null, "off"]);
  });

  test("fall back to the header's", async () => {
    const header = headerText({ provider: "h", modelId: "hm", thinkingLevel: "medium" });
    const session = await sessionOf([...chain(1), change(1, "model_change", { provider: "p", modelId: "m" })], header);
    expect([session.model(0), session.thinkingLevel(0)]).toEqual([{ provider: "h", id: "hm" }, "medium"]);
    expect([session.model(1), session.thinkingLevel(1)]).toEqual([{ provider: "p", id: "m" }, "medium"]);
    const half = await sessionOf(chain(1), headerText({ provider: "h" }));
    expect(half.model()).toBeNull();
  });

  test("a change that says nothing is passed over", async () => {
    const session = await sessionOf([
      change(0, "model_change", { provider: "p", modelId: "m" }),
      change(1, "model_change", { provider: 5 }),
      change(2, "thinking_level_change", { thinkingLevel: "high" }),
      change(3, "thinking_level_change", { level: "low" }),
    ]);
    expect(session.model()).toEqual({ provider: "p", id: "m" });
    expect(session.thinkingLevel()).toBe("high");
  });
});

describe("random sessions", () => {
  async function check(session: Session, model: ReturnType<typeof randomModel>): Promise<void> {
    for (const [position, entry] of model.entries.entries()) {
      const { items } = session.context(position);
      expect(messagesAt(session, position), `context at ${entry.id}`).toEqual(model.context(entry.id));
      session.moveLeaf(position);
      expect(session.messageCount(), `count at ${entry.id}`).toBe(items.length);
      expect(session.model(position), `model at ${entry.id}`).toEqual(model.model(entry.id));
      expect(session.thinkingLevel(position)).toBe(model.level(entry.id));
    }
  }

  test.each([
    ["of every kind", {}],
    ["without edits, whose counts are not walked", { edits: false }],
    ["without compactions", { compactions: false, edits: false }],
    ["of one long branch", { branching: 0.02 }],
    ["of many branches", { branching: 0.5 }],
  ])("%s are read as the format says, at every entry", async (_, mixture) => {
    await forSeedsAsync(3, async (random) => {
      const model = randomModel(random, { entries: 20 + random.int(60), ...mixture });
      await check(await sessionOf(model.lines()), model);
    });
  });

  test("are the same whether they were read or appended", async () => {
    await forSeedsAsync(3, async (random) => {
      const model = randomModel(random, { entries: 60, branching: 0.3 });
      const session = await sessionOf([]);

      for (const line of model.lines()) {
        const bytes = bytesOf(line);
        session.append([draftOfText(bytes, { start: 0, end: bytes.length })]);
      }
      await check(session, model);
    });
  });
});

describe("with a compaction that carries the messages it keeps", () => {
  const tail = [
    { role: "user", content: "kept one" },
    { role: "assistant", content: [{ type: "text", text: "kept two" }] },
  ];
  const carrying = (n: number, retainedTail: unknown, more: Record<string, unknown> = {}): string =>
    entryText("compaction", id(n), id(n - 1), {
      summary: `summary ${n}`,
      retainedTail,
      tokensBefore: 100 + n,
      ...more,
    });

  test("the model sees the summary, these messages, and what follows", async () => {
    expect(await seen([...chain(3), carrying(3, tail), userText(id(4), id(3))])).toEqual([
      summaryOf(3),
      ...tail,
      said(4),
    ]);
  });

  test("what is no message among them is passed over", async () => {
    expect(await seen([...chain(2), carrying(2, [null, 7, {}, tail[0], []])])).toEqual([summaryOf(2), tail[0]]);
  });

  test("an entry that the compaction names counts instead", async () => {
    const named = carrying(3, tail, { firstKeptEntryId: id(2) });
    expect(await seen([...chain(3), named])).toEqual([summaryOf(3), said(2)]);
  });

  test("nothing is wrong with such a compaction", async () => {
    const session = await sessionOf([...chain(3), carrying(3, tail)]);
    expect(session.contextDamage()).toEqual([]);
    expect(verify(session).damage).toEqual([]);
  });

  test("the next compaction summarises these messages", async () => {
    const lines = [...chain(3), carrying(3, tail), ...[4, 5, 6].map((n) => userText(id(n), id(n - 1)))];
    const session = await sessionOf(lines);
    const settings = { enabled: true, reserveTokens: 1, keepRecentTokens: 1, contextWindow: 1000 };
    const { conversationText, previousSummary } = prepareCompaction(session.tree, session, session.tree.leaf, settings);
    expect(previousSummary).toBe("summary 3");
    expect(conversationText).toContain("kept one");
    expect(conversationText).toContain("kept two");
  });

  test("their calls and results are paired where everything has to be", async () => {
    const call = { role: "assistant", content: [{ type: "toolCall", id: "c", name: "bash", arguments: {} }] };
    const result = { role: "toolResult", toolCallId: "c", toolName: "bash", content: [] };
    const session = await sessionOf([...chain(2), carrying(2, [call, result, { ...result, toolCallId: "other" }])]);
    const { items } = session.context();
    const shown = items.map((item) => ({ item, text: [...session.messageTexts([item])][0] }));
    expect(paired(session.tree, shown).map(({ text }) => JSON.parse(textOf(text)))).toEqual([
      summaryOf(2),
      call,
      result,
    ]);
  });
});

test("a boundary that is not on the path is among what is wrong with the context, at this leaf only", async () => {
  const session = await sessionOf([...chain(3), compactionLine(3, "ffffffff")]);
  expect(session.contextDamage()).toMatchObject([{ kind: "invalid_boundary", entryId: id(3) }]);
  session.moveLeaf(session.position(id(2)));
  expect(session.contextDamage()).toEqual([]);
});

describe("a leaf that a person may not expect", () => {
  const dead = [...chain(2), userText(id(5), id(0)), userText(id(6), id(5))];

  test.each(["custom", "thinking_level_change", "of_the_future"])(
    "is named where a %s was written last",
    async (type) => {
      const session = await sessionOf([...dead, entryText(type, id(7), id(1), {})]);
      expect(session.leafId).toBe(id(7));
      expect(session.diagnostics).toMatchObject([{ kind: "newer_branch", entryId: id(6) }]);
    },
  );

  test("is not named where such an entry continues the newest conversation, or a message was written last", async () => {
    expect((await sessionOf([...dead, entryText("custom", id(7), id(6), {})])).diagnostics).toEqual([]);
    expect((await sessionOf([...dead, userText(id(7), id(1))])).diagnostics).toEqual([]);
  });

  test("is named where its path begins with an entry that has no parentId", async () => {
    const { parentId: _, ...orphan } = JSON.parse(userText(id(7), null));
    const session = await sessionOf([...dead, JSON.stringify(orphan)]);
    expect(session.diagnostics).toMatchObject([{ kind: "no_parent", entryId: id(7) }]);
    // To begin anew is a person's choice.
    expect((await sessionOf([...dead, userText(id(7), null)])).diagnostics).toEqual([]);
  });
});

test("results are paired with calls by ids first, and by their order where these are empty or repeated", () => {
  const called = (...ids: string[]) => ids.map((one) => ({ id: one }));
  const cases: [string[], string[], number[]][] = [
    [
      ["a", "b"],
      ["b", "a"],
      [1, 0],
    ],
    [
      ["a", "a"],
      ["a", "a", "a"],
      [0, 1, -1],
    ],
    [
      ["", "a"],
      ["", "a", "c"],
      [0, 1, -1],
    ],
    [
      ["a", ""],
      ["c", "a"],
      [1, 0],
    ],
    [
      ["a", "b"],
      ["", "a"],
      [1, 0],
    ],
    [
      ["", ""],
      ["x", "", ""],
      [0, 1, -1],
    ],
  ];
  for (const [calls, results, answers] of cases) expect(pairUp(called(...calls), results)).toEqual(answers);
});

test("pairing reads each call a few times, however many there are", () => {
  let reads = 0;
  const calls = Array.from({ length: 2000 }, (_, n) => ({
    get id() {
      reads++;
      return `call-${n}`;
    },
  }));
  expect(
    pairUp(
      calls,
      calls.map((_, n) => `call-${1999 - n}`),
    )[0],
  ).toBe(1999);
  expect(reads).toBeLessThan(5 * calls.length);
});
