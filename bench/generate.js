// Session files for measuring: the same bytes for the same arguments, on every machine.
import { closeSync, openSync, writeSync } from "node:fs";

const WORDS =
  'the parser reads a line and keeps where it ends so that nothing is read twice "quoted" a\\b\n\tindented'.split(" ");

/** A generator of numbers in [0, 1) that gives the same ones for the same seed. */
export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Mean bytes of an entry: heavy-tailed tool results as real sessions have them, or lean ones. */
const MEAN_TEXT = { realistic: 2500, lean: 350 };

/**
 * Writes a session of `count` entries: turns of user, assistant with a tool call, tool result, assistant; a branch
 * now and then, and a compaction every 20,000 entries.
 */
export function writeSession(file, count, kind = "realistic", seed = 1) {
  const next = random(seed);
  const text = (mean) => {
    const length = Math.min(200_000, 20 + Math.floor(-Math.log(1 - next()) * mean * (next() < 0.05 ? 5 : 0.8)));
    let made = "";
    while (made.length < length) made += `${WORDS[Math.floor(next() * WORDS.length)]} `;
    return made;
  };
  const mean = MEAN_TEXT[kind];
  const id = (n) => (Math.imul(n + 1, 2654435761) >>> 0).toString(16).padStart(8, "0");
  const fd = openSync(file, "w");
  let pending = `${JSON.stringify({ type: "session", version: 3, id: `bench-${kind}-${count}`, timestamp: "2026-01-01T00:00:00.000Z", cwd: process.cwd() })}\n`;
  let parent = null;
  const usage = {
    input: 1200,
    output: 80,
    cacheRead: 900,
    cacheWrite: 0,
    totalTokens: 2180,
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0.01 },
  };
  for (let n = 0; n < count; n++) {
    const base = {
      type: "message",
      id: id(n),
      parentId: parent,
      timestamp: new Date(1767225600000 + n * 1000).toISOString(),
    };
    const assistant = (content, stopReason) => ({
      role: "assistant",
      content,
      api: "messages",
      provider: "anthropic",
      model: "claude-sonnet-4-5",
      usage,
      stopReason,
      timestamp: 1767225600000 + n,
    });
    let entry;
    if (n > 0 && n % 20_000 === 0)
      entry = { ...base, type: "compaction", summary: text(mean), firstKeptEntryId: parent, tokensBefore: 150_000 };
    else if (n % 4 === 0)
      entry = { ...base, message: { role: "user", content: text(mean / 5), timestamp: 1767225600000 + n } };
    else if (n % 4 === 1)
      entry = {
        ...base,
        message: assistant(
          [
            { type: "text", text: text(mean / 4) },
            { type: "toolCall", id: `call_${n}`, name: "read", arguments: { path: `src/file${n}.ts` } },
          ],
          "toolUse",
        ),
      };
    else if (n % 4 === 2)
      entry = {
        ...base,
        message: {
          role: "toolResult",
          toolCallId: `call_${n - 1}`,
          toolName: "read",
          content: [{ type: "text", text: text(mean * 2.2) }],
          isError: false,
          timestamp: 1767225600000 + n,
        },
      };
    else entry = { ...base, message: assistant([{ type: "text", text: text(mean / 2) }], "stop") };
    pending += `${JSON.stringify(entry)}\n`;
    // Sometimes a turn is tried again from its beginning.
    parent = n % 4 === 3 && next() < 0.02 && n > 8 ? id(n - 4) : id(n);
    if (pending.length > 1 << 20) {
      writeSync(fd, pending);
      pending = "";
    }
  }
  writeSync(fd, pending);
  closeSync(fd);
}
