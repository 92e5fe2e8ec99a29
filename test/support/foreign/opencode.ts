/** Exports as opencode writes them, made up: every kind of message and part that it is known to have. */

import type { Random } from "../random.ts";
import { type Fields, type Talker, talk } from "./writing.ts";

export const OPENCODE_SESSION = "ses_4a7c1e2b9ffeXq81LmPz03TtUv";
const SMALLEST_PNG = "data:image/png;base64,iVBORw0KGgo=";

export class OpencodeWriter implements Talker {
  info: Fields = {
    id: OPENCODE_SESSION,
    slug: "quiet-harbor",
    projectID: "3f1f6f0d8e11",
    directory: "/home/me/project",
    title: "A made-up session",
    version: "1.18.34",
    time: { created: at(0), updated: at(0) },
  };
  readonly messages: { info: Fields; parts: Fields[] }[] = [];
  private made = 0;

  get text(): string {
    return `${JSON.stringify({ info: this.info, messages: this.messages }, null, 2)}\n`;
  }

  get lines(): string[] {
    return this.text.trimEnd().split("\n");
  }

  /** Records that the document has: its facts, each message and each part. */
  get records(): number {
    return 1 + this.messages.reduce((sum, { parts }) => sum + 1 + parts.length, 0);
  }

  id(kind: string): string {
    this.made++;
    return `${kind}_${this.made.toString(16).padStart(12, "0")}abcdefghijklmn`;
  }

  user(parts: readonly Fields[], more: Fields = {}): string {
    const model = { providerID: "anthropic", modelID: "claude-sonnet-4-5" };
    return this.message({ role: "user", agent: "build", model, ...more }, parts);
  }

  answer(parts: readonly Fields[], more: Fields = {}): string {
    const facts = { mode: "build", agent: "build", path: { cwd: "/home/me/project", root: "/home/me/project" } };
    const time = { created: at(this.made), completed: at(this.made + 1) };
    const model = { providerID: "anthropic", modelID: "claude-sonnet-4-5", finish: "stop" };
    return this.message({ role: "assistant", ...facts, ...model, ...usage(10), time, ...more }, parts);
  }

  /** Adds an answer of one step. */
  step(parts: readonly Fields[], reason = "stop"): string {
    const finish = { type: "step-finish", reason, snapshot: "f6be85", ...usage(10) };
    return this.answer([{ type: "step-start", snapshot: "f6be85" }, ...parts, finish], { finish: reason });
  }

  ask(text: string): void {
    this.user([words(text)]);
  }

  work(text: string, ids: readonly string[], random?: Random): void {
    const metadata = { anthropic: { signature: "c2ln" } };
    const thoughts = random ? [] : [{ type: "reasoning", text: "hm", metadata, time: { start: at(1) } }];
    this.step([...thoughts, words(text), ...ids.map((id) => done(id, `output ${id}`))], "tool-calls");
  }

  reply(text: string): void {
    this.step([words(text)]);
  }

  private message(info: Fields, parts: readonly Fields[]): string {
    const id = this.id("msg");
    const own = { sessionID: OPENCODE_SESSION, messageID: id };
    const stored = parts.map((part) => ({ ...part, id: this.id("prt"), ...own }));
    const time = { created: at(this.made) };
    this.messages.push({ info: { time, ...info, id, sessionID: OPENCODE_SESSION }, parts: stored });
    return id;
  }
}

function at(step: number): number {
  return Date.UTC(2026, 8, 14, 8) + step * 1000;
}

export function usage(input: number): Fields {
  return { cost: 0.25, tokens: { input, output: 20, reasoning: 5, cache: { read: 100, write: 3 } } };
}

export function words(text: string, more: Fields = {}): Fields {
  return { type: "text", text, ...more };
}

export function done(callID: string, output: string, more: Fields = {}): Fields {
  const time = { start: at(1), end: at(2), ...more };
  const state = { status: "completed", input: { command: "ls" }, output, title: "ls", metadata: { exit: 0 }, time };
  return { type: "tool", tool: "bash", callID, state };
}

function tool(callID: string, state: Fields): Fields {
  return { type: "tool", tool: "read", callID, state: { input: { filePath: "/x" }, ...state } };
}

