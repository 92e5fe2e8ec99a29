/** Sessions of Cline, by its published contract and the older files, and those of Roo Code and Kilo Code. */

import { expect, test } from "vitest";
import { translatorOf } from "../../src/core/foreign/translators.ts";
import {
  damagedLines,
  diskWithForeign,
  entriesOf,
  fidelityOf,
  foreignSession,
  foreignSessionOn,
  requireSound,
  strictContext,
} from "../support/foreign/checks.ts";
import { wholeClaudeSession } from "../support/foreign/claude.ts";
import {
  CLINE_SESSION,
  ClineWriter,
  randomClineSession,
  use,
  wholeClineScreen,
  wholeClineSession,
} from "../support/foreign/cline.ts";
import { geminiDocumentText, wholeGeminiSession } from "../support/foreign/gemini.ts";
import { forSeeds } from "../support/random.ts";
import { acrossTiers, SWEEP } from "../support/tiers.ts";

const FORMS = ["contract", "cline", "roo"] as const;
const HISTORY = "/elsewhere/tasks/1784094124598/api_conversation_history.json";

function texts(session: ReturnType<typeof foreignSession>): string[] {
  return strictContext(session).map((message) => {
    const { role, content, summary } = message as { role: string; content?: unknown; summary?: string };
    const blocks = Array.isArray(content) ? content : [{ type: "text", text: content ?? summary }];
    const said = blocks.map(({ type, text, id, thinking }) =>
      type === "toolCall" ? `call ${id}` : (text ?? thinking ?? ""),
    );
    return `${role}: ${said.join("")}`;
  });
}

test.each(FORMS)("%s: every kind of message is counted, and all leaves have a context that providers take", (form) => {
  const w = wholeClineSession(form);
  const session = foreignSession(w.text, HISTORY);
  requireSound(session);
  const report = fidelityOf(session.log);
  expect(report.agent).toBe(form === "roo" ? "roo" : "cline");
  expect(report.records).toBe(w.messages.length + (form === "contract" ? 1 : 0));
  expect(report.kinds.reduce((sum, { dropped }) => sum + dropped, 0)).toBe(0);
  expect(report.warnings).toEqual([]);
  expect(session.log.damage).toEqual([]);
  if (form !== "contract") expect(session.cwd).toBe("/home/me/project");
  else expect(entriesOf(session).some(({ customType }) => customType === "cline:system-prompt")).toBe(true);
  expect(
    texts(session)
      .slice(-4)
      .map((text) => text.slice(0, 20)),
  ).toEqual(
    form === "contract"
      ? ["assistant: call t9", "toolResult: nine", "user: Good", "assistant: Nothing."]
      : ["toolResult: nine", "user: Good", expect.stringContaining("<environment"), "assistant: Nothing."],
  );
});

test.each(FORMS)("%s: what a message says is in one entry, results in one line behind their calls", (form) => {
  const w = new ClineWriter(form);
  w.user("Go");
  w.answer([{ type: "text", text: "I go. " }, use("a"), use("b")]);
  w.message("user", [
    { type: "tool_result", tool_use_id: "b", content: "2", is_error: true },
    { type: "tool_result", tool_use_id: "a", content: "1" },
  ]);
  w.answer("Gone.");
  const session = foreignSession(w.text, HISTORY);
  requireSound(session);
  const said = texts(session).filter((text) => !text.includes("<environment"));
  expect(said).toEqual([
    "user: Go",
    "assistant: I go. call acall b",
    expect.any(String),
    expect.any(String),
    "assistant: Gone.",
  ]);
  const answer = strictContext(session).find(({ role }) => role === "assistant");
  if (form !== "roo") expect(answer?.usage).toMatchObject({ totalTokens: 29, cacheRead: 3, cost: { total: 0.13 } });
  expect(answer?.model).toBe("claude-x");
  expect(entriesOf(session)[form === "contract" ? 2 : 0].timestamp).toMatch(/^2026-07-15T05:00/);
});

test("a contract's file names its session, and a subagent's the one that made it", () => {
  const w = wholeClineSession("contract");
  const lead = foreignSession(w.text);
  w.facts = { ...w.facts, updated_at: "2027-01-01T00:00:00.000Z" };
  expect(foreignSession(w.text).id).toBe(lead.id);
  w.facts = { ...w.facts, agent: "subagent", sessionId: `${CLINE_SESSION}__agent_1` };
  const disk = diskWithForeign(w.text);
  expect(foreignSessionOn(disk).id).not.toBe(lead.id);
});

