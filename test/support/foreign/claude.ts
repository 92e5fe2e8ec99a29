/** Files as Claude Code writes them, made up: every kind of record that it is known to write. */

import type { Random } from "../random.ts";

type ClaudeRecord = Record<string, unknown>;

export const CLAUDE_SESSION = "7d5c2a10-0a5b-4c64-9c1a-3f1f6f0d8e11";

/** Writes records one after the other, each continuing the one before unless it is told otherwise. */
export class ClaudeWriter {
  readonly records: ClaudeRecord[] = [];
  sessionId = CLAUDE_SESSION;
  last: string | null = null;
  isSidechain = false;
  agentId: string | undefined;
  private made = 0;
  private messages = 0;

  get lines(): string[] {
    return this.records.map((record) => JSON.stringify(record));
  }

  get text(): string {
    return `${this.lines.join("\n")}\n`;
  }

  uuid(): string {
    this.made++;
    return `00000000-0000-4000-8000-${this.made.toString(16).padStart(12, "0")}`;
  }

  messageId(): string {
    this.messages++;
    return `msg_${this.messages.toString().padStart(6, "0")}`;
  }

  /** Adds a record with a uuid and returns that. */
  node(type: string, members: ClaudeRecord, parent: string | null = this.last): string {
    const uuid = this.uuid();
    this.records.push({
      parentUuid: parent,
      isSidechain: this.isSidechain,
      userType: "external",
      cwd: "/home/me/project",
      sessionId: this.sessionId,
      version: "2.1.270",
      gitBranch: "main",
      ...(this.agentId === undefined ? {} : { agentId: this.agentId }),
      type,
      uuid,
      timestamp: new Date(Date.UTC(2026, 8, 14, 8) + this.made * 1000).toISOString(),
      ...members,
    });
    this.last = uuid;
    return uuid;
  }

  about(type: string, members: ClaudeRecord): void {
    this.records.push({ type, ...members, sessionId: this.sessionId });
  }

  human(text: string, parent: string | null = this.last): string {
    return this.node("user", { message: { role: "user", content: text } }, parent);
  }

  /** Adds the blocks of one API message, a record each, and returns their uuids. */
  answer(blocks: readonly ClaudeRecord[], parent: string | null = this.last, id = this.messageId()): string[] {
    let before = parent;
    return blocks.map((block, index) => {
      const isLast = index === blocks.length - 1;
      const calls = blocks.some(({ type }) => type === "tool_use");
      before = this.node(
        "assistant",
        {
          requestId: `req_${id}`,
          message: {
            id,
            type: "message",
            role: "assistant",
            model: "claude-sonnet-4-5",
            content: [block],
            stop_reason: isLast ? (calls ? "tool_use" : "end_turn") : null,
            usage: {
              input_tokens: 10,
              output_tokens: isLast ? 40 : 1,
              cache_read_input_tokens: 5,
              cache_creation_input_tokens: 2,
            },
          },
        },
        before,
      );
      return before;
    });
  }

  result(callId: string, text: string, parent: string | null = this.last, more: ClaudeRecord = {}): string {
    const content = [{ tool_use_id: callId, type: "tool_result", content: text, is_error: false }];
    return this.node("user", { message: { role: "user", content }, toolUseResult: { stdout: text }, ...more }, parent);
  }
}

export function call(id: string, command = "ls"): ClaudeRecord {
  return { type: "tool_use", id, name: "Bash", input: { command } };
}

export function said(text: string): ClaudeRecord {
  return { type: "text", text };
}

export function thought(thinking: string): ClaudeRecord {
  return { type: "thinking", thinking, signature: "c2lnbmF0dXJl" };
}

