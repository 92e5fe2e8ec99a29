/** Writes sessions as oh-my-pi does: a title of 256 bytes, a header, and entries of Pi's and of its own. */

import type { Random } from "../random.ts";
import { type Talker, talk } from "./writing.ts";

export const OMP_SESSION = "0199a1b2-1111-7000-8000-0123456789ab";
export const BLOB = `blob:sha256:${"ab".repeat(32)}`;
const AT = "2026-10-01T08:00:00.000Z";

export class OmpWriter implements Talker {
  readonly lines: string[] = [];
  private last: string | null = null;

  constructor(title = "Shelves", header: object = {}) {
    const slot = { type: "title", v: 1, title, updatedAt: AT, pad: "" };
    if (title !== "") this.lines.push(JSON.stringify({ ...slot, pad: " ".repeat(255 - JSON.stringify(slot).length) }));
    const facts = { type: "session", version: 3, id: OMP_SESSION, timestamp: AT, cwd: "/home/me/project" };
    this.lines.push(JSON.stringify({ ...facts, ...header }));
  }

  add(type: string, members: object): string {
    const id = this.lines.length.toString(16).padStart(8, "0");
    this.lines.push(JSON.stringify({ type, id, parentId: this.last, timestamp: AT, ...members }));
    this.last = id;
    return id;
  }

  user(content: unknown): string {
    return this.add("message", { message: { role: "user", content, timestamp: Date.parse(AT) } });
  }

  answer(...content: object[]): string {
    const usage = { input: 1, output: 2, cacheRead: 0, cacheWrite: 0, totalTokens: 3, cost: { total: 0.1 } };
    const more = { api: "openai-completions", provider: "openai", model: "gpt-5", usage, stopReason: "stop" };
    return this.add("message", { message: { role: "assistant", content, ...more, timestamp: Date.parse(AT) } });
  }

  result(toolCallId: string, ...content: object[]): void {
    const message = { role: "toolResult", toolCallId, toolName: "read", isError: false, timestamp: 1, content };
    this.add("message", { message });
  }

  ask(text: string): void {
    this.user(text);
  }

  work(text: string, ids: readonly string[]): void {
    this.answer({ type: "thinking", thinking: "hm" }, words(text), ...ids.map(calling));
    for (const id of ids) this.result(id, words(`output ${id}`));
  }

  reply(text: string): void {
    this.answer(words(text));
  }

  get text(): string {
    return `${this.lines.join("\n")}\n`;
  }
}

export const words = (text: string): object => ({ type: "text", text });
const calling = (id: string): object => ({ type: "toolCall", id, name: "read", arguments: { path: "a" } });
export const picture = { type: "image", data: BLOB, mimeType: "image/png" };

/** Every kind of entry that matters to a reader. */
export function wholeOmpSession(): OmpWriter {
  const w = new OmpWriter();
  w.add("model_change", { model: "openrouter/anthropic/claude", role: "default" });
  w.add("thinking_level_change", { thinkingLevel: "high", configured: true });
  w.user([words("List the files"), picture]);
  w.answer(words("There are two"), calling("call_1"));
  w.result("call_1", picture);
  w.add("model_usage", { purpose: "title", provider: "openai", model: "gpt-5", usage: { input: 5, output: 1 } });
  w.add("title_change", { title: "Shelves", source: "auto" });
  w.add("reset_boundary", {});
  w.add("model_change", { model: "openai/gpt-5", role: "fallback" });
  w.user("Now the jam");
  w.answer(words("It is red"));
  return w;
}

export function randomOmpSession(random: Random, turns: number): OmpWriter {
  return talk(new OmpWriter(random.chance(0.8) ? "Some title" : "Another"), random, turns, (w) => {
    if (random.chance(0.2)) w.add("reset_boundary", {});
    if (random.chance(0.2)) w.add("model_change", { model: "a/b", role: random.pick(["default", "smol"]) });
    if (random.chance(0.3)) w.user([picture]);
  });
}
