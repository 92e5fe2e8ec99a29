/** The model's context: each rule by hand, all of them together against a plain reading of the format. */

import { describe, expect, test } from "vitest";
import { prepareCompaction } from "../../../src/core/context/compaction.ts";
import { pairMessages, pairUp } from "../../../src/core/context/pairing.ts";
import { makeTextDraft } from "../../../src/core/format/entry.ts";
import { decodeText, toBytes } from "../../../src/core/json/json.ts";
import type { Session } from "../../../src/core/session/session.ts";
import { ROOT } from "../../../src/core/tree/nodes.ts";
import { verify } from "../../support/corruption.ts";
import { assistantText, chain, entryText, headerText, id, TIME, userText } from "../../support/lines.ts";
import { randomModel } from "../../support/model.ts";
import { forSeedsAsync } from "../../support/random.ts";
import { messagesAt, sessionOf } from "../../support/sessions.ts";
import { sketch } from "../../support/sketch.ts";

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

/** Returns the drawing of `C4 2 3`: the summary of entry 4, and the messages of 2 and 3. */
const drawn = (text: string): unknown[] =>
  text.split(" ").flatMap((word) => {
    if (word === "") return [];
    return [word.startsWith("C") ? summaryOf(Number(word.slice(1))) : said(Number(word))];
  });

// The sessions are drawn as sketches.
test.each([
  ["the messages of the path, oldest first", "0 1 2 3", "0 1 2 3"],
  ["nothing of other branches", "0 1 2 9<0 10", "0 9 10"],
  ["with a compaction, its summary, the kept entries, what came after", "0 1 2 3 C4:2 5 6", "C4 2 3 5 6"],
  ["a compaction at the leaf rules already", "0 1 2 C3:2", "C3 2"],
  ["a compaction that names itself keeps nothing", "0 1 2 C3:3 4", "C3 4"],
  ["the latest rules, and older ones in the kept range yield nothing", "0 1 C2:1 3 4 C5:1 6", "C5 1 3 4 6"],
  ["three in a row leave no message in neither set", "0 1 C2:1 C3:2 C4:3 5", "C4 5"],
  ["what a compaction kept, the next one may keep", "0 1 C2:1 3 C4:1 5", "C4 1 3 5"],
  ["a compaction on another branch means nothing here", "0 1 C2:2 3<1", "0 1 3"],
  ["a compaction as the first entry keeps nothing because there is nothing", "C0:deadbeef", "C0"],
  ["an edit leaves its target out", "0 1 E2:0", "1"],
  ["an edit on another branch changes nothing here", "0 1 E2:0 3<1", "0 1 3"],
  ["edits of entries that were compacted away are nothing", "0 1 E2:0 C3:1", "C3 1"],
  ["edits of kept entries hold", "0 1 2 E3:1 C4:1", "C4 2"],
  ["an edit of what is not there is nothing", "0 E1:deadbeef", "0"],
  ["the latest edit on the path wins", "0 R1:0=one E2:0", ""],
])("the context has %s", async (_, lines, wanted) => {
  expect(await seen(sketch(lines))).toEqual(drawn(wanted));
});

test("nothing is in the context before the first entry", async () => {
  const session = await sessionOf(chain(2));
  session.moveLeaf(ROOT);
  expect([messagesAt(session), session.messageCount()]).toEqual([[], 0]);
});

test("every other type of entry is nothing, and a message without message", async () => {
  const types = ["custom", "label", "session_info", "model_change", "thinking_level_change", "usage", "unheard_of"];
  const rest = { content: "c", summary: "s", message: { role: "user" } };
  const lines = types.map((type, n) => entryText(type, id(n), n === 0 ? null : id(n - 1), rest));
  const none = [entryText("message", id(20), id(6), { message: null }), entryText("message", id(21), id(20))];
  const text = entryText("message", id(22), id(21), { message: "a text" });
  expect(await seen([...lines, ...none, text, userText(id(9), id(22))])).toEqual([said(9)]);
});