/** Records about a session that are none of its conversation. */
const ABOUT: readonly (readonly [string, ClaudeRecord])[] = [
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

/** A session with every kind of record: branches, parallel calls, compactions, harness text, and what is about it. */
export function wholeClaudeSession(): ClaudeWriter {
  const w = new ClaudeWriter();
  w.about("custom-title", { customTitle: "My own title" });
  w.about("summary", { summary: "Of another session", leafUuid: "99999999-0000-4000-8000-000000000000" });
  w.node("user", {
    isMeta: true,
    message: { role: "user", content: "<local-command-caveat>Caveat</local-command-caveat>" },
  });
  const first = w.human("List the files");
  w.node("attachment", { attachment: { type: "session_context", email: "me@example.com" } });
  w.answer([thought(""), said("I look."), call("toolu_1"), call("toolu_2", "pwd")]);
  const [speech] = w.records.filter(({ type }) => type === "assistant").slice(-1);
  w.result("toolu_1", "a.txt", speech.uuid as string);
  w.node("attachment", { attachment: { type: "todo_reminder" } });
  w.result("toolu_2", "/home/me/project", speech.uuid as string);
  w.answer([said("There is a.txt.")]);
  w.node("system", { subtype: "turn_duration", durationMs: 1200 });
  for (const [type, members] of ABOUT) w.about(type, members);
  // A retry: another branch from the first answer's question.
  w.human("No, list the folders", first);
  w.answer([{ type: "redacted_thinking", data: "b3BhcXVl" }, said("There are none.")]);
  w.node("user", { message: { role: "user", content: "<command-name>/cost</command-name>" } });
  w.node("user", { message: { role: "user", content: "<local-command-stdout>0.25</local-command-stdout>" } });
  w.node("user", { origin: { kind: "task-notification" }, message: { role: "user", content: "A task is done" } });
  w.node("user", { isVisibleInTranscriptOnly: true, message: { role: "user", content: "Only to be seen" } });
  const kept = w.human("And now a picture");
  w.node("user", {
    message: {
      role: "user",
      content: [
        said("here"),
        { type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } },
        { type: "document", source: {} },
      ],
    },
  });
  const [tail] = w.answer([said("A picture.")]);
  const boundary = w.node(
    "system",
    {
      subtype: "compact_boundary",
      content: "Conversation compacted",
      logicalParentUuid: tail,
      compactMetadata: {
        trigger: "auto",
        preTokens: 1000,
        postTokens: 100,
        preservedSegment: { headUuid: kept, anchorUuid: kept, tailUuid: tail },
      },
    },
    null,
  );
  w.node("user", { isCompactSummary: true, message: { role: "user", content: "The summary of all before" } }, boundary);
  w.human("Go on");
  w.answer([call("toolu_3", "make")]);
  w.node("user", {
    message: {
      role: "user",
      content: [
        { type: "tool_result", tool_use_id: "toolu_3", content: [{ type: "text", text: "done" }], is_error: true },
        said("and more"),
      ],
    },
  });
  w.node("progress", { data: { type: "hook_progress" } });
  w.node("assistant", {
    isApiErrorMessage: true,
    message: {
      id: "synthetic-1",
      role: "assistant",
      model: "<synthetic>",
      content: [said("API Error: 529")],
      usage: { input_tokens: 0, output_tokens: 0 },
    },
  });
  w.node("user", { message: { role: "user", content: "[Request interrupted by user]" } });
  w.human("Again");
  const [again] = w.answer([said("Yes.")]);
  w.about("last-prompt", { lastPrompt: "Again", leafUuid: again });
  return w;
}

/** A long session of turns in any order, with branches and parallel calls. */
export function randomClaudeSession(random: Random, turns: number): ClaudeWriter {
  const w = new ClaudeWriter();
  const ends: (string | null)[] = [null];
  let calls = 0;
  for (let turn = 0; turn < turns; turn++) {
    w.human(`Turn ${turn} ${"x".repeat(random.int(200))}`, random.chance(0.8) ? w.last : random.pick(ends));
    for (let step = random.int(3); step > 0; step--) {
      const ids = Array.from({ length: 1 + random.int(3) }, () => `toolu_${++calls}`);
      const uuids = w.answer([...(random.chance(0.5) ? [thought("hm")] : []), ...ids.map((id) => call(id))]);
      const from = uuids.slice(-ids.length);
      for (const [n, id] of ids.entries())
        w.result(id, `output ${id}`, random.chance(0.5) ? from[n] : from[from.length - 1]);
      if (random.chance(0.3)) w.about(...random.pick(ABOUT));
    }
    w.answer([said(`Answer ${turn}`)]);
    ends.push(w.last);
  }
  return w;
}

/**
 * Adds a turn to a session whose two subagents worked at once, within its file as older versions wrote them. Returns the
 * names of their side chains, and how many records these have.
 */
export function withSideChains(w = new ClaudeWriter()): { writer: ClaudeWriter; names: string[]; sideRecords: number } {
  w.human("Compare the shelves");
  const task = (id: string): ClaudeRecord => ({ type: "tool_use", id, name: "Task", input: { prompt: "Look" } });
  const [one, two] = w.answer([task("toolu_one"), task("toolu_two")]);
  const before = w.records.length;
  w.isSidechain = true;
  const first = w.human("Look at the first", null);
  const second = w.human("Look at the second", null);
  const [asked] = w.answer([call("toolu_a", "look")], first);
  w.answer([said("Honey.")], second);
  w.result("toolu_a", "marmalade", asked);
  w.answer([said("Jam.")]);
  w.isSidechain = false;
  const sideRecords = w.records.length - before;
  w.result("toolu_one", "Jam.", one);
  w.result("toolu_two", "Honey.", two);
  w.answer([said("Jam and honey.")]);
  return { writer: w, names: [first, second], sideRecords };
}
