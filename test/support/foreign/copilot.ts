/** Logs of events as Copilot CLI writes them, made up: every kind of event that matters to a conversation, and others. */

import type { Random } from "../random.ts";
import { type Fields, LineWriter, moment, type Talker, talk } from "./writing.ts";

export const COPILOT_SESSION = "5a1c9a52-3f0e-4a3b-9d54-6f0e1c2b7a90";

export class CopilotWriter extends LineWriter implements Talker {
  private last: string | null = null;

  event(type: string, data: unknown, more: Fields = {}): string {
    const n = this.records.length + 1;
    const id = `00000000-0000-4000-8000-${n.toString(16).padStart(12, "0")}`;
    this.records.push({ type, data, id, timestamp: moment(n), parentId: this.last, ...more });
    this.last = id;
    return id;
  }

  start(more: Fields = {}): void {
    const context = { cwd: "/home/me/project", branch: "main" };
    const facts = { version: 1, producer: "copilot-agent", copilotVersion: "1.0.102" };
    const startTime = "2026-09-14T08:00:00.000Z";
    this.event("session.start", { sessionId: COPILOT_SESSION, ...facts, startTime, context, ...more });
  }

  ask(content: string, more: Fields = {}): string {
    return this.event("user.message", { content, attachments: [], ...more });
  }

  /** Adds an answer of the model; `ids`: of the calls that it makes. */
  reply(content: string, ids: readonly string[] = [], more: Fields = {}): string {
    const toolRequests = ids.map((toolCallId) => ({ toolCallId, name: "bash", arguments: { command: "ls" } }));
    const messageId = `msg_${this.records.length}`;
    const model = "claude-sonnet-4.5";
    return this.event("assistant.message", { messageId, model, content, toolRequests, outputTokens: 40, ...more });
  }

  /** Adds the beginning and the end of a tool's work. */
  tool(toolCallId: string, result: unknown, more: Fields = {}): void {
    this.event("tool.execution_start", { toolCallId, toolName: "bash", arguments: { command: "ls" } });
    this.event("tool.execution_complete", { toolCallId, success: true, result, ...more });
  }

  work(text: string, ids: readonly string[], random?: Random): void {
    this.reply(text, ids, random ? {} : { reasoningText: "hm", reasoningOpaque: "c2ln" });
    for (const id of random?.chance(0.5) ? ids.toReversed() : ids) this.tool(id, { content: `output ${id}` });
    if (random?.chance(0.3)) this.event(...random.pick(OTHERS));
  }
}

/** Events that are kept as they are: they are about the session, or of programs next to the conversation. */
const OTHERS: readonly (readonly [string, Fields])[] = [
  ["session.info", { infoType: "folder_trust", message: "trusted" }],
  ["session.warning", { warningType: "x", message: "careful" }],
  ["session.error", { errorType: "query", message: "it broke" }],
  ["session.mode_changed", { previousMode: "interactive", newMode: "plan" }],
  ["session.truncation", { tokenLimit: 1000, messagesRemovedDuringTruncation: 2 }],
  ["session.compaction_start", { currentTokens: 900 }],
  ["session.task_complete", { summary: "done", success: true }],
  ["session.handoff", { sourceType: "remote", handoffTime: "2026-09-14T08:00:00Z" }],
  ["session.usage_checkpoint", { totals: {} }],
  ["session.context_changed", { cwd: "/home/me/other" }],
  ["system.message", { role: "system", content: "You are a program" }],
  ["skill.invoked", { name: "pdf", path: "/x/SKILL.md", content: "how to" }],
  ["subagent.started", { toolCallId: "sub", agentName: "explore" }],
  ["subagent.completed", { toolCallId: "sub", agentName: "explore" }],
  ["hook.start", { hookInvocationId: "h", hookType: "preToolUse" }],
  ["hook.end", { hookInvocationId: "h", success: true }],
  ["permission.requested", { requestId: "p" }],
  ["permission.completed", { requestId: "p" }],
  ["external_tool.requested", { requestId: "e" }],
  ["tool_search.activated", { strategy: "x", toolNames: [] }],
  ["abort", { reason: "user initiated" }],
  ["session.of_tomorrow", { what: 1 }],
];

