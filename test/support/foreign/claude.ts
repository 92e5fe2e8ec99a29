/** Files as Claude Code writes them, made up: every kind of record that it is known to write. */

import type { Random } from "../random.ts";
import { type Fields, LineWriter, moment, type Talker, talk } from "./writing.ts";

export const CLAUDE_SESSION = "7d5c2a10-0a5b-4c64-9c1a-3f1f6f0d8e11";

/** Writes records one after the other, each continuing the one before by default. */
export class ClaudeWriter extends LineWriter implements Talker {
  sessionId = CLAUDE_SESSION;
  last: string | null = null;
  isSidechain = false;
  agentId: string | undefined;
  private made = 0;
  private messages = 0;

  uuid(): string {
    return `00000000-0000-4000-8000-${(++this.made).toString(16).padStart(12, "0")}`;
  }

  /** Adds a record with a uuid and returns that. */
  node(type: string, members: Fields, parent: string | null = this.last): string {
    const { isSidechain, sessionId, agentId } = this;
    const uuid = this.uuid();
    const place = { userType: "external", cwd: "/home/me/project", sessionId, version: "2.1.270", gitBranch: "main" };
    const own = { ...place, ...(agentId === undefined ? {} : { agentId }), type, uuid, timestamp: moment(this.made) };
    this.records.push({ parentUuid: parent, isSidechain, ...own, ...members });
    this.last = uuid;
    return uuid;
  }

  /** Adds a record of a person or the harness, whose message has this content. */
  user(content: unknown, more: Fields = {}, parent: string | null = this.last): string {
    return this.node("user", { message: { role: "user", content }, ...more }, parent);
  }

  about(type: string, members: Fields): void {
    this.records.push({ type, ...members, sessionId: this.sessionId });
  }

  ask(text: string, parent: string | null = this.last): string {
    return this.user(text, {}, parent);
  }

  /** Adds the blocks of one API message, a record each, and returns their uuids. */
  answer(blocks: readonly Fields[], parent: string | null = this.last): string[] {
    const id = `msg_${(++this.messages).toString().padStart(6, "0")}`;
    const end = blocks.some(({ type }) => type === "tool_use") ? "tool_use" : "end_turn";
    let before = parent;
    return blocks.map((block, index) => {
      const isLast = index === blocks.length - 1;
      const cache = { cache_read_input_tokens: 5, cache_creation_input_tokens: 2 };
      const usage = { input_tokens: 10, output_tokens: isLast ? 40 : 1, ...cache };
      const said = { id, type: "message", role: "assistant", model: "claude-sonnet-4-5", content: [block] };
      const message = { ...said, stop_reason: isLast ? end : null, usage };
      before = this.node("assistant", { requestId: `req_${id}`, message }, before);
      return before;
    });
  }

  result(callId: string, text: string, parent: string | null = this.last): string {
    const content = [{ tool_use_id: callId, type: "tool_result", content: text, is_error: false }];
    return this.user(content, { toolUseResult: { stdout: text } }, parent);
  }

  work(text: string, ids: readonly string[], random?: Random): void {
    const thoughts = random?.chance(0.5) ? [] : [thought("hm")];
    const from = this.answer([...thoughts, said(text), ...ids.map((id) => call(id))]).slice(-ids.length);
    for (const [n, id] of ids.entries()) this.result(id, `output ${id}`, random?.chance(0.5) ? from[n] : from.at(-1));
    if (random?.chance(0.3)) this.about(...random.pick(ABOUT));
  }

  reply(text: string): void {
    this.answer([said(text)]);
  }
}

export function call(id: string, command = "ls"): Fields {
  return { type: "tool_use", id, name: "Bash", input: { command } };
}

export function said(text: string): Fields {
  return { type: "text", text };
}

export function thought(thinking: string): Fields {
  return { type: "thinking", thinking, signature: "c2lnbmF0dXJl" };
}

/** Records about a session that are not part of its conversation. */
const ABOUT: readonly (readonly [string, Fields])[] = [
  ["ai-title", { aiTitle: "A title that was made up" }],
  ["mode", { mode: "normal" }],
  ["permission-mode", { permissionMode: "default" }],
  ["queue-operation", { operation: "enqueue", content: "later" }],
  ["cost-state", { totalCostUSD: 0.25, modelUsage: {} }],
  ["file-history-snapshot", { messageId: "m", snapshot: { files: {} }, isSnapshotUpdate: false }],
  ["file-history-delta", { messageId: "m", delta: {} }],
  ["pr-link", { url: "https://example.com/1" }],
  ["relocated", { cwd: "/home/me/other" }],
  ["worktree-state", { worktree: null }],
  ["tag", { tag: "kept" }],
  ["bridge-session", { bridgeSessionId: "remote" }],
  ["fork-context-ref", { ref: "x" }],
  ["content-replacement", { replacements: [] }],
  ["continued-in", { path: "x" }],
  ["frame-link", { frame: 1 }],
  ["artifact-made", { artifact: 1 }],
  ["atis-latch", { latched: true }],
  ["marble-origami-fold", { folds: 2 }],
  ["a-type-of-tomorrow", { what: "unknown" }],
];

