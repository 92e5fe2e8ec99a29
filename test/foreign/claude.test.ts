/** Sessions of Claude Code: their tree, messages, compactions, and the count of what became of each record. */

import { describe, expect, test } from "vitest";
import type { Session } from "../../src/core/session/session.ts";
import {
  diskWithForeign,
  entriesOf,
  FOREIGN_FILE,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  readDamaged,
  requireContinued,
  requirePairedAtEveryLeaf,
  requireSound,
  strictContext,
} from "../support/foreign/checks.ts";
import {
  ClaudeWriter,
  call,
  randomClaudeSession,
  said,
  thought,
  wholeClaudeSession,
} from "../support/foreign/claude.ts";
import { requireResumable } from "../support/foreign/round-trip.ts";
import { forSeeds } from "../support/random.ts";
import { acrossTiers } from "../support/tiers.ts";

test("every kind of record is counted, and all leaves have a context that providers take", () => {
  const writer = wholeClaudeSession();
  const session = foreignSession(writer.text);
  requireSound(session);
  const report = fidelityOf(session.log);
  expect(report.records).toBe(writer.records.length);
  expect(report.warnings).toEqual([]);
  expect(requirePairedAtEveryLeaf(session)).toBe(2);
  expect(session.name).toBe("My own title");
  expect(session.cwd).toBe("/home/me/project");
  expect(session.log.damage).toEqual([]);
});

acrossTiers(test, [1, 3])("a longer file has the entries of the shorter one (%i)", (count) => {
  const turns = count === 1 ? 3 : 5;
  forSeeds(count, (random) => requireContinued(randomClaudeSession(random, turns).lines, FOREIGN_FILE));
});

acrossTiers(test, [8, 30])("files that were damaged at random (%i)", (count) => {
  const whole = wholeClaudeSession().lines;
  const { made, read } = readDamaged(
    count,
    (random) => (random.chance(0.5) ? whole : randomClaudeSession(random, 6).lines),
    { isByLine: true },
  );
  expect(read).toBeGreaterThan(0.6 * made);
});

function messagesOf(session: Session, role: string): Record<string, unknown>[] {
  return entriesOf(session)
    .map(({ message }) => message as Record<string, unknown> | undefined)
    .filter((message) => message?.role === role) as Record<string, unknown>[];
}

test("the blocks of one API message are one entry, and its usage counts once", () => {
  const w = new ClaudeWriter();
  w.human("Hello");
  w.answer([thought("Well"), said("I look."), call("toolu_1"), call("toolu_2")]);
  w.result("toolu_1", "one");
  w.result("toolu_2", "two");
  w.answer([said("Done.")]);
  const spoken = messagesOf(foreignSession(w.text), "assistant");
  expect(spoken).toHaveLength(2);
  expect(spoken[0]).toMatchObject({
    provider: "anthropic",
    model: "claude-sonnet-4-5",
    stopReason: "toolUse",
    usage: { input: 10, output: 40, cacheRead: 5, cacheWrite: 2, totalTokens: 57, cost: { total: 0 } },
    content: [
      { type: "thinking", thinking: "Well", thinkingSignature: "c2lnbmF0dXJl" },
      { type: "text", text: "I look." },
      { type: "toolCall", id: "toolu_1", name: "Bash", arguments: { command: "ls" } },
      { type: "toolCall", id: "toolu_2" },
    ],
  });
});

test("parallel results are no branches, whichever block they name; a second turn of a person is one", () => {
  const w = new ClaudeWriter();
  const question = w.human("Hello");
  const [first, second] = w.answer([call("toolu_1"), call("toolu_2")]);
  w.result("toolu_1", "one", first);
  const late = w.last;
  w.result("toolu_2", "two", second);
  w.answer([said("Done.")], late);
  const session = foreignSession(w.text);
  expect(session.tree.branchCount).toBe(0);
  expect(strictContext(session).map(({ role }) => role)).toEqual([
    "user",
    "assistant",
    "toolResult",
    "toolResult",
    "assistant",
  ]);
  w.human("Hello again", null);
  const retried = foreignSession(w.text);
  expect(requirePairedAtEveryLeaf(retried)).toBe(2);
  w.human("Another way", question);
  expect(requirePairedAtEveryLeaf(foreignSession(w.text))).toBe(3);
});

