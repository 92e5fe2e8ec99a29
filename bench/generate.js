// Session files for measuring: the same bytes for the same arguments, on every machine.
//
//   node bench/generate.js <shape> <entries> <file>     shapes: see SHAPES
import { closeSync, openSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";

const WORDS =
  'the parser reads a line and keeps where it ends so that nothing is read twice "quoted" a\\b\n\tindented'.split(" ");

/** A generator of numbers in [0, 1) that gives the same ones for the same seed. */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const START = 1767225600000;
const time = (n) => new Date(START + n * 1000).toISOString();

/** The id of the n-th entry: eight hex digits, no two the same. */
export const makeId = (n) => (Math.imul(n + 1, 2654435761) >>> 0).toString(16).padStart(8, "0");

/** The usage of an answer, as Pi writes it. */
export const USAGE = {
  input: 1200,
  output: 80,
  cacheRead: 900,
  cacheWrite: 0,
  totalTokens: 2180,
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0.01 },
};

/**
 * Turns of user, assistant with a tool call, tool result, assistant; one in fifty begins again from the turn before.
 * `mean` characters of text, in results with a heavy tail; a compaction every `compactEvery` entries that keeps the
 * last turns.
 */
function* conversation(count, next, mean, compactEvery) {
  const text = (about) => {
    const length = Math.min(200_000, 20 + Math.floor(-Math.log(1 - next()) * about * (next() < 0.05 ? 5 : 0.8)));
    let made = "";
    while (made.length < length) made += `${WORDS[Math.floor(next() * WORDS.length)]} `;
    return made;
  };
  let parent = null;
  for (let n = 0; n < count; n++) {
    const base = { type: "message", id: makeId(n), parentId: parent, timestamp: time(n) };
    const assistant = (content, stopReason) => ({
      role: "assistant",
      content,
      api: "messages",
      provider: "anthropic",
      model: "claude-sonnet-4-5",
      usage: USAGE,
      stopReason,
      timestamp: START + n,
    });
    if (n > 0 && n % compactEvery === 0)
      yield {
        ...base,
        type: "compaction",
        summary: text(mean),
        firstKeptEntryId: makeId(Math.max(0, n - 16)),
        tokensBefore: 150_000,
      };
    else if (n % 4 === 0) yield { ...base, message: { role: "user", content: text(mean / 5), timestamp: START + n } };
    else if (n % 4 === 1) {
      const call = { type: "toolCall", id: `call_${n}`, name: "read", arguments: { path: `src/file${n}.ts` } };
      yield { ...base, message: assistant([{ type: "text", text: text(mean / 4) }, call], "toolUse") };
    } else if (n % 4 === 2) {
      const content = [{ type: "text", text: text(mean * 2.2) }];
      const role = { role: "toolResult", toolCallId: `call_${n - 1}`, toolName: "read" };
      yield { ...base, message: { ...role, content, isError: false, timestamp: START + n } };
    } else yield { ...base, message: assistant([{ type: "text", text: text(mean / 2) }], "stop") };
    parent = n % 4 === 3 && next() < 0.02 && n % compactEvery > 8 ? makeId(n - 4) : makeId(n);
  }
}

const user = (n, parentId, content) => ({
  type: "message",
  id: makeId(n),
  parentId,
  timestamp: time(n),
  message: { role: "user", content, timestamp: START + n },
});

/** Entries of a session by its shape; `count` is of entries. */
const SHAPES = {
  /** About 2.5 KB an entry, as coding sessions are: long tool results, compacted now and then. */
  realistic: (count, next) => conversation(count, next, 2500, 400),
  /** About 0.65 KB an entry. */
  lean: (count, next) => conversation(count, next, 350, 400),
  /** Lean and never compacted: all of it is context. */
  uncompacted: (count, next) => conversation(count, next, 350, Number.POSITIVE_INFINITY),
  /** Realistic and never compacted. */
  whole: (count, next) => conversation(count, next, 2500, Number.POSITIVE_INFINITY),
  /** One line of `count` MiB between two short ones. */
  *giant(count) {
    yield user(0, null, "before");
    yield user(1, makeId(0), "x".repeat(count << 20));
    yield user(2, makeId(1), "after");
  },
  /** An extension's entries, 25 to each message. */
  *custom(count) {
    for (let n = 0; n < count; n++) {
      const parentId = n === 0 ? null : makeId(n - 1);
      if (n % 25 === 0) yield user(n, parentId, `turn ${n}`);
      else yield { type: "custom", id: makeId(n), parentId, timestamp: time(n), customType: "tick", data: { n } };
    }
  },
  /** Screenshots of 200 KB. */
  *images(count, next) {
    const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const piece = Array.from({ length: 4096 }, () => letters[Math.floor(next() * 64)]).join("");
    for (let n = 0; n < count; n++) {
      const image = { type: "image", data: piece.repeat(50), mimeType: "image/png" };
      yield user(n, n === 0 ? null : makeId(n - 1), [{ type: "text", text: `look ${n}` }, image]);
    }
  },
  /** One path. */
  *deep(count) {
    for (let n = 0; n < count; n++) yield user(n, n === 0 ? null : makeId(n - 1), `say ${n}`);
  },
  /** All entries below one. */
  *wide(count) {
    for (let n = 0; n < count; n++) yield user(n, n === 0 ? null : makeId(0), `say ${n}`);
  },
  /** One in a hundred names a parent that is not there. */
  *broken(count) {
    for (let n = 0; n < count; n++)
      yield user(n, n === 0 ? null : n % 100 === 99 ? "deadbeef" : makeId(n - 1), `say ${n}`);
  },
};

/** Writes a session of a shape. */
export function writeSession(file, count, shape = "realistic", seed = 1) {
  if (!SHAPES[shape]) throw new Error(`There is no shape ${shape}; there are ${Object.keys(SHAPES).join(", ")}.`);
  const fd = openSync(file, "w");
  const id = `bench-${shape}-${count}${seed === 1 ? "" : `-${seed}`}`;
  const header = { type: "session", version: 3, id, timestamp: "2026-01-01T00:00:00.000Z", cwd: process.cwd() };
  let pending = `${JSON.stringify(header)}\n`;
  for (const entry of SHAPES[shape](count, random(seed))) {
    pending += `${JSON.stringify(entry)}\n`;
    if (pending.length > 1 << 20) {
      writeSync(fd, pending);
      pending = "";
    }
  }
  writeSync(fd, pending);
  closeSync(fd);
}

/** Writes a session of three entries; the second has so many bytes, which may be more than a string can hold. */
export function writeLongLine(file, bytes) {
  const fd = openSync(file, "w");
  const header = {
    type: "session",
    version: 3,
    id: "bench-line",
    timestamp: "2026-01-01T00:00:00.000Z",
    cwd: process.cwd(),
  };
  const [before, after] = JSON.stringify(user(1, makeId(0), "|")).split("|");
  writeSync(fd, `${JSON.stringify(header)}\n${JSON.stringify(user(0, null, "before"))}\n${before}`);
  const block = Buffer.alloc(1 << 24, "so many words of text ");
  for (let left = bytes; left > 0; left -= block.length) writeSync(fd, block.subarray(0, Math.min(left, block.length)));
  writeSync(fd, `${after}\n${JSON.stringify(user(2, makeId(1), "after"))}\n`);
  closeSync(fd);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const [shape, count, file] = process.argv.slice(2);
  writeSession(file, Number(count), shape);
}