/** A session with every kind of event. */
export function wholeCopilotLog(): CopilotWriter {
  const w = new CopilotWriter();
  w.start({ selectedModel: "claude-sonnet-4.5" });
  w.event("session.model_change", { newModel: "claude-sonnet-4.5" });
  w.event("session.model_change", { previousModel: "a", newModel: "gpt-5", reasoningEffort: "high" });
  w.ask("List the files", { transformedContent: "<date>now</date>List the files", interactionId: "i" });
  w.event("assistant.turn_start", { turnId: "0" });
  w.event("assistant.reasoning", { reasoningId: "r", content: "I think" });
  w.reply("I look.", ["call_1", "call_2"], { reasoningText: "I think", reasoningOpaque: "c2ln", apiCallId: "api_1" });
  w.event("assistant.usage", { apiCallId: "api_1", inputTokens: 900, outputTokens: 40, cacheReadTokens: 100 });
  w.tool("call_1", { content: "a.txt", detailedContent: "a.txt (1 KB)" });
  w.tool("call_2", undefined, { success: false, error: { message: "denied", code: "denied" } });
  w.event("assistant.turn_end", { turnId: "0" });
  for (const [type, data] of OTHERS) w.event(type, data);
  const usage = { inputTokens: 1000, outputTokens: 50, cacheReadTokens: 100, cost: 1 };
  w.event("session.usage_record", { usage: { ...usage, apiCallId: "api_2", finishReason: "tool_calls" } });
  w.reply("Two ", [], { apiCallId: "api_2", chunkIndex: 0, chunkCount: 2, reasoningOpaque: "b3BhcXVl" });
  w.reply("chunks", ["call_3"], { apiCallId: "api_2", chunkIndex: 1, chunkCount: 2 });
  w.tool("call_3", "a text alone");
  const blob = { type: "blob", mimeType: "image/png", data: "AAAA" };
  w.event("session.binary_asset", { assetId: "sha256:1", mimeType: "image/png", byteLength: 3, data: "BBBB" });
  w.ask("See this", { attachments: [blob, { type: "file", path: "/x", displayName: "x" }] });
  w.event("assistant.reasoning", { reasoningId: "r2", content: "Only in its own event" });
  w.reply("", ["call_4"], {
    toolRequests: [{ toolCallId: "call_4", name: "view", arguments: '{"path":"/x"}' }],
    encryptedContent: "ZW5j",
  });
  w.tool("call_4", { content: "a picture", binaryResultsForLlm: [{ assetId: "sha256:1", mimeType: "image/png" }] });
  w.reply("From a subagent", [], { parentToolCallId: "call_4" });
  w.event("assistant.message", { messageId: "s", content: "Another" }, { agentId: "agent-1" });
  w.ask("injected", { source: "skill-pdf" });
  w.ask("go on", { isAutopilotContinuation: true });
  w.event("system.notification", { content: "<system_notification>done</system_notification>", kind: { type: "x" } });
  w.event("tool.user_requested", { toolCallId: "own", toolName: "bash", arguments: {} });
  w.tool("own", { content: "a person's own" }, { isUserRequested: true });
  w.event("assistant.message_delta", { messageId: "d", deltaContent: "x" }, { ephemeral: true });
  w.event("session.idle", {}, { ephemeral: true });
  w.event("session.title_changed", { title: "A made-up session" }, { ephemeral: true });
  w.event("session.compaction_complete", { success: false, error: "no" });
  const tokens = { preCompactionTokens: 900, messagesRemoved: 7 };
  w.event("session.compaction_complete", { success: true, summaryContent: "The summary", ...tokens });
  const back = w.ask("Take this back");
  w.reply("Taken.");
  w.event("session.snapshot_rewind", { upToEventId: back, eventsRemoved: 2 }, { ephemeral: true });
  w.ask("Instead");
  w.reply("Yes.");
  w.event("session.resume", { resumeTime: "2026-09-15T08:00:00Z", eventCount: 60, context: { cwd: "/other" } });
  w.event("session.context_cleared", { messagesCleared: 3 });
  w.ask("Anew");
  w.reply("Clean.", [], { model: undefined });
  w.event("session.shutdown", { shutdownType: "routine", modelMetrics: {}, codeChanges: {} });
  w.event("no data", "text");
  return w;
}

/** A long session of turns in any order. */
export function randomCopilotLog(random: Random, turns = 5): CopilotWriter {
  const begun = new CopilotWriter();
  begun.start();
  return talk(begun, random, turns, (w, turn) => {
    if (random.chance(0.1)) w.event("session.compaction_complete", { success: true, summaryContent: `S ${turn}` });
  });
}