test("where answers have no parent, no record names any, and each continues the one before it", () => {
  const w = new ClaudeWriter();
  w.human("Hello", null);
  w.answer([call("toolu_1")], null);
  w.result("toolu_1", "one", null);
  w.answer([said("Done.")], null);
  w.human("Go on", null);
  const session = foreignSession(w.text);
  requireSound(session);
  expect(strictContext(session).map(({ role }) => role)).toEqual([
    "user",
    "assistant",
    "toolResult",
    "assistant",
    "user",
  ]);
  requireContinued(w.lines, FOREIGN_FILE);
});

test("what is neither a text nor a picture is given to the model as a text, with the block itself beside it", () => {
  const pdf = { type: "document", source: { type: "base64", media_type: "application/pdf", data: "JVBERg==" } };
  const plain = { type: "document", title: "Notes", source: { type: "text", media_type: "text/plain", data: "All." } };
  const found = { type: "tool_reference", tool_name: "Search" };
  const w = new ClaudeWriter();
  w.node("user", { message: { role: "user", content: [pdf, plain] } });
  w.answer([call("toolu_1")]);
  w.node("user", {
    message: { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_1", content: [found] }] },
  });
  const session = foreignSession(w.text);
  requireSound(session);
  expect(strictContext(session).map(({ content }) => content)).toMatchObject([
    [
      { type: "text", text: "[document: application/pdf]", original: pdf },
      { type: "text", text: "All.", original: plain },
    ],
    [{ type: "toolCall" }],
    [{ type: "text", text: "[tool_reference: Search]", original: found }],
  ]);
  const again = foreignSession(requireResumable("claude", session).text);
  expect(strictContext(again)[0].content).toEqual(strictContext(session)[0].content);
});

test("a compaction keeps what the boundary says, and nothing where that is not on the way to it", () => {
  const compacted = (head: (kept: string, other: string) => string) => {
    const w = new ClaudeWriter();
    const other = w.human("On another branch");
    w.human("First", null);
    w.answer([said("One.")]);
    const kept = w.human("Second");
    const [tail] = w.answer([said("Two.")]);
    const compactMetadata = {
      trigger: "manual",
      preTokens: 900,
      preservedSegment: { headUuid: head(kept, other), tailUuid: tail },
    };
    const boundary = w.node("system", { subtype: "compact_boundary", logicalParentUuid: tail, compactMetadata }, null);
    w.about("mode", { mode: "normal" });
    w.node("attachment", { attachment: { type: "date" } }, boundary);
    w.node("user", { isCompactSummary: true, message: { role: "user", content: "In short" } }, boundary);
    w.human("Third");
    return foreignSession(w.text);
  };
  const session = compacted((kept) => kept);
  requireSound(session);
  expect(strictContext(session).map(({ role, content, summary }) => summary ?? [role, content])).toEqual([
    "In short",
    ["user", "Second"],
    ["assistant", [{ type: "text", text: "Two." }]],
    ["user", "Third"],
  ]);
  expect(entriesOf(session).find(({ type }) => type === "compaction")).toMatchObject({ tokensBefore: 900 });
  expect(strictContext(compacted((_kept, other) => other)).map(({ role }) => role)).toEqual([
    "compactionSummary",
    "user",
  ]);
});

test("the leaf is the explicit one, else the newest of the main chain, whatever is written last", () => {
  const w = new ClaudeWriter();
  const first = w.human("First");
  w.human("Second", first);
  const side = w.uuid();
  w.node("user", { uuid: side, isSidechain: true, message: { role: "user", content: "Aside" } }, null);
  expect(strictContext(foreignSession(w.text)).map(({ content }) => content)).toEqual(["First", "Second"]);
  w.about("last-prompt", { lastPrompt: "First", leafUuid: first, explicit: true });
  const moved = foreignSession(w.text);
  expect(strictContext(moved).map(({ content }) => content)).toEqual(["First"]);
});

test("a fork has the ids of what it shares with its original, and another id itself", () => {
  const w = new ClaudeWriter();
  w.human("First");
  w.answer([said("One.")]);
  const original = foreignSession(w.text);
  const other = "aaaaaaaa-0000-4000-8000-000000000001";
  for (const record of w.records) record.sessionId = other;
  w.human("On");
  const fork = foreignSession(w.text, `/elsewhere/project/${other}.jsonl`);
  expect(fork.id).not.toBe(original.id);
  const ids = entriesOf(original).map(({ id }) => id);
  expect(
    entriesOf(fork)
      .map(({ id }) => id)
      .slice(0, ids.length),
  ).toEqual(ids);
});

test("records that are written again, twice, in another version, or without the one before them", () => {
  const w = new ClaudeWriter();
  const first = w.human("First");
  w.answer([said("One.")]);
  const once = foreignSession(w.text);
  w.records.push(...w.records.slice(0, 2));
  expect(entriesOf(foreignSession(w.text))).toEqual(entriesOf(once));
  w.records.push({ ...w.records[0], message: { role: "user", content: "First, in other words" } });
  w.human("After it", first);
  const session = foreignSession(w.text);
  requireSound(session);
  expect(strictContext(session).map(({ content }) => content)).toEqual(["First, in other words", "After it"]);
  expect(fidelityOf(session.log).warningCount).toBe(1);
  w.human("Lost", "99999999-0000-4000-8000-000000000000");
  const own = w.uuid();
  w.node("user", { uuid: own, message: { role: "user", content: "Its own parent" } }, own);
  const strange = foreignSession(w.text);
  requireSound(strange);
  expect(
    strictContext(strange)
      .map(({ content }) => content)
      .slice(-3),
  ).toEqual(["After it", "Lost", "Its own parent"]);
});

test("files of the oldest versions, whose records have neither uuid nor parent, are one line", () => {
  const at = (minute: number): string => `2024-01-01T10:0${minute}:00Z`;
  const toolUse = { type: "tool_use", id: "toolu_1", name: "Read", input: { file_path: "a" } };
  const records = [
    { type: "user", timestamp: at(0), message: { content: "Mend it" }, cwd: "/home/me/app" },
    { type: "assistant", timestamp: at(1), message: { content: [{ type: "text", text: "I look." }, toolUse] } },
    { type: "user", timestamp: at(2), message: { content: "That is right" } },
    { type: "assistant", timestamp: at(3), message: { content: [{ type: "text", text: "Done." }] } },
  ];
  const session = foreignSession(records.map((record) => `${JSON.stringify(record)}\n`).join(""));
  requireSound(session);
  expect(strictContext(session).map(({ role }) => role)).toEqual(["user", "assistant", "user", "assistant"]);
  expect(session.cwd).toBe("/home/me/app");
});

acrossTiers(test, [20, 1_150_001, 2_250_001])(
  "lines that are longer than what is read at once are there, the last of %i",
  (last) => {
    const w = new ClaudeWriter();
    const texts = [(1 << 20) + 9, 10, last].map((length, n) => `${n} ${"x".repeat(length)}`);
    for (const text of texts) w.human(text);
    for (const content of [w.text, w.text.trimEnd()]) {
      const session = foreignSession(content);
      // A difference of texts this long would take minutes to be shown.
      expect(strictContext(session).map(({ content: found }) => texts.indexOf(found as string))).toEqual([0, 1, 2]);
      expect(fidelityOf(session.log)).toMatchObject({ records: 3, warnings: [] });
    }
    const cut = fidelityOf(foreignSession(w.text.slice(0, -9)).log);
    expect(cut.kinds).toContainEqual(expect.objectContaining({ kind: "(unfinished line)", first: 3, dropped: 1 }));
  },
);

/** Returns a conversation in which a hook's attachment names a prompt, and the answer names the attachment. */
function hookedConversation(): ClaudeWriter {
  const w = new ClaudeWriter();
  w.human("First");
  w.answer([said("Yes.")]);
  const prompt = w.human("Second");
  w.node("attachment", { attachment: { type: "hook_additional_context", content: ["context"] } }, prompt);
  w.answer([said("Done.")]);
  return w;
}

describe("the order of records in the file does not matter", () => {
  const texts = (session: Session): unknown[] =>
    strictContext(session).map(({ content }) => (Array.isArray(content) ? content[0].text : content));

  test("an attachment before the prompt that it continues", () => {
    const { lines } = hookedConversation();
    const swapped = [lines[0], lines[1], lines[3], lines[2], lines[4]];
    const session = foreignSession(`${swapped.join("\n")}\n`);
    requireSound(session);
    expect(texts(session)).toEqual(["First", "Yes.", "Second", "Done."]);
    expect(fidelityOf(session.log).warnings).toEqual([]);
  });

  test("any order", () => {
    forSeeds(20, (random) => {
      const { lines } = hookedConversation();
      const mixed = lines.map((line) => ({ line, key: random.int(1000) })).sort((a, b) => a.key - b.key);
      const session = foreignSession(`${mixed.map(({ line }) => line).join("\n")}\n`);
      requireSound(session);
      expect(texts(session)).toEqual(["First", "Yes.", "Second", "Done."]);
    });
  });

  test("a prompt that comes while the file is followed, after the attachment that names it", () => {
    const { lines } = hookedConversation();
    const disk = diskWithForeign(`${[lines[0], lines[1], lines[3]].join("\n")}\n`);
    const { log } = foreignSessionOn(disk);
    disk.put(FOREIGN_FILE, Buffer.from(`${[lines[0], lines[1], lines[3], lines[2], lines[4]].join("\n")}\n`));
    expect(log.refresh()).toEqual({ kind: "replaced" });
    expect(texts(foreignSessionOn(disk))).toEqual(["First", "Yes.", "Second", "Done."]);
  });

  test("records that continue each other, in a circle: nothing is lost, and the report says so", () => {
    const { records } = hookedConversation();
    // The ends of the circle, the record before it, and the one that it is of alone.
    for (const [from, to] of [
      [0, 4],
      [0, 1],
      [1, 3],
      [2, 2],
      [1, 4],
    ]) {
      const lines = records.map((record, n) => {
        const parent = n === from ? records[to].uuid : record.parentUuid;
        return JSON.stringify({ ...record, parentUuid: parent });
      });
      const session = foreignSession(`${lines.join("\n")}\n`);
      requireSound(session);
      expect([from, to, texts(session)]).toEqual([from, to, ["First", "Yes.", "Second", "Done."]]);
      expect([from, to, fidelityOf(session.log).warningCount]).toEqual([from, to, 1]);
    }
  });

  test("records in a circle and in any order are all there", () => {
    forSeeds(20, (random) => {
      const { records } = hookedConversation();
      const parents = records.map(() => random.pick(records).uuid);
      const lines = records.map((record, n) => JSON.stringify({ ...record, parentUuid: parents[n] }));
      const mixed = lines.map((line) => ({ line, key: random.int(1000) })).sort((a, b) => a.key - b.key);
      const session = foreignSession(`${mixed.map(({ line }) => line).join("\n")}\n`);
      requireSound(session);
      const all = Array.from({ length: session.log.nodes.count }, (_, n) => session.shownEntry(n));
      for (const said of ["First", "Yes.", "Second", "Done."]) expect(JSON.stringify(all)).toContain(said);
    });
  });

  test("a parent that is nowhere: the record continues the one before it, and the report says so", () => {
    const { records } = hookedConversation();
    const lines = records.map((record, n) => JSON.stringify(n === 2 ? { ...record, parentUuid: "gone" } : record));
    const session = foreignSession(`${lines.join("\n")}\n`);
    expect(texts(session)).toEqual(["First", "Yes.", "Second", "Done."]);
    expect(fidelityOf(session.log).warningCount).toBe(1);
  });
});
