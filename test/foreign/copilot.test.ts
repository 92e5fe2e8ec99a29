/** Logs of Copilot CLI: messages, calls, compactions, what was taken back, and the count of what became of each event. */

import { expect, test } from "vitest";
import {
  entriesOf,
  fidelityOf,
  foreignSession,
  readDamaged,
  requirePairedAtEveryLeaf,
  requireSound,
  strictContext,
} from "../support/foreign/checks.ts";
import { CopilotWriter, randomCopilotLog, wholeCopilotLog } from "../support/foreign/copilot.ts";
import { appended } from "../support/foreign/growth.ts";
import { acrossTiers } from "../support/tiers.ts";

test("every kind of event is counted, and all leaves have a context that providers take", () => {
  const w = wholeCopilotLog();
  const session = foreignSession(w.text);
  requireSound(session);
  const report = fidelityOf(session.log);
  expect(report.agent).toBe("copilot");
  expect(report.records).toBe(w.events.length);
  expect(report.warnings).toEqual([]);
  const dropped = report.kinds.filter((kind) => kind.dropped > 0).map(({ kind }) => kind);
  expect(dropped).toEqual(["assistant.turn_start", "assistant.turn_end", "assistant.message_delta", "session.idle"]);
  expect(session.name).toBe("A made-up session");
  expect(session.cwd).toBe("/home/me/project");
  expect(requirePairedAtEveryLeaf(session)).toBe(3);
});

test("what was taken back, or cleared, stays as a branch", () => {
  const w = new CopilotWriter();
  w.start();
  w.user("One");
  w.answer("Answer one");
  const back = w.user("Two");
  w.answer("Answer two");
  w.event("session.snapshot_rewind", { upToEventId: back, eventsRemoved: 2 });
  w.user("Instead of two");
  const session = foreignSession(w.text);
  const texts = JSON.stringify(strictContext(session));
  expect(texts).toContain("Answer one");
  expect(texts).not.toContain("Answer two");
  w.event("session.context_cleared", { messagesCleared: 3 });
  w.user("Anew");
  const cleared = foreignSession(w.text);
  expect(strictContext(cleared)).toHaveLength(1);
  expect(JSON.stringify(entriesOf(cleared))).toContain("Answer two");
});

test("an answer has its thoughts and calls, and after it the results", () => {
  const w = new CopilotWriter();
  w.start();
  w.user("Go");
  w.answer("I look.", ["a", "b"], { reasoningText: "I think", reasoningOpaque: "c2ln" });
  w.tool("b", { content: "second" });
  w.tool("a", undefined, { success: false, error: { message: "denied" } });
  const [, answer, ...results] = strictContext(foreignSession(w.text));
  expect(answer.content).toEqual([
    { type: "thinking", thinking: "I think", thinkingSignature: "c2ln" },
    { type: "text", text: "I look." },
    { type: "toolCall", id: "a", name: "bash", arguments: { command: "ls" } },
    { type: "toolCall", id: "b", name: "bash", arguments: { command: "ls" } },
  ]);
  expect(answer).toMatchObject({ provider: "github-copilot", model: "claude-sonnet-4.5", stopReason: "toolUse" });
  expect(results.map(({ toolCallId, isError }) => [toolCallId, isError])).toEqual([
    ["b", false],
    ["a", true],
  ]);
});

test("tokens are those that the record of a call says, and count once", () => {
  const w = new CopilotWriter();
  w.start();
  w.user("Go");
  const usage = { inputTokens: 1000, outputTokens: 50, cacheReadTokens: 100, cost: 1, apiCallId: "api_1" };
  w.event("session.usage_record", { usage });
  w.answer("One ", [], { apiCallId: "api_1", chunkIndex: 0 });
  w.answer("answer", ["a"], { apiCallId: "api_1", chunkIndex: 1 });
  w.tool("a", { content: "out" });
  w.answer("Without a record", [], { apiCallId: "api_2", outputTokens: 7 });
  const [, first, , second] = strictContext(foreignSession(w.text));
  // The cost is a factor of Copilot's own, and no money.
  expect(first.usage).toMatchObject({ input: 900, output: 50, cacheRead: 100, cost: { total: 0 } });
  expect(second.usage).toMatchObject({ input: 0, output: 7 });
  expect(first.content).toHaveLength(3);
});

test("after a compaction, the model sees its summary and what comes after it", () => {
  const w = new CopilotWriter();
  w.start();
  w.user("Before");
  w.event("session.compaction_complete", { success: true, summaryContent: "The summary" });
  w.user("After");
  const context = strictContext(foreignSession(w.text)).map((message) => JSON.stringify(message));
  expect(context).toHaveLength(2);
  expect(context[0]).toContain("The summary");
});

test("events of older versions, without ids and with results of any form", () => {
  const timestamp = "2025-09-14T08:00:00Z";
  const call = { toolCallId: "a", name: "ls", arguments: "{}" };
  const events = [
    { type: "user.message", data: { content: "Go" }, timestamp },
    { type: "assistant.message", data: { content: "", toolRequests: [call] }, timestamp },
    { type: "tool.execution_complete", data: { toolCallId: "a", success: true, result: { files: ["x"] } }, timestamp },
  ];
  const session = foreignSession(events.map((event) => JSON.stringify(event)).join("\n"));
  requireSound(session);
  expect(strictContext(session)[2].content).toEqual([{ type: "text", text: '{"files":["x"]}' }]);
});

test("what subagents said is kept, and is no part of the conversation", () => {
  const session = foreignSession(wholeCopilotLog().text);
  expect(JSON.stringify(entriesOf(session))).toContain("From a subagent");
  for (const { type, message } of entriesOf(session))
    if (type === "message") expect(JSON.stringify(message)).not.toContain("From a subagent");
});

test("a log that grows has the entries that it had, and more", () => {
  const w = new CopilotWriter();
  w.start();
  w.user("Go");
  w.answer("I look.", ["a"]);
  const before = w.text;
  w.tool("a", { content: "out" });
  w.answer("Done.");
  const { kind, first, later } = appended(before, w.text.slice(before.length));
  expect(kind).toBe("grown");
  expect(later.slice(0, first.length)).toEqual(first);
  expect(later.length).toBe(first.length + 2);
});

acrossTiers(test, [10, 40])("logs that were damaged at random (%i)", (count) => {
  const whole = wholeCopilotLog().lines;
  const { made, read } = readDamaged(count, (random) => (random.chance(0.5) ? whole : randomCopilotLog(random).lines), {
    isByLine: true,
  });
  expect(read).toBeGreaterThan(0.6 * made);
});
