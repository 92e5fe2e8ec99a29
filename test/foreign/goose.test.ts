/** Exports of Goose: messages, who sees them, compactions, and the count of what became of each record. */

import { expect, test } from "vitest";
import {
  entriesOf,
  fidelityOf,
  foreignSession,
  readDamaged,
  requireSound,
  strictContext,
} from "../support/foreign/checks.ts";
import {
  answered,
  asked,
  BOTH,
  GooseWriter,
  MODEL_ONLY,
  PERSON_ONLY,
  randomGooseExport,
  said,
  wholeGooseExport,
} from "../support/foreign/goose.ts";
import { rewritten } from "../support/foreign/growth.ts";
import { acrossTiers } from "../support/tiers.ts";

test("every kind of message is counted, and all leaves have a context that providers take", () => {
  const w = wholeGooseExport();
  const session = foreignSession(w.text);
  requireSound(session);
  const report = fidelityOf(session.log);
  expect(report.agent).toBe("goose");
  expect(report.records).toBe(1 + w.conversation.length);
  expect(report.kinds.every(({ dropped }) => dropped === 0)).toBe(true);
  expect(session.name).toBe("A made-up session");
  expect(session.cwd).toBe("/home/me/project");
  const texts = JSON.stringify(entriesOf(session));
  for (const { text } of w.conversation.flatMap(({ content }) => content as { text?: string }[]))
    if (text !== undefined) expect(texts).toContain(JSON.stringify(text).slice(1, -1));
});

test("what only the model sees is text or a picture for it, whatever it was", () => {
  const w = new GooseWriter();
  w.user([said("Begin")]);
  w.user(
    [{ type: "text", text: 5 }, { type: "image", data: "" }, { type: "toolRequest", id: "call_1" }, {}],
    MODEL_ONLY,
  );
  w.answer([said("Done")]);
  requireSound(foreignSession(w.text));
});

test("after compactions, the model sees the last summary and what comes after it", () => {
  const w = new GooseWriter();
  w.user([said("One")]);
  w.answer([said("Answer one")]);
  w.compact("Summary one");
  w.user([said("Two")]);
  w.answer([said("Answer two")]);
  w.compact("Summary two");
  w.user([said("Three")]);
  const session = foreignSession(w.text);
  const compactions = entriesOf(session).filter(({ type }) => type === "compaction");
  expect(compactions.map(({ summary }) => summary)).toEqual(["Summary one", "Summary two"]);
  const context = strictContext(session).map((message) => JSON.stringify(message));
  expect(context).toHaveLength(3);
  expect(context[0]).toContain("Summary two");
  expect(context[2]).toContain("Three");
});

test("what the model alone sees is not shown, and what a person alone sees is not in the context", () => {
  const w = new GooseWriter();
  w.user([said("One")]);
  w.user([said("a hint")], MODEL_ONLY);
  w.answer([{ type: "systemNotification", notificationType: "inlineMessage", msg: "a notice" }], PERSON_ONLY);
  w.answer([said("Answer")]);
  const session = foreignSession(w.text);
  const context = JSON.stringify(strictContext(session));
  expect(context).toContain("a hint");
  expect(context).not.toContain("a notice");
  expect(entriesOf(session).find(({ type }) => type === "custom_message")?.display).toBe(false);
});

test("of a tool's result, the context has what the model saw", () => {
  const w = new GooseWriter();
  w.answer([asked("a")]);
  const forPerson = said("drawn for a person", { annotations: { audience: ["user"] } });
  w.user([answered("a", [said("plain", { annotations: { audience: ["assistant"] } }), forPerson])]);
  const [, result] = strictContext(foreignSession(w.text));
  expect(result.content).toEqual([{ type: "text", text: "plain" }]);
  expect(JSON.stringify(result.details)).toContain("drawn for a person");
});

test("tokens and cost are those that messages say, and totals that nothing says are named", () => {
  const w = new GooseWriter();
  w.session = { ...w.session, accumulated_input_tokens: 1200, accumulated_output_tokens: 300, accumulated_cost: 0.5 };
  const usage = { inputTokens: 1000, outputTokens: 50, totalTokens: 1050, cacheReadTokens: 900, cost: 0.25 };
  w.answer([said("Answer")], { ...BOTH, usage });
  const session = foreignSession(w.text);
  const [answer] = strictContext(session);
  expect(answer.usage).toMatchObject({ input: 100, output: 50, cacheRead: 900, cost: { total: 0.25 } });
  expect(answer).toMatchObject({ provider: "anthropic", model: "claude-sonnet-4-5", api: "anthropic-messages" });
  expect(fidelityOf(session.log).warnings[0].sentence).toMatch(/1200 .* 300 .* 0\.5 dollars/);
});

test("an export that grew has the entries that it had, and more", () => {
  const w = new GooseWriter();
  w.user([said("Go")]);
  w.answer([asked("a")]);
  w.user([answered("a", [said("out")])]);
  const before = w.text;
  w.answer([said("Done.")]);
  w.session = { ...w.session, updated_at: "2026-09-14T10:00:00Z", accumulated_cost: 3 };
  w.compact("The summary");
  const { kind, first, later } = rewritten(before, w.text);
  expect(kind).toBe("grown");
  expect(later.slice(0, first.length)).toEqual(first);
  expect(later.length).toBe(first.length + 3);
});

test("a file of lines, as older versions have it", () => {
  const facts = { working_dir: "/home/me/project", description: "An older session", message_count: 2 };
  const created = Date.UTC(2025, 8, 14, 8) / 1000;
  const value = [said("out")];
  const lines = [
    facts,
    { role: "user", created, content: [said("Go")] },
    { role: "assistant", created, content: [asked("a")] },
    { role: "user", created, content: [{ type: "toolResponse", id: "a", toolResult: { status: "success", value } }] },
  ].map((line) => JSON.stringify(line));
  const session = foreignSession(`${lines.join("\n")}\n{"role":"assis`);
  requireSound(session);
  expect(fidelityOf(session.log)).toMatchObject({ agent: "goose", records: 5 });
  expect(session.name).toBe("An older session");
  expect(strictContext(session).map(({ role }) => role)).toEqual(["user", "assistant", "toolResult"]);
});

test("of a cut or damaged export, what is whole is read", () => {
  const w = wholeGooseExport();
  const half = foreignSession(w.text.slice(0, w.text.indexOf("it broke")));
  requireSound(half);
  expect(JSON.stringify(entriesOf(half))).toContain("In ");
  expect(JSON.stringify(entriesOf(half))).toContain("import:goose:damaged");
  const broken = w.text.replace('"userVisible": true', '"userVisible": tru');
  expect(fidelityOf(foreignSession(broken).log).records).toBe(1 + w.conversation.length);
});

acrossTiers(test, [10, 40])("exports that were damaged at random (%i)", (count) => {
  const whole = wholeGooseExport().lines;
  const { read } = readDamaged(count, (random) => (random.chance(0.5) ? whole : randomGooseExport(random).lines));
  expect(read).toBeGreaterThan(count * 0.6);
});