test("a task is told by its folder, or where that is not its own by how it began", () => {
  const tasks = ["One", "Another"].map((text) => {
    const w = new ClineWriter("cline");
    w.user(text);
    const idAt = (file: string): string => foreignSession(w.text, file).id;
    const [elsewhere, there] = [idAt("/elsewhere/history.json"), idAt(HISTORY)];
    w.answer("Yes.");
    expect([idAt("/elsewhere/history.json"), idAt(HISTORY)]).toEqual([elsewhere, there]);
    return { elsewhere, there };
  });
  expect(tasks[0].elsewhere).not.toBe(tasks[1].elsewhere);
  expect(tasks[0].there).toBe(tasks[1].there);
  expect(
    foreignSession(JSON.stringify(wholeClineScreen()), HISTORY.replace("api_conversation_history", "ui_messages")).id,
  ).toBe(tasks[0].there);
});

test("a document that was written anew with more messages has grown", () => {
  for (const form of FORMS) {
    const w = new ClineWriter(form);
    w.user("One");
    w.answer([use("a")]);
    w.result("a", "1");
    const disk = diskWithForeign(w.text, HISTORY);
    const session = foreignSessionOn(disk, HISTORY);
    const before = entriesOf(session);
    w.answer("First.");
    w.facts = { ...w.facts, updated_at: "2027-01-01T00:00:00.000Z" };
    disk.put(HISTORY, Buffer.from(w.text));
    expect(session.log.refresh()).toMatchObject({ kind: "grown" });
    expect(entriesOf(session).slice(0, before.length)).toEqual(before);
    session.close();
  }
});

acrossTiers(test, FORMS)(
  "wherever a task of the form %s is cut, no entry of it has the id of another one of the whole task",
  (form) => {
    const w = wholeClineSession(form);
    const messages = [...w.messages];
    const whole = new Map(entriesOf(foreignSession(w.text, HISTORY)).map((entry) => [entry.id, entry]));
    for (let cut = 1; cut < messages.length; cut++) {
      // A thought alone is only the beginning of an entry, and is told to be.
      if (messages[cut - 1].type === "reasoning") continue;
      w.messages.splice(0, w.messages.length, ...messages.slice(0, cut));
      for (const entry of entriesOf(foreignSession(w.text, HISTORY))) expect(entry).toEqual(whole.get(entry.id));
    }
  },
);

test("a summary stands for all before it, and hidden messages leave the task", () => {
  const w = new ClineWriter("roo");
  w.user("Make a page");
  w.answer("Made.");
  w.message("user", "[Sliding window truncation: 2 messages hidden]", { isTruncationMarker: true, truncationId: "x" });
  w.user("More");
  const hidden = texts(foreignSession(w.text, HISTORY));
  expect(hidden[0]).toContain("Make a page\n\n[Sliding window");
  expect(hidden[1]).toBe("user: More");
  for (const message of w.messages) message.condenseParent = "c";
  w.message("user", [{ type: "text", text: "All before" }], { isSummary: true, condenseId: "c" });
  w.user("Yet more");
  const session = foreignSession(w.text, HISTORY);
  expect(texts(session).slice(0, 2)).toEqual([expect.stringContaining("All before"), "user: Yet more"]);
  expect(JSON.stringify(entriesOf(session))).toContain("Made.");
});

test("what is shown of a task, where nothing else is there", () => {
  const records = wholeClineScreen();
  for (const space of [0, 2]) {
    const session = foreignSession(JSON.stringify(records, null, space), HISTORY);
    requireSound(session);
    const report = fidelityOf(session.log);
    expect(report.agent).toBe("cline");
    expect(report.records).toBe(records.length);
    expect(texts(session)).toEqual(
      [
        expect.stringContaining("A red page"),
        "assistant: Done.",
        // Nothing was requested between the two.
      ].map((text, n) => (n === 1 ? "assistant: Done.And" : text)),
    );
    const answers = entriesOf(session).filter(({ message }) => (message as { role?: string })?.role === "assistant");
    expect(answers.map(({ message }) => (message as { usage: { input: number } }).usage.input)).toEqual([100, 110, 10]);
  }
});

