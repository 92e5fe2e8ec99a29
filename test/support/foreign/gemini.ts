/** Files as Gemini CLI writes them, made up: every kind of record that it is known to write, in both of its forms. */

import type { Random } from "../random.ts";
import { type Fields, LineWriter, moment, type Talker, talk } from "./writing.ts";

export const GEMINI_SESSION = "3f0c6d52-7b1e-4f7c-9a55-0d7a2b1c9e10";
const CONTEXT = `<session_context>
This is the Gemini CLI. We are setting up the context for our chat.
- **Workspace Directories:**
  - /home/me/project
- **Directory Structure:**
</session_context>`;

/** Writes records in the way of the program, and knows the conversation as the program does. */
export class GeminiWriter extends LineWriter implements Talker {
  /** The messages of the conversation as it is now, without notices. */
  history: Fields[] = [];
  private made = 0;

  constructor(facts: Fields = { kind: "main" }) {
    super();
    const started = this.time();
    const projectHash = "5f4dcc3b5aa765d61d8327deb882cf99";
    this.records.push({ sessionId: GEMINI_SESSION, projectHash, startTime: started, lastUpdated: started, ...facts });
  }

  time(): string {
    return moment(this.made, Date.UTC(2026, 7, 21, 9));
  }

  id(): string {
    this.made++;
    return `11111111-0000-4000-8000-${this.made.toString(16).padStart(12, "0")}`;
  }

  set(facts: Fields): void {
    this.records.push({ $set: facts });
  }

  message(type: string, content: unknown, more: Fields = {}): Fields {
    const record = { id: this.id(), timestamp: this.time(), type, content, ...more };
    this.records.push(record);
    if (type === "user" || type === "gemini") this.history.push(record);
    this.set({ lastUpdated: this.time() });
    return record;
  }

  ask(text: string, more: Fields = {}): Fields {
    return this.message("user", [{ text }], more);
  }

  reply(content: unknown, more: Fields = {}): Fields {
    return this.message("gemini", content, {
      thoughts: [{ subject: "Plan", description: "I think.", timestamp: this.time() }],
      tokens: { input: 100, output: 20, cached: 60, thoughts: 5, tool: 2, total: 127 },
      model: "gemini-3-pro",
      ...more,
    });
  }

  /** Writes the last message of the model again, with calls that are done, and then their results. */
  calls(calls: readonly { id: string; name: string; text: string; status?: string }[]): void {
    const index = this.history.length - 1;
    const toolCalls = calls.map(({ id, name, text, status = "success" }) => {
      const shown = { displayName: name.toUpperCase(), description: "does it", resultDisplay: text };
      const call = { id, name, args: { of: id }, result: [response(id, name, text)], status, timestamp: this.time() };
      return { ...call, ...shown, renderOutputAsMarkdown: false };
    });
    this.history[index] = { ...this.history[index], toolCalls };
    this.records.push(this.history[index]);
    const responses = calls.map(({ id, name, text }) => response(id, name, text));
    this.message("user", responses);
  }

  work(text: string, ids: readonly string[], random?: Random): void {
    this.reply(random?.chance(0.5) ? "" : text);
    this.calls(ids.map((id) => ({ id, name: "tool", text: `output ${id}` })));
  }

  rewindTo(id: unknown): void {
    this.records.push({ $rewindTo: id });
    const index = this.history.findIndex((record) => record.id === id);
    this.history = this.history.slice(0, Math.max(0, index));
  }

  /** Replaces the whole conversation. */
  setMessages(messages: Fields[]): void {
    this.history = [...messages];
    this.set({ messages, lastUpdated: this.time() });
  }
}

function response(id: string, name: string, output: string): Fields {
  return { functionResponse: { id, name, response: { output } } };
}

/** Returns a message as the program writes it when it has it from its history: as parts, and with another id. */
function asParts(record: Fields, id?: string): Fields {
  const { content, toolCalls, ...rest } = record;
  if (rest.type === "user") return { ...record, ...(id === undefined ? {} : { id }) };
  const calls = (toolCalls as { id: string; name: string; args: unknown }[] | undefined) ?? [];
  const text = { text: content === "" ? "" : `${content}` };
  const made = calls.map(({ id, name, args }) => ({ functionCall: { id, name, args }, thoughtSignature: "c2ln" }));
  const aloud = { text: "thinking aloud", thought: true, thoughtSignature: "c2ln" };
  const parts = [aloud, ...(content === "" ? [] : [text]), ...made];
  return {
    id: id ?? rest.id,
    timestamp: rest.timestamp,
    type: "gemini",
    content: Array.isArray(content) ? content : parts,
    ...(id === undefined ? { ...rest, ...(toolCalls === undefined ? {} : { toolCalls }) } : {}),
  };
}

