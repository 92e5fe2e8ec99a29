/** Files as Cline, Roo Code and Kilo Code write them, made up: every kind of message that they are known to write. */

import type { Random } from "../random.ts";
import { type Fields, type Talker, talk } from "./writing.ts";

/** The published contract, and the older files of Cline and of Roo Code. */
export type ClineForm = "contract" | "cline" | "roo";

export const CLINE_SESSION = "1784094124598_abcde";
const FIRST = Date.UTC(2026, 6, 15, 5);

/** Writes messages one after the other, in one of the three forms. */
export class ClineWriter implements Talker {
  readonly messages: Fields[] = [];
  readonly form: ClineForm;
  facts: Fields = { version: 1, updated_at: "2026-07-15T05:42:04.818Z", agent: "lead", sessionId: CLINE_SESSION };

  constructor(form: ClineForm) {
    this.form = form;
  }

  get text(): string {
    const { form, facts, messages } = this;
    if (form !== "contract") return JSON.stringify(messages);
    return `${JSON.stringify({ ...facts, messages, system_prompt: "You are Cline." }, null, 2)}\n`;
  }

  message(role: string, content: unknown, more: Fields = {}): void {
    const n = this.messages.length + 1;
    const ts = FIRST + n * 1000;
    const own = this.form === "contract" ? { id: `msg_${n}`, ts } : this.form === "roo" ? { ts } : {};
    this.messages.push({ role, content, ...own, ...more });
  }

  ask(text: string): void {
    const tag = this.form === "roo" ? "user_message" : this.messages.length === 0 ? "task" : "feedback";
    const said =
      this.form === "contract" ? `<user_input mode="act">${text}</user_input>` : `<${tag}>\n${text}\n</${tag}>`;
    const blocks = [{ type: "text", text: said }];
    this.message("user", this.form === "contract" ? blocks : [...blocks, this.environment()]);
  }

  environment(): Fields {
    const { form, messages } = this;
    const clock = String(messages.length % 60).padStart(2, "0");
    const text =
      form === "roo"
        ? `# Current Time\nCurrent time in ISO 8601 UTC format: 2026-07-15T05:00:${clock}.000Z\n\n# Current Mode\n<slug>code</slug>\n<name>Code</name>\n<model>claude-x</model>\n\n# Current Workspace Directory (/home/me/project) Files\na.txt`
        : `# Visual Studio Code Visible Files\na.txt\n\n# Current Time\n7/14/2026, 10:00:${clock} PM (America/Los_Angeles, UTC-7:00)\n\n# Current Working Directory (/home/me/project) Files\na.txt\n\n# Context Window Usage\n1 / 200K\n\n# Current Mode\nACT MODE`;
    return { type: "text", text: `<environment_details>\n${text}\n</environment_details>` };
  }

  answer(content: unknown, more: Fields = {}): void {
    const facts: Record<ClineForm, Fields> = {
      contract: {
        modelInfo: { id: "claude-x", provider: "anthropic", family: "claude" },
        metrics: { inputTokens: 21, outputTokens: 8, cacheReadTokens: 3, cacheWriteTokens: 1, cost: 0.13 },
      },
      cline: {
        modelInfo: { modelId: "claude-x", providerId: "anthropic", mode: "act" },
        metrics: { tokens: { prompt: 21, completion: 8, cached: 3 }, cost: 0.13 },
      },
      roo: {},
    };
    this.message("assistant", content, { ...facts[this.form], ...more });
  }

  result(id: string, content: unknown, more: readonly Fields[] = []): void {
    const rest = this.form === "contract" ? more : [...more, this.environment()];
    this.message("user", [{ type: "tool_result", tool_use_id: id, name: "read_file", content }, ...rest]);
  }

  work(text: string, ids: readonly string[], random?: Random): void {
    const thoughts = random ? [] : [{ type: "thinking", thinking: "hm", signature: "c2ln" }];
    this.answer([...thoughts, { type: "text", text }, ...ids.map((id) => use(id))]);
    const results = ids.map((id) => ({ type: "tool_result", tool_use_id: id, content: `output ${id}` }));
    this.message("user", this.form === "contract" ? results : [...results, this.environment()]);
  }

  reply(text: string): void {
    this.answer(text);
  }
}

export function use(id: string): Fields {
  return { type: "tool_use", id, name: "read_file", input: { path: "a.txt" } };
}

const FOUND = { query: "x", result: "y" };

