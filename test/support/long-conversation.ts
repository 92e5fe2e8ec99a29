/** A long session as agents write them: turns of questions, calls with results, and answers in Markdown with code. */

import { headerText } from "./lines.ts";
import { Random } from "./random.ts";

const WORDS =
  "the parser reads a line and keeps where it ends so that nothing is read twice store session branch".split(" ");

/** Returns its text, which begins with a question `first`. Every fifth turn ends with `said`; the last one ends with `last words`, which stand nowhere else. */
export function longConversation(count: number, said = "", first = ""): string {
  const random = new Random(7);
  const next = (): number => random.next();
  const words = (many: number): string =>
    Array.from({ length: many }, () => WORDS[Math.floor(next() * WORDS.length)]).join(" ");
  const code = (n: number): string =>
    `export function load${n}(path: string, most = ${n}): Entry[] {\n  // ${words(6)}\n  const lines = readFileSync(path, "utf8").split("\\n");\n` +
    `  return lines.filter((line) => line.length > 0 && !line.startsWith("#")).map((line, at) => ({ at, line }));\n}\n`;
  const lines: string[] = [headerText()];
  const questions: string[] = [];
  let parentId: string | null = null;
  const push = (message: Record<string, unknown>): string => {
    const n = lines.length - 1;
    const id = (Math.imul(n + 1, 2654435761) >>> 0).toString(16).padStart(8, "0");
    const timestamp = new Date(Date.UTC(2026, 0, 24, 16) + n * 7000).toISOString();
    lines.push(JSON.stringify({ type: "message", id, parentId, timestamp, message: { ...message, timestamp: 0 } }));
    parentId = id;
    return id;
  };
  const answer = (...content: unknown[]): void => {
    const cost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0.012 };
    const usage = { input: 1200, output: 180, cacheRead: 20_000, cacheWrite: 300, totalTokens: 21_680, cost };
    const model = { api: "messages", provider: "anthropic", model: "claude-sonnet-4-5" };
    push({ role: "assistant", content, ...model, usage, stopReason: "stop" });
  };
  const call = (name: string, given: Record<string, unknown>, output: string): void => {
    const id = `call ${lines.length}`;
    answer({ type: "text", text: words(6) }, { type: "toolCall", id, name, arguments: given });
    const content = [{ type: "text", text: output }];
    push({ role: "toolResult", toolCallId: id, toolName: name, content, isError: next() < 0.1 });
  };
  const last = (): string =>
    `## Done\n\n${words(40)} with **${words(2)}**.\n\n\`\`\`ts\n${code(lines.length)}\`\`\`\n\n1. ${words(9)}\n2. ${words(7)}\n`;
  if (first !== "") push({ role: "user", content: first });
  while (lines.length <= count) {
    // One question in sixteen is asked again.
    if (questions.length > 3 && next() < 0.06) parentId = questions[questions.length - 1 - Math.floor(next() * 3)];
    questions.push(push({ role: "user", content: `Please make ${words(8)} faster.\n\n- ${words(5)}\n- ${words(6)}` }));
    for (let calls = 1 + Math.floor(next() * 6); calls > 0; calls--) {
      const path = `src/${words(1)}.ts`;
      const kind = next();
      if (kind < 0.4)
        call("bash", { command: `npm test -- ${words(2)}` }, Array.from({ length: 30 }, () => words(9)).join("\n"));
      else if (kind < 0.7) call("read", { path }, [1, 2, 3].map(code).join(""));
      else call("edit", { path, oldText: code(1), newText: code(1).replace("Entry[]", "Line[]") }, "Edited.");
    }
    answer({ type: "text", text: last() + (said !== "" && questions.length % 5 === 0 ? said : "") });
  }
  answer({ type: "text", text: "These are the last words." });
  return `${lines.join("\n")}\n`;
}