/** A session with every kind of record. */
export function wholeGeminiSession(): GeminiWriter {
  const w = new GeminiWriter();
  const context = { id: "environment-context", timestamp: w.time(), type: "user", content: [{ text: CONTEXT }] };
  w.setMessages([context]);
  w.ask("List the files", { displayContent: [{ text: "List the @files" }] });
  w.reply("");
  w.calls([
    { id: "ls-1", name: "list_directory", text: "a.txt" },
    { id: "sh-2", name: "run_shell_command", text: "denied", status: "error" },
    { id: "sh-3", name: "run_shell_command", text: "stopped", status: "cancelled" },
  ]);
  w.reply("There is a.txt. <!-- hidden -->");
  w.message("info", "Update available");
  w.message("warning", "Slow");
  w.message("error", "A quota was reached");
  // The same conversation by its parts: nothing new.
  w.setMessages(w.history.map((record) => asParts(record)));
  w.ask("<hook_context>from a hook</hook_context>");
  const taken = w.ask("Delete it");
  w.reply("I delete it.");
  w.calls([{ id: "sh-4", name: "run_shell_command", text: "deleted" }]);
  w.reply("Deleted.");
  w.rewindTo(taken.id);
  w.ask("Read it");
  w.reply([
    { text: "I read.", thought: true, thoughtSignature: "c2ln" },
    { text: "Reading" },
    { functionCall: { id: "rd-5", name: "read_file", args: { path: "a.txt" } }, thoughtSignature: "c2ln" },
    { functionCall: { name: "read_file", args: { path: "b.txt" } } },
    { executableCode: { language: "PYTHON", code: "1" } },
  ]);
  w.message("user", [
    response("rd-5", "read_file", "the text"),
    response("nobody", "read_file", "an orphan"),
    { inlineData: { mimeType: "image/png", data: "AAAA" } },
  ]);
  w.reply([{ text: "Binary content received.", thought: true, thoughtSignature: "skip" }]);
  w.message("info", [{ inlineData: { mimeType: "image/png", data: "AAAA" } }, { text: "a picture" }]);
  w.reply("It says the text.");
  // The result of a tool is masked: the conversation goes on with less, from there.
  w.setMessages(
    w.history.map((record) =>
      record.id === w.history.at(-3)?.id ? { ...record, content: [response("rd-5", "read_file", "masked")] } : record,
    ),
  );
  w.ask("What else?");
  w.reply("Nothing.");
  const kept = w.history.slice(-2);
  const [first] = w.history;
  const own = (type: string, text: string): Fields => ({ id: w.id(), timestamp: w.time(), type, content: [{ text }] });
  const summary = own("user", "<state_snapshot>All before</state_snapshot>");
  w.setMessages([first, summary, own("gemini", "Got it. Thanks!"), ...kept.map((record) => asParts(record, w.id()))]);
  w.set({ summary: "Files are listed" });
  w.set({ directories: ["/home/me/more"], lastUpdated: w.time() });
  w.set({ memoryScratchpad: { version: 1, workflowSummary: "read" } });
  w.set({ sessionId: GEMINI_SESSION });
  w.set({ tomorrow: true });
  w.records.push({ type: "a-type-of-tomorrow" }, { id: "t", type: "a-type-of-tomorrow", content: "" });
  w.message("user", "A text alone");
  w.reply("At the end.", { model: undefined, tokens: null });
  return w;
}

/** A long session of turns in any order, with rewinds, compactions, and conversations that are written once more. */
export function randomGeminiSession(random: Random, turns: number): GeminiWriter {
  return talk(new GeminiWriter(), random, turns, (w) => {
    if (random.chance(0.2)) w.message("info", "A notice");
    if (random.chance(0.2)) w.rewindTo(random.pick(w.history).id);
    if (random.chance(0.2)) w.setMessages(w.history.map((record) => asParts(record)));
    if (random.chance(0.1)) w.setMessages(w.history.slice(0, random.int(w.history.length + 1)));
    if (random.chance(0.1)) {
      const summary = { id: w.id(), timestamp: w.time(), type: "user", content: "<state_snapshot>so far" };
      const kept = w.history.slice(random.int(w.history.length + 1));
      w.setMessages([summary, ...kept.map((record) => asParts(record, w.id()))]);
    }
  });
}

/** Returns the older form: one document with the conversation as it is now. */
export function geminiDocumentText(w: GeminiWriter, facts: Fields = {}): string {
  return JSON.stringify({ ...w.records[0], messages: w.history, ...facts }, null, 2);
}