test("each format is recognised by what is in it, and by its own translator", () => {
  const gemini = wholeGeminiSession();
  const files: readonly (readonly [string, string | undefined])[] = [
    [wholeClineSession("contract").text, "cline"],
    [wholeClineSession("cline").text, "cline"],
    [wholeClineSession("roo").text, "roo"],
    [JSON.stringify(wholeClineSession("roo").messages, null, 2), "roo"],
    [JSON.stringify(wholeClineScreen()), "cline"],
    [gemini.text, "gemini"],
    [geminiDocumentText(gemini), "gemini"],
    [JSON.stringify(JSON.parse(geminiDocumentText(gemini))), "gemini"],
    [wholeClaudeSession().text, "claude"],
    [JSON.stringify([{ role: "user", content: "Hello" }]), undefined],
    [JSON.stringify([{ sessionId: "a", messageId: 0, type: "user", message: "Hello", timestamp: "" }]), undefined],
    [JSON.stringify({ sessionId: "a", title: "b", history: [], workspaceDirectory: "" }), undefined],
    [JSON.stringify({ info: { id: "ses_1" }, messages: [{ info: { role: "user" }, parts: [] }] }), undefined],
    ['{"type":"session","version":3,"id":"a","timestamp":"","cwd":""}\n{"id":"1","type":"gemini"}\n', undefined],
    ["[]", undefined],
    ["{}", undefined],
    ["", undefined],
  ];
  for (const [text, agent] of files)
    expect(translatorOf(Buffer.from(text), true)?.agent, text.slice(0, 80)).toBe(agent);
  // Damage is no error, not even in names.
  for (const text of ['{"\xff":1,"messages":[]}', '[{"\xff":1}]', '{"sessionId":"\xff"}\n{"\xff":1}', '{"a', "\xff"])
    expect(translatorOf(Buffer.from(text, "latin1"), true), text).toBeUndefined();
  // The first 64 KB of a longer file are enough.
  for (const form of FORMS) {
    const w = new ClineWriter(form);
    w.user(`<task>${"x".repeat(50)}`);
    w.answer("y".repeat(100_000));
    const begun = Buffer.from(w.text).subarray(0, 1 << 16);
    expect(translatorOf(begun, false)?.agent).toBe(form === "roo" ? "roo" : "cline");
  }
});

const DAMAGED = (["contract", "cline", "roo", "screen"] as const).flatMap((form) => [
  [form, 4] as const,
  [form, 20] as const,
]);

for (const [form, count] of DAMAGED)
  test.each([[form, count]] as const)("%s: files that were damaged at random (%i)", count === 4 ? {} : SWEEP, () => {
    const indented = (w: ClineWriter): string => (form === "contract" ? w.text : JSON.stringify(w.messages, null, 1));
    const whole = form === "screen" ? "" : indented(wholeClineSession(form));
    let recognised = 0;
    forSeeds(count, (random) => {
      const text =
        form === "screen"
          ? JSON.stringify(wholeClineScreen(), null, 1)
          : random.chance(0.5)
            ? whole
            : indented(randomClineSession(random, form));
      // Some are on one line, as the programs write them.
      const lines = random.chance(0.3) ? [JSON.stringify(JSON.parse(text))] : text.split("\n");
      const bytes = damagedLines(random, lines);
      if (!translatorOf(bytes, true)) return;
      recognised++;
      const session = foreignSession(bytes, HISTORY);
      requireSound(session);
      session.close();
    });
    expect(recognised).toBeGreaterThan(0.6 * count);
  });

test("what is shown of a task is Roo Code's where it says what only that says", () => {
  const shown = (...more: object[]): string => {
    const said = { ts: 1, type: "say", say: "text", text: "Make a page" };
    return JSON.stringify([said, { ts: 2, type: "say", say: "text", text: "Made." }, ...more]);
  };
  const agentOf = (text: string): string => fidelityOf(foreignSession(text).log).agent;
  expect(agentOf(shown())).toBe("cline");
  for (const say of ["codebase_search_result", "user_edit_todos", "subtask_result"])
    expect(agentOf(shown({ ts: 3, type: "say", say, text: "{}" }))).toBe("roo");
  const request = { ts: 3, type: "say", say: "api_req_started", text: JSON.stringify({ apiProtocol: "anthropic" }) };
  expect(agentOf(shown(request))).toBe("roo");
  expect(agentOf(shown({ ...request, modelInfo: { modelId: "x" } }))).toBe("cline");
});
