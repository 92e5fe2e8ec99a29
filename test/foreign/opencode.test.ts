/** Exports of opencode: messages, steps, compactions, what was taken back, and the count of what became of each record. */

import { expect, test } from "vitest";
import {
  entriesOf,
  fidelityOf,
  foreignSession,
  pairingFault,
  readDamaged,
  requirePairedAtEveryLeaf,
  requireSound,
  strictContext,
} from "../support/foreign/checks.ts";
import { rewritten } from "../support/foreign/growth.ts";
import {
  done,
  OpencodeWriter,
  randomOpencodeExport,
  usage,
  wholeOpencodeExport,
  words,
} from "../support/foreign/opencode.ts";
import { acrossTiers } from "../support/tiers.ts";

type Message = { role: string; content: { type: string }[]; usage: Record<string, unknown>; stopReason: string };

/** The messages among the entries of an export, in order. */
function messagesOf(w: OpencodeWriter): Message[] {
  return entriesOf(foreignSession(w.text)).flatMap(({ message }) => (message ? [message as Message] : []));
}

test("every kind of message and part is counted, and all leaves have a context that providers take", () => {
  const w = wholeOpencodeExport();
  const session = foreignSession(w.text);
  requireSound(session);
  const report = fidelityOf(session.log);
  expect(report.agent).toBe("opencode");
  expect(report.records).toBe(w.records);
  expect(report.warnings).toEqual([]);
  expect(report.kinds.every(({ dropped }) => dropped === 0)).toBe(true);
  expect(session.name).toBe("A made-up session");
  expect(session.cwd).toBe("/home/me/project");
  expect(session.log.damage).toEqual([]);
});

test("what was reverted stays as a branch, and the leaf is before it", () => {
  const session = foreignSession(wholeOpencodeExport().text);
  const entries = entriesOf(session);
  const leaf = entries[session.tree.leaf];
  expect(JSON.stringify(leaf)).toContain("Yes.");
  const after = entries.find(({ parentId }) => parentId === leaf.id);
  expect(JSON.stringify(after)).toContain("This was taken back");
  expect(requirePairedAtEveryLeaf(session)).toBe(1);
  expect(pairingFault(strictContext(session))).toBeNull();
});

test("a revert from a part on keeps the parts before it", () => {
  const w = new OpencodeWriter();
  w.user([words("Go")]);
  const id = w.step([words("first"), done("call_1", "out"), words("taken back")]);
  const part = w.messages[1].parts[3].id;
  w.info = { ...w.info, revert: { messageID: id, partID: part } };
  const session = foreignSession(w.text);
  requireSound(session);
  const context = JSON.stringify(strictContext(session));
  expect(context).toContain("first");
  expect(context).not.toContain("taken back");
  expect(JSON.stringify(entriesOf(session))).toContain("taken back");
});

test("a compaction keeps what its tail begins with", () => {
  const w = new OpencodeWriter();
  w.user([words("Forget this")]);
  w.step([words("Forgotten.")]);
  const kept = w.user([words("Keep this")]);
  w.step([words("Kept.")]);
  w.user([{ type: "compaction", auto: true, tail_start_id: kept }]);
  w.answer([words("The summary")], { summary: true });
  w.user([words("Go on")]);
  const roles = strictContext(foreignSession(w.text)).map((message) => `${message.role} ${JSON.stringify(message)}`);
  expect(roles[0]).toMatch(/^compactionSummary .*The summary/);
  expect(roles[1]).toMatch(/^user .*Keep this/);
  expect(roles[2]).toMatch(/^assistant .*Kept\./);
  expect(roles[3]).toMatch(/^user .*Go on/);
  expect(roles).toHaveLength(4);
});

test("a step is an answer, whose tokens and cost are counted once", () => {
  const w = new OpencodeWriter();
  w.user([words("Go")]);
  const { tokens } = usage(11);
  w.answer(
    [
      { type: "step-start" },
      done("call_1", "out"),
      { type: "step-finish", reason: "tool-calls", cost: 0.5, tokens },
      { type: "step-start" },
      words("Done."),
      { type: "step-finish", reason: "stop", cost: 0.25, tokens },
    ],
    { cost: 0.75, tokens },
  );
  const answers = messagesOf(w).filter(({ role }) => role === "assistant");
  expect(answers.map(({ stopReason }) => stopReason)).toEqual(["toolUse", "stop"]);
  expect(answers[0].usage).toMatchObject({ input: 11, output: 25, cacheRead: 100, cacheWrite: 3, totalTokens: 139 });
  expect(answers.map((one) => (one.usage.cost as { total: number }).total)).toEqual([0.5, 0.25]);
});

test("an export that grew has the entries that it had, and more", () => {
  const w = new OpencodeWriter();
  w.user([words("Go")]);
  w.step([done("call_1", "out")], "tool-calls");
  const before = w.text;
  w.step([words("Done.")]);
  w.user([words("More")]);
  w.info = { ...w.info, time: { created: Date.UTC(2026, 8, 14, 8), updated: 9 }, cost: 3 };
  const { kind, first, later } = rewritten(before, w.text);
  expect(kind).toBe("grown");
  expect(later.slice(0, first.length)).toEqual(first);
  expect(later.length).toBe(first.length + 2);
});

test("of a cut or damaged export, what is whole is read", () => {
  const w = wholeOpencodeExport();
  const half = w.text.slice(0, w.text.indexOf("Second"));
  const session = foreignSession(half);
  requireSound(session);
  const texts = JSON.stringify(entriesOf(session));
  expect(texts).toContain("See these");
  expect(texts).toContain("import:opencode:damaged");
  const broken = w.text.replace('"auto": true', '"auto": tru');
  expect(fidelityOf(foreignSession(broken).log).records).toBe(w.records);
});

acrossTiers(test, [10, 40])("exports that were damaged at random (%i)", (count) => {
  const whole = wholeOpencodeExport().lines;
  const { read } = readDamaged(count, (random) => (random.chance(0.5) ? whole : randomOpencodeExport(random).lines));
  expect(read).toBeGreaterThan(count * 0.6);
});
