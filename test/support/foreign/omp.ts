/** Writes sessions as oh-my-pi does: a title of 256 bytes, a header, and entries of Pi's and of its own. */

import type { Random } from "../random.ts";

export const OMP_SESSION = "0199a1b2-1111-7000-8000-0123456789ab";
export const BLOB = `blob:sha256:${"ab".repeat(32)}`;
const AT = "2026-10-01T08:00:00.000Z";

export class OmpWriter {
  readonly lines: string[] = [];
  private last: string | null = null;

  constructor(title = "Shelves", header: object = {}) {
    const slot = { type: "title", v: 1, title, updatedAt: AT, pad: "" };
    if (title !== "") this.lines.push(JSON.stringify({ ...slot, pad: " ".repeat(255 - JSON.stringify(slot).length) }));
    this.lines.push(
      JSON.stringify({
        type: "session",
        version: 3,
        id: OMP_SESSION,
        timestamp: AT,
        cwd: "/home/me/project",
        ...header,
      }),
    );
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

  get text(): string {
    return `${this.lines.join("\n")}\n`;
  }
}

export const words = (text: string): object => ({ type: "text", text });
export const picture = { type: "image", data: BLOB, mimeType: "image/png" };

/** Every kind of entry that matters to a reader. */
export function wholeOmpSession(): OmpWriter {
  const w = new OmpWriter();
  w.add("model_change", { model: "openrouter/anthropic/claude", role: "default" });
  w.add("thinking_level_change", { thinkingLevel: "high", configured: true });
  w.user([words("List the files"), picture]);
  w.answer(words("There are two"), { type: "toolCall", id: "call_1", name: "read", arguments: { path: "a" } });
  const result = { role: "toolResult", toolCallId: "call_1", toolName: "read", isError: false, timestamp: 1 };
  w.add("message", { message: { ...result, content: [picture] } });
  w.add("model_usage", { purpose: "title", provider: "openai", model: "gpt-5", usage: { input: 5, output: 1 } });
  w.add("title_change", { title: "Shelves", source: "auto" });
  w.add("reset_boundary", {});
  w.add("model_change", { model: "openai/gpt-5", role: "fallback" });
  w.user("Now the jam");
  w.answer(words("It is red"));
  return w;
}

export function randomOmpSession(random: Random, turns: number): OmpWriter {
  const w = new OmpWriter(random.chance(0.8) ? "Some title" : "Another");
  for (let n = 0; n < turns; n++) {
    if (random.chance(0.2)) w.add("reset_boundary", {});
    if (random.chance(0.2)) w.add("model_change", { model: "a/b", role: random.pick(["default", "smol"]) });
    w.user(random.chance(0.3) ? [picture] : `Question ${n}`);
    w.answer(words(`Answer ${n}`));
  }
  return w;
}