/** A session with every kind of message and part. */
export function wholeOpencodeExport(): OpencodeWriter {
  const w = new OpencodeWriter();
  const summary = { title: "t", diffs: [{}] };
  w.user([words("List the files")], { system: "Be brief", tools: { bash: true }, summary });
  w.step([
    { type: "reasoning", text: "I think", metadata: { anthropic: { signature: "c2ln" } }, time: { start: at(1) } },
    words("I look."),
    done("call_1", "a.txt"),
    tool("call_2", { status: "error", error: "File not found: /x", time: { start: at(1), end: at(2) } }),
    { type: "patch", hash: "37195e", files: ["/home/me/project/a.txt"] },
  ]);
  w.step([
    { type: "reasoning", text: "", metadata: { openai: { itemId: "rs_1", reasoningEncryptedContent: "b3BhcXVl" } } },
    { type: "reasoning", text: "More", metadata: { openai: { itemId: "rs_2" } } },
    words("There is one.", { metadata: { openai: { itemId: "msg_1" } } }),
    { ...done("call_10", "signed"), metadata: { google: { thoughtSignature: "c2ln" } } },
  ]);
  w.user([
    words("See these"),
    words("Called the Read tool", { synthetic: true }),
    words("not for the model", { ignored: true }),
    { type: "file", mime: "text/plain", filename: "a.txt", url: "file:///home/me/project/a.txt" },
    { type: "file", mime: "image/png", filename: "p.png", url: SMALLEST_PNG },
    { type: "file", mime: "application/pdf", filename: "d.pdf", url: "data:application/pdf;base64,AAAA" },
    { type: "agent", name: "general", source: { value: "@general", start: 0, end: 8 } },
  ]);
  // One message of several steps, as older versions have it.
  w.answer([
    { type: "step-start" },
    words("First"),
    done("call_3", "old", { compacted: at(3) }),
    { type: "step-finish", reason: "tool-calls", ...usage(11) },
    { type: "step-start" },
    words("Second"),
    { type: "step-finish", reason: "length", ...usage(12) },
    { type: "snapshot", snapshot: "a7b17b" },
    { type: "retry", attempt: 1, error: { name: "APIError", data: { message: "529" } }, time: { created: at(4) } },
  ]);
  w.user([
    { type: "subtask", prompt: "Look around", description: "look", agent: "general", command: "/look" },
    words("The program says so", { synthetic: true }),
  ]);
  w.answer([done("call_4", "found")], usage(0));
  w.answer([words("without steps"), done("call_5", "x"), words("and on")]);
  const kept = w.user([words("Keep this")], { model: { providerID: "openai", modelID: "gpt-5" } });
  w.step([words("Kept.")]);
  w.user([{ type: "compaction", auto: true, tail_start_id: kept }]);
  const finish = { type: "step-finish", reason: "stop", ...usage(900) };
  w.answer([{ type: "step-start" }, words("The summary"), finish], { summary: true, agent: "compaction" });
  w.user([words("Go on")]);
  const attachments = [{ type: "file", mime: "image/png", url: SMALLEST_PNG }];
  w.step([
    tool("call_6", { status: "completed", output: "a picture", title: "", metadata: {}, time: {}, attachments }),
    tool("call_7", { status: "running", time: { start: at(5) } }),
    tool("call_8", { status: "pending", input: {}, raw: '{"file' }),
    { type: "part-of-tomorrow", what: 1 },
  ]);
  const aborted = { name: "MessageAbortedError", data: { message: "aborted" } };
  w.answer([words("half")], { error: aborted, finish: undefined });
  w.answer([], { error: { name: "APIError", data: { message: "401", isRetryable: false } } });
  w.answer([]);
  w.user([]);
  // A compaction that failed.
  w.user([{ type: "compaction", auto: false }]);
  w.answer([], { summary: true, error: { name: "ContextOverflowError", data: { message: "too long" } } });
  w.user([words("The end of what holds")]);
  w.step([words("Yes.")]);
  const taken = w.user([words("This was taken back")]);
  w.step([words("and this"), done("call_9", "too")], "tool-calls");
  w.info = { ...w.info, revert: { messageID: taken, snapshot: "a7b17b", diff: "" } };
  return w;
}

/** A long session of turns in any order. */
export function randomOpencodeExport(random: Random): OpencodeWriter {
  return talk(new OpencodeWriter(), random, 4, (w, turn) => {
    if (!random.chance(0.2)) return;
    const kept = random.chance(0.5) ? { tail_start_id: w.messages.at(-2)?.info.id } : {};
    w.user([{ type: "compaction", auto: true, ...kept }]);
    w.answer([words(`Summary ${turn}`)], { summary: true });
  });
}