test("missing content is an empty list where readers rely on content", async () => {
  const roles = ["user", "assistant", "toolResult", "custom", "bashExecution", "unheard_of", "system"];
  const contents = [[], [], [], undefined, undefined, undefined, ""];
  expect(await seen(roles.map((role, n) => messageLine(n, { role, a: 1 })))).toEqual(
    roles.map((role, n) => ({ role, a: 1, ...(contents[n] === undefined ? {} : { content: contents[n] }) })),
  );
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

test.each([
  [',"timestamp":"yesterday"', 0],
  ["", 0],
  [',"timestamp":5', 0],
  [',"timestamp":null', 0],
  [',"timestamp":"9999-12-31T00:00:00Z"', Date.parse("9999-12-31T00:00:00Z")],
])("a timestamp that is none is 0, never NaN: %s", async (stamp, timestamp) => {
  const line = `{"type":"branch_summary","id":"${id(0)}","parentId":null${stamp},"fromId":"x","summary":"s"}`;
  expect(await seen([line])).toMatchObject([{ timestamp }]);
});

test.each([
  ["on another branch", id(20)],
  ["after the compaction", id(6)],
  ["nowhere", "deadbeef"],
  ["missing", undefined],
  ["no text", 5],
  ["null", null],
])("a kept entry that is %s keeps everything since the compaction before, and says so", async (_, firstKept) => {
  const lines = [...sketch("0 1 2 20<0 C3<2:1 4"), compactionLine(5, firstKept as string), ...chain(1, 6)];
  const session = await sessionOf(lines);
  expect(messagesAt(session)).toEqual(drawn("C5 4 6"));
  expect([session.messageCount(), session.context().misplacedBoundary]).toEqual([3, true]);
  expect(session.context(session.position(id(4))).misplacedBoundary).toBe(false);
  expect(await seen([...chain(2), compactionLine(2, firstKept as string)])).toEqual(drawn("C2 0 1"));
  // At this leaf only.
  expect(session.contextDamage()).toMatchObject([{ kind: "invalid_boundary", entryId: id(5) }]);
  session.moveLeaf(session.position(id(2)));
  expect(session.contextDamage()).toEqual([]);
});

test("a system message of a compaction comes first, those of the kept range are left out, later ones stay", async () => {
  const system = { role: "system", content: "be kind" };
  const [old, later] = ["old", "new"].map((content) => ({ role: "system", content }));
  const compaction = compactionLine(3, id(0), { systemMessage: system });
  const lines = [userText(id(0), null), messageLine(1, old), userText(id(2), id(1)), compaction, messageLine(4, later)];
  expect(await seen(lines)).toEqual([system, ...drawn("C3 0 2"), later]);
  expect(await seen(lines.slice(0, 3))).toEqual([said(0), old, said(2)]);
});

test("with an empty summary a compaction rules, with a malformed one the one before does", async () => {
  const end = (summary: unknown) => [...sketch("0 1 C2:1 3 4"), compactionLine(5, id(4), { summary }), ...chain(1, 6)];
  expect(await seen(end(""))).toEqual([{ ...summaryOf(5), summary: "" }, said(4), said(6)]);
  for (const summary of [undefined, null, 5, ["text"]]) expect(await seen(end(summary))).toEqual(drawn("C2 1 3 4 6"));
});

describe("context edits", () => {
  const edit = (n: number, target: string, replacement: unknown) =>
    entryText("context_edit", id(n), id(n - 1), { targetId: target, replacement });

  test("a value replaces the content and nothing else; a text becomes a block where the role takes blocks only", async () => {
    const message = { role: "user", a: 1.5, content: "before", b: [2] };
    expect(await seen([messageLine(0, message), ...sketch("R1<0:0=after")])).toEqual([
      { ...message, content: "after" },
    ]);
    const none = [messageLine(0, { role: "user" }), edit(1, id(0), { content: [] })];
    expect(await seen(none)).toEqual([{ role: "user", content: [] }]);
    const lines = [
      assistantText(id(0), null),
      messageLine(1, { role: "toolResult", toolCallId: "c", content: [] }),
      entryText("custom_message", id(2), id(1), { customType: "note", content: "n" }),
      edit(3, id(0), { content: 'a "b"' }),
      ...sketch("R4<3:1=r R5:2=c"),
    ];
    const texts = ['a "b"', "r"].map((text) => [{ type: "text", text }]);
    expect(await seen(lines)).toMatchObject([...texts, "c"].map((content) => ({ content })));
  });

  test("of a message without such content leave it out or leave it alone; without a value they are nothing", async () => {
    const bash = { role: "bashExecution", command: "ls", output: "" };
    const summary = entryText("branch_summary", id(1), id(0), { fromId: "x", summary: "s" });
    const lines = [messageLine(0, bash), summary, ...sketch("R2<1:0=x R3:1=x")];
    expect(await seen(lines)).toEqual([bash, { role: "branchSummary", summary: "s", fromId: "x", timestamp: MS }]);
    expect(await seen([...lines, ...sketch("E4<3:0 E5:1")])).toEqual([]);
    const without = ["text", {}, undefined].map((replacement, n) => edit(n + 1, id(0), replacement));
    expect(await seen([...chain(1), ...without])).toEqual([said(0)]);
  });
});

describe("model and level", () => {
  const at = (session: Session, n: number): string => `${session.model(n)?.id ?? null} ${session.thinkingLevel(n)}`;

  test.each([
    // Those of the path, the last that is named.
    ["P0:m0 T1:high a2 P3<1:m3 4 T5:low", {}, "m0 off, m0 high, sonnet high, m3 high, m3 high, m3 low"],
    ["0 P1:m", { provider: "h", modelId: "hm", thinkingLevel: "medium" }, "hm medium, m medium"],
    ["0", { provider: "h" }, "null off"],
  ])("of %s, where the header says %j, are %s", async (lines, header, wanted) => {
    const session = await sessionOf(sketch(lines), headerText(header));
    expect(
      sketch(lines)
        .map((_, n) => at(session, n))
        .join(", "),
    ).toBe(wanted);
    if (!("provider" in header)) expect(at(session, ROOT)).toBe("null off");
  });

  test("a change that says nothing is passed over; an answer names its provider, too", async () => {
    const odd = entryText("model_change", id(3), id(2), { provider: 5 });
    const level = entryText("thinking_level_change", id(4), id(3), { level: "low" });
    const session = await sessionOf([...sketch("a0 P1:m T2:high"), odd, level]);
    expect(session.model(0)).toEqual({ provider: "anthropic", id: "sonnet" });
    expect([session.model(), session.thinkingLevel()]).toEqual([{ provider: "p", id: "m" }, "high"]);
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
        const bytes = toBytes(line);
        session.append([makeTextDraft(bytes, { start: 0, end: bytes.length })]);
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

  test.each<[string, number, unknown, Record<string, unknown>, (string | object)[]]>([
    ["the summary, these messages, and what follows", 3, tail, {}, ["C3", ...tail, "4"]],
    ["no more than the messages among them", 3, [null, 7, {}, tail[0], []], {}, ["C3", tail[0], "4"]],
    ["an entry that the compaction names instead", 3, tail, { firstKeptEntryId: id(2) }, ["C3", "2", "4"]],
  ])("the model sees %s", async (_, n, retained, more, wanted) => {
    const found = await seen([...chain(n), carrying(n, retained, more), userText(id(4), id(3))]);
    expect(found).toEqual(wanted.flatMap((one) => (typeof one === "string" ? drawn(one) : [one])));
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
    expect(pairMessages(session.tree, shown).map(({ text }) => JSON.parse(decodeText(text)))).toEqual([
      summaryOf(2),
      call,
      result,
    ]);
  });
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

test.each([
  ["a b", "b a", [1, 0]],
  ["a a", "a a a", [0, 1, -1]],
  ["- a", "- a c", [0, 1, -1]],
  ["a -", "c a", [1, 0]],
  ["a b", "- a", [1, 0]],
  ["- -", "x - -", [0, 1, -1]],
])(
  "results are paired by ids first, and by order where these are empty (-) or repeated: %s, %s",
  (calls, results, answers) => {
    const ids = (text: string): string[] => text.split(" ").map((one) => (one === "-" ? "" : one));
    expect(
      pairUp(
        ids(calls).map((one) => ({ id: one })),
        ids(results),
      ),
    ).toEqual(answers);
  },
);

test("pairing reads each call a few times, however many there are", () => {
  let reads = 0;
  const calls = Array.from({ length: 2000 }, (_, n) => ({
    get id() {
      reads++;
      return `call-${n}`;
    },
  }));
  const results = calls.map((_, n) => `call-${1999 - n}`);
  expect(pairUp(calls, results)[0]).toBe(1999);
  expect(reads).toBeLessThan(5 * calls.length);
});