/** A session with every kind of record: branches, parallel calls, compactions, harness text, records about itself. */
export function wholeClaudeSession(): ClaudeWriter {
  const w = new ClaudeWriter();
  w.about("custom-title", { customTitle: "My own title" });
  w.about("summary", { summary: "Of another session", leafUuid: "99999999-0000-4000-8000-000000000000" });
  w.user("<local-command-caveat>Caveat</local-command-caveat>", { isMeta: true });
  const first = w.ask("List the files");
  w.node("attachment", { attachment: { type: "session_context", email: "me@example.com" } });
  const answer = w.answer([thought(""), said("I look."), call("toolu_1"), call("toolu_2", "pwd")]).at(-1);
  w.result("toolu_1", "a.txt", answer);
  w.node("attachment", { attachment: { type: "todo_reminder" } });
  w.result("toolu_2", "/home/me/project", answer);
  w.answer([said("There is a.txt.")]);
  w.node("system", { subtype: "turn_duration", durationMs: 1200 });
  for (const [type, members] of ABOUT) w.about(type, members);
  // A retry: another branch from the first answer's question.
  w.ask("No, list the folders", first);
  w.answer([{ type: "redacted_thinking", data: "b3BhcXVl" }, said("There are none.")]);
  w.user("<command-name>/cost</command-name>");
  w.user("<local-command-stdout>0.25</local-command-stdout>");
  w.user("A task is done", { origin: { kind: "task-notification" } });
  w.user("Only to be seen", { isVisibleInTranscriptOnly: true });
  const kept = w.ask("And now a picture");
  const source = { type: "base64", media_type: "image/png", data: "AAAA" };
  w.user([said("here"), { type: "image", source }, { type: "document", source: {} }]);
  const [tail] = w.answer([said("A picture.")]);
  const preservedSegment = { headUuid: kept, anchorUuid: kept, tailUuid: tail };
  const compactMetadata = { trigger: "auto", preTokens: 1000, postTokens: 100, preservedSegment };
  const boundary = { subtype: "compact_boundary", content: "Conversation compacted", logicalParentUuid: tail };
  w.node("system", { ...boundary, compactMetadata }, null);
  w.user("The summary of all before", { isCompactSummary: true });
  w.ask("Go on");
  w.answer([call("toolu_3", "make")]);
  w.user([{ type: "tool_result", tool_use_id: "toolu_3", content: [said("done")], is_error: true }, said("and more")]);
  w.node("progress", { data: { type: "hook_progress" } });
  const usage = { input_tokens: 0, output_tokens: 0 };
  const synthetic = { id: "synthetic-1", role: "assistant", model: "<synthetic>", content: [said("API Error: 529")] };
  w.node("assistant", { isApiErrorMessage: true, message: { ...synthetic, usage } });
  w.user("[Request interrupted by user]");
  w.ask("Again");
  const [again] = w.answer([said("Yes.")]);
  w.about("last-prompt", { lastPrompt: "Again", leafUuid: again });
  return w;
}

/** A long session of turns in any order, with branches and parallel calls. */
export function randomClaudeSession(random: Random, turns: number): ClaudeWriter {
  const ends: (string | null)[] = [null];
  return talk(new ClaudeWriter(), random, turns, (w) => {
    ends.push(w.last);
    if (random.chance(0.2)) w.last = random.pick(ends);
  });
}

/**
 * Adds a turn to a session whose two subagents worked at once, within its file as older versions wrote them. Returns the
 * names of their side chains, and how many records these have.
 */
export function addSidechains(w = new ClaudeWriter()): { writer: ClaudeWriter; names: string[]; chainRecords: number } {
  w.ask("Compare the shelves");
  const task = (id: string): Fields => ({ type: "tool_use", id, name: "Task", input: { prompt: "Look" } });
  const [one, two] = w.answer([task("toolu_one"), task("toolu_two")]);
  const before = w.records.length;
  w.isSidechain = true;
  const first = w.ask("Look at the first", null);
  const second = w.ask("Look at the second", null);
  const [asked] = w.answer([call("toolu_a", "look")], first);
  w.answer([said("Honey.")], second);
  w.result("toolu_a", "marmalade", asked);
  w.answer([said("Jam.")]);
  w.isSidechain = false;
  const chainRecords = w.records.length - before;
  w.result("toolu_one", "Jam.", one);
  w.result("toolu_two", "Honey.", two);
  w.answer([said("Jam and honey.")]);
  return { writer: w, names: [first, second], chainRecords };
}