/** A session with every kind of message and block of a form. */
export function wholeClineSession(form: ClineForm): ClineWriter {
  const w = new ClineWriter(form);
  w.ask("Read the files");
  w.answer([
    { type: "thinking", thinking: "I read.", signature: "c2ln" },
    { type: "text", text: "Reading" },
    use("t1"),
    { ...use("t2"), signature: "c2ln" },
  ]);
  w.message("user", [
    { type: "text", text: "[ERROR] You did not use a tool" },
    { type: "tool_result", tool_use_id: "t1", content: "the text", is_error: false },
    { type: "tool_result", tool_use_id: "t2", content: [{ type: "text", text: "more" }, FOUND] },
  ]);
  w.answer([{ type: "redacted_thinking", data: "b3BhcXVl" }, use("t3")]);
  w.result("t3", [{ type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } }]);
  w.answer("It says the text.");
  w.message("user", [
    { type: "text", text: "And this?" },
    { type: "image", data: "AAAA", mediaType: "image/png" },
    { type: "file", path: "/home/me/project/b.txt", content: "b" },
    { type: "media", media: { kind: "audio" } },
  ]);
  w.answer([{ type: "text", text: "A picture." }], { tomorrow: 1 });
  w.message("user", "[TASK RESUMPTION] This task was interrupted");
  w.message("user", [
    { type: "text", text: "[read_file for 'a.txt'] Result:" },
    { type: "text", text: "a text" },
  ]);
  w.message("system", "of tomorrow");
  w.message("assistant", []);
  w.message("user", []);
  if (form === "contract") {
    const summary = { kind: "compaction_summary", displayRole: "system", summary: "All before", tokensBefore: 1000 };
    w.message("user", [{ type: "text", text: "Context summary:\n\nAll before" }], { metadata: summary });
    const notice = { kind: "recovery_notice", displayRole: "status" };
    w.message("user", [{ type: "text", text: "Go on." }], { metadata: notice });
  }
  if (form === "roo") {
    const signature = { type: "thoughtSignature", thoughtSignature: "c2ln" };
    w.answer([{ type: "reasoning", text: "so", summary: [] }, use("t4"), signature], { id: "resp_1" });
    w.result("t4", "four");
    w.message("assistant", [], { type: "reasoning", encrypted_content: "b3BhcXVl", summary: [], id: "rs_1" });
    w.answer([{ type: "reasoning", summary: [{ text: "in short" }], encrypted_content: "b3BhcXVl" }]);
    const details = [{ type: "reasoning.text", text: "hm" }, { type: "reasoning.encrypted" }];
    w.answer("Beside.", { reasoning_details: details });
    w.answer("Deep.", { reasoning_content: "deeply" });
    const hidden = "[Sliding window truncation: 4 messages hidden]";
    w.message("user", hidden, { isTruncationMarker: true, truncationId: "x" });
    w.ask("Still there?");
    w.answer("Yes.");
    for (const message of w.messages) message.condenseParent = "c";
    const summary = [{ type: "text", text: "## Conversation Summary\nAll before" }];
    w.message("user", summary, { isSummary: true, condenseId: "c" });
  }
  w.ask("What else?");
  w.answer([use("t9")]);
  w.result("t9", "nine", [{ type: "text", text: "<feedback>\nGood\n</feedback>" }]);
  w.answer("Nothing.");
  return w;
}

export function randomClineSession(random: Random, form: ClineForm): ClineWriter {
  return talk(new ClineWriter(form), random, 4, (w, turn) => {
    const summary = { isSummary: true, condenseId: `c${turn}` };
    if (form === "roo" && random.chance(0.1)) w.message("user", "## Conversation Summary", summary);
  });
}

/** Returns the screen of a task: every kind of record with a part of a conversation, and some others. */
export function wholeClineScreen(): Fields[] {
  let n = 0;
  const record = (type: "say" | "ask", kind: string, more: Fields = {}): Fields => {
    n++;
    return { ts: FIRST + n * 1000, type, [type]: kind, ...more };
  };
  const took = { request: "x", tokensOut: 10, cacheWrites: 2, cacheReads: 3, cost: 0.01 };
  const request = (tokensIn: number): Fields =>
    record("say", "api_req_started", { text: JSON.stringify({ ...took, tokensIn }) });
  return [
    record("say", "text", { text: "Make a page", images: ["data:image/png;base64,AAAA", "https://example.com/a.png"] }),
    request(100),
    record("say", "reasoning", { text: "I make it." }),
    record("say", "text", { text: "Making", modelInfo: { modelId: "claude-x", providerId: "anthropic", mode: "act" } }),
    record("ask", "tool", { text: JSON.stringify({ tool: "editedExistingFile", path: "a.html" }) }),
    record("ask", "command", { text: "ls" }),
    record("say", "command_output", { text: "a.html" }),
    request(50),
    request(60),
    record("ask", "followup", { text: JSON.stringify({ question: "Which colour?", options: ["red"] }) }),
    record("say", "user_feedback", { text: "Red" }),
    record("say", "condense_context", {
      contextCondense: { summary: "A red page", prevContextTokens: 500, cost: 0.1 },
    }),
    request(10),
    record("say", "completion_result", { text: "Done." }),
    record("ask", "completion_result", { text: "" }),
    record("say", "checkpoint_saved", { text: "abc", checkpoint: {} }),
    record("say", "a_kind_of_tomorrow"),
    record("say", "text", { text: "And", partial: true }),
  ];
}
