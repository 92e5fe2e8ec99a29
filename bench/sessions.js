// Sessions as agents make them, from one seed: the same in every run.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeRandom } from "./random.js";

export const random = makeRandom(20260124);

const words = Array.from({ length: 30_000 }, () => {
  let word = "";
  for (let n = 2 + Math.floor(random() * 9); n > 0; n--)
    word += "etaoinshrdlucmfwypvbgkjqxz"[Math.floor(random() ** 2 * 26)];
  return word;
});
/** Few words are common, most are rare. */
export const word = () => words[Math.floor(words.length ** random()) - 1];

function text(length) {
  let made = "";
  while (made.length < length) made += `${word()} `;
  return made.trimEnd();
}

/** The path of a file; some paths are asked for often. */
export function makePath() {
  const folders = Array.from({ length: 1 + Math.floor(random() * 3) }, () => words[Math.floor(random() ** 3 * 60)]);
  return `src/${folders.join("/")}/${words[Math.floor(random() ** 2 * 400)]}.ts`;
}

/** Arguments of a tool call, in the shares and lengths of a real session. */
function call() {
  const kind = random();
  const of = (name, args) => ({ name, arguments: args });
  if (kind < 0.49) return of("bash", { command: `cd /home/me && ${text(20 + random() ** 3 * 300)} ${makePath()}` });
  if (kind < 0.62) return of("read", { path: makePath(), offset: Math.floor(random() * 2000), limit: 200 });
  if (kind < 0.99)
    return of("edit", { path: makePath(), oldText: text(random() ** 2 * 900), newText: text(random() ** 2 * 1500) });
  return of("write", { path: makePath(), content: text(random() ** 4 * 60_000) });
}

export const hex = (digits) => Array.from({ length: digits }, () => Math.floor(random() * 16).toString(16)).join("");

function usage() {
  const [input, output, cacheRead, cacheWrite] = [2000, 800, 50_000, 4000].map((most) => Math.floor(random() * most));
  const price = (tokens, millions) => (tokens * millions) / 1e6;
  const cost = {
    input: price(input, 3),
    output: price(output, 15),
    cacheRead: price(cacheRead, 0.3),
    cacheWrite: price(cacheWrite, 3.75),
  };
  const total = cost.input + cost.output + cost.cacheRead + cost.cacheWrite;
  const totalTokens = input + output + cacheRead + cacheWrite;
  return { input, output, cacheRead, cacheWrite, totalTokens, cost: { ...cost, total } };
}

/** Returns a session of about so many bytes. */
function session(cwd, begun, bytes) {
  const id = `01991f6e-${hex(4)}-7${hex(3)}-8${hex(3)}-${hex(12)}`;
  const lines = [JSON.stringify({ type: "session", version: 3, id, timestamp: new Date(begun).toISOString(), cwd })];
  let size = lines[0].length;
  let parentId = null;
  let called;
  for (let n = 0; size < bytes; n++) {
    const time = begun + n * 60_000;
    if (n % 3 === 1) called = { type: "toolCall", id: hex(8), ...call() };
    const content = (length) => [{ type: "text", text: text(length) }];
    const message =
      n % 3 === 0
        ? { role: "user", content: text(100 + random() * 600), timestamp: time }
        : n % 3 === 1
          ? {
              role: "assistant",
              content: [...content(200 + random() * 1500), called],
              provider: "anthropic",
              model: ["sonnet", "opus", "haiku"][Math.floor(random() * 1.5)],
              usage: usage(),
              timestamp: time,
            }
          : {
              role: "toolResult",
              toolCallId: called.id,
              toolName: called.name,
              content: content(500 + random() * 8000),
              timestamp: time,
            };
    const entry = { type: "message", id: hex(8), parentId, timestamp: new Date(time).toISOString(), message };
    parentId = entry.id;
    lines.push(JSON.stringify(entry));
    size += lines.at(-1).length;
  }
  return { id, last: parentId, text: `${lines.join("\n")}\n` };
}

/** Writes so many sessions of about so many kilobytes into a home, where Pi looks for them, too. */
export function makeSessions(home, count, kilobytes) {
  const root = join(home, ".pi", "agent", "sessions");
  const files = [];
  let bytes = 0;
  for (let i = 0; i < count; i++) {
    const cwd = `/home/me/project-${i % 100}`;
    const folder = join(root, `--home-me-project-${i % 100}--`);
    if (i < 100) mkdirSync(folder, { recursive: true });
    const begun = Date.UTC(2025, 0, 1) + Math.floor(random() * 3e10);
    const made = session(cwd, begun, kilobytes * 1000 * (0.5 + random()));
    const file = join(folder, `${new Date(begun).toISOString().replace(/[:.]/g, "-")}_${made.id}.jsonl`);
    writeFileSync(file, made.text);
    bytes += made.text.length;
    files.push({ file, id: made.id, last: made.last });
  }
  return { root, files, bytes };
}
