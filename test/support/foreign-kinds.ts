/** The ways in which other programs change files: each gets a path and changes the file there. */

import { execFileSync, spawnSync } from "node:child_process";
import * as fs from "node:fs";
import type { Random } from "./random.ts";

/** The second half of a change, which comes after some requests. */
export type Later = (() => void) | undefined;

interface Kind {
  readonly change: (path: string, random: Random) => unknown;
  /** True if the change can leave both size and times unchanged. */
  readonly keepsSize?: boolean;
}

/** Returns whether there is a file whose reading never blocks. */
export function isFile(path: string): boolean {
  return fs.lstatSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

/** Writes over a part of a file, or the end of it, as programs do that do not truncate. */
function overwrite(path: string, at: number, bytes: Uint8Array, size?: number): void {
  const fd = fs.openSync(path, "r+");
  try {
    fs.writeSync(fd, bytes, 0, bytes.length, at);
    if (size !== undefined) fs.ftruncateSync(fd, size);
  } finally {
    fs.closeSync(fd);
  }
}

/** The bounds of a line in a text, without its line feed. */
interface Line {
  readonly start: number;
  readonly end: number;
}

function linesIn(bytes: Buffer): Line[] {
  const lines: Line[] = [];
  for (let start = 0; start < bytes.length; ) {
    const feed = bytes.indexOf(0x0a, start);
    const end = feed < 0 ? bytes.length : feed;
    lines.push({ start, end });
    start = end + 1;
  }
  return lines;
}

/** Returns a line, at times the first, mostly one in the middle or at the end. */
function someLine(bytes: Buffer, random: Random): Line {
  const lines = linesIn(bytes);
  if (lines.length === 0) return { start: 0, end: 0 };
  return random.chance(0.2) ? (lines.at(-1) as Line) : random.pick(lines);
}

/** Returns the text with other bytes from one place to another. */
function splice(bytes: Buffer, start: number, end: number, text: string | Uint8Array): Buffer {
  return Buffer.concat([bytes.subarray(0, start), Buffer.from(text as string), bytes.subarray(end)]);
}

/** Returns the text with a few letters of a word between quotes replaced by others: still JSON, as a person edits it. */
function edited(bytes: Buffer, random: Random, longer: number): Buffer {
  const { start, end } = someLine(bytes, random);
  const text = bytes.subarray(start, end).toString("latin1");
  const words = [...text.matchAll(/[a-z]{4,}/g)];
  if (words.length === 0) return bytes;
  const word = random.pick(words);
  const at = start + word.index;
  const count = Math.max(1, word[0].length + longer);
  const letters = Array.from({ length: count }, () => random.pick([..."xyzw"])).join("");
  return splice(bytes, at, at + word[0].length, letters);
}

/** Saves a text in the file that is there, without emptying it first. */
function saveOver(path: string, bytes: Buffer): void {
  overwrite(path, 0, bytes, bytes.length);
}

function saveAtomically(path: string, bytes: Buffer): void {
  fs.writeFileSync(`${path}.saving`, bytes, { mode: 0o600 });
  fs.renameSync(`${path}.saving`, path);
}

function saveAnew(path: string, bytes: Buffer): void {
  fs.writeFileSync(path, bytes);
}

/** Puts any text in place of another, in one of the ways in which programs save. */
function save(path: string, bytes: Buffer, random: Random): void {
  random.pick([saveOver, saveAtomically, saveAnew])(path, bytes);
}

/** A line that a host would take for the reply to a request of its own, were it to leave the server as it is. */
const REPLY = '{"jsonrpc":"2.0","id":"w7","result":{"entries":[],"leafId":null}}';

let foreign = 0;

/** An entry as a program appends it that knows no lock. */
function foreignLine(random: Random): string {
  const id = `theirs-${++foreign}`;
  const content = `foreign ${random.hex(random.chance(0.1) ? 3000 : 30)}`;
  const message = { role: random.pick(["user", "assistant"]), content };
  return JSON.stringify({ type: "message", id, parentId: null, timestamp: "2026-01-24T16:22:26.831Z", message });
}

/** A change that knows the bytes of the file, and some line of it. */
const knowing =
  (change: (path: string, random: Random, bytes: Buffer, line: Line) => unknown) =>
  (path: string, random: Random): unknown => {
    const bytes = fs.readFileSync(path);
    return change(path, random, bytes, someLine(bytes, random));
  };

/** An edit that makes the text so much longer, and is saved in a way. */
const editing = (longer: (random: Random) => number, saveIn: (path: string, bytes: Buffer) => void) =>
  knowing((path, random, bytes) => saveIn(path, edited(bytes, random, longer(random))));

/** Bytes of some kind over others of the same number. */
const noise = (most: number, byte: (random: Random) => number) =>
  knowing((path, random, bytes) => {
    const length = Math.min(1 + random.int(most), bytes.length);
    overwrite(path, random.int(bytes.length - length + 1), Buffer.from(Array.from({ length }, () => byte(random))));
  });

export const KINDS: Readonly<Record<string, Kind>> = {
  "an edit in place": { keepsSize: true, change: editing(() => 0, saveOver) },
  "an edit in place, a little longer": { change: editing((random) => 1 + random.int(40), saveOver) },
  "an edit in place, a little shorter": { change: editing(() => -3, saveOver) },
  "an edit, the file emptied and written": { change: editing((random) => random.int(20) - 3, saveAnew) },
  "an edit, saved under another name and renamed": {
    keepsSize: true,
    change: editing((random) => random.pick([0, 0, 7]), saveAtomically),
  },
  "the same bytes, renamed into place": { change: knowing((path, _, bytes) => saveAtomically(path, bytes)) },
  "the same bytes, written again": { change: knowing((path, _, bytes) => saveAnew(path, bytes)) },
  "a byte flipped": {
    keepsSize: true,
    change: knowing((path, random, bytes, { start, end }) => {
      if (end === start) return;
      const at = start + random.int(end - start);
      overwrite(path, at, Buffer.of(bytes[at] ^ (1 << random.int(8))));
    }),
  },
  "bytes of any kind written over others": { keepsSize: true, change: noise(60, (random) => random.int(256)) },
  "zeros in the middle": { keepsSize: true, change: noise(200, () => 0) },
  "zeros at the end": { change: (path, random) => fs.appendFileSync(path, Buffer.alloc(1 + random.int(300))) },
  "two lines swapped": {
    keepsSize: true,
    change: knowing((path, random, bytes, line) => {
      const [one, other] = [line, someLine(bytes, random)].sort((a, b) => a.start - b.start);
      if (one.start === other.start) return;
      const [first, second] = [one, other].map(({ start, end }) => bytes.subarray(start, end));
      saveOver(path, splice(splice(bytes, other.start, other.end, first), one.start, one.end, second));
    }),
  },
  "a line twice": {
    change: knowing((path, random, bytes, { start, end }) => {
      const line = Buffer.concat([bytes.subarray(start, end), Buffer.from("\n")]);
      if (random.chance(0.5)) fs.appendFileSync(path, line);
      else save(path, splice(bytes, start, start, line), random);
    }),
  },
  "a line removed": {
    change: knowing((path, random, bytes, { start, end }) => save(path, splice(bytes, start, end + 1, ""), random)),
  },
  "a line feed within a line": {
    keepsSize: true,
    change: knowing((path, random, bytes, { start, end }) => {
      if (end === start) return;
      const at = start + random.int(end - start);
      if (random.chance(0.7)) overwrite(path, at, Buffer.from("\n"));
      else saveOver(path, splice(bytes, at, at, "\n"));
    }),
  },
  "a line that looks like a reply": {
    change: knowing((path, random, bytes, { start }) => {
      if (random.chance(0.3)) fs.appendFileSync(path, `${REPLY}\n`);
      else save(path, splice(bytes, start, start, `${REPLY}\n`), random);
    }),
  },
  "a line that looks like a reply over the middle of another": {
    keepsSize: true,
    change: knowing((path, random, bytes) => {
      const text = Buffer.from(`\n${REPLY}\n`);
      const long = linesIn(bytes).filter(({ start, end }) => end - start > text.length + 2);
      if (long.length === 0) return;
      const { start, end } = random.pick(long);
      overwrite(path, start + 1 + random.int(end - start - text.length - 1), text);
    }),
  },
  "cut to nothing": { change: (path) => fs.truncateSync(path, 0) },
  "cut anywhere": { change: knowing((path, random, { length }) => fs.truncateSync(path, random.int(length + 1))) },
  "cut after a line": {
    change: knowing((path, _, { length }, { end }) => fs.truncateSync(path, Math.min(length, end + 1))),
  },
  "cut, and grown again": {
    change: knowing((path, random, _, { start }) => {
      fs.truncateSync(path, start);
      fs.appendFileSync(path, `${foreignLine(random)}\n`.repeat(1 + random.int(3)));
    }),
  },
  "an entry appended": { change: (path, random) => fs.appendFileSync(path, `${foreignLine(random)}\n`) },
  "an entry appended in two halves": {
    change(path, random) {
      const line = `${foreignLine(random)}\n`;
      const cut = 1 + random.int(line.length - 1);
      fs.appendFileSync(path, line.slice(0, cut));
      return () => {
        if (isFile(path)) fs.appendFileSync(path, line.slice(cut));
      };
    },
  },
  "half an entry appended": {
    change(path, random) {
      const line = foreignLine(random);
      fs.appendFileSync(path, line.slice(0, 1 + random.int(line.length - 1)));
    },
  },
  "the first line edited": {
    keepsSize: true,
    change: knowing((path, random, bytes) => {
      const end = Math.max(0, bytes.indexOf(0x0a));
      const first = edited(bytes.subarray(0, end), random, random.chance(0.5) ? 0 : random.int(20));
      saveOver(path, splice(bytes, 0, end, first));
    }),
  },
  "the first line removed": {
    change: knowing((path, random, bytes) => save(path, bytes.subarray(bytes.indexOf(0x0a) + 1), random)),
  },
  removed: { change: (path) => fs.unlinkSync(path) },
  "removed, and put back": {
    change: knowing((path, _, bytes) => {
      fs.unlinkSync(path);
      return () => {
        if (!fs.lstatSync(path, { throwIfNoEntry: false })) fs.writeFileSync(path, bytes, { mode: 0o600 });
      };
    }),
  },
  "removed, and another one made": {
    change: knowing((path, random, bytes) => {
      fs.unlinkSync(path);
      fs.writeFileSync(path, edited(bytes, random, 5), { mode: 0o600 });
    }),
  },
  "a link in its place": {
    change(path) {
      fs.renameSync(path, `${path}.elsewhere`);
      fs.symlinkSync(`${path}.elsewhere`, path);
    },
  },
  "a folder in its place": {
    change(path) {
      fs.unlinkSync(path);
      fs.mkdirSync(path);
    },
  },
  "a pipe in its place": {
    change(path) {
      fs.unlinkSync(path);
      spawnSync("mkfifo", [path]);
    },
  },
};

/** Makes one change; with `keepTimes` the file's times are set back. */
export function changeFile(name: string, path: string, random: Random, keepTimes: boolean): Later {
  const { change, keepsSize } = KINDS[name];
  if (!keepTimes || !keepsSize) return laterOf(change(path, random));
  const reference = `${path}.times`;
  // To the nanosecond, which Node cannot set.
  execFileSync("touch", ["-r", path, reference]);
  const later = laterOf(change(path, random));
  execFileSync("touch", ["-r", reference, path]);
  fs.rmSync(reference);
  return later;
}

function laterOf(result: unknown): Later {
  return typeof result === "function" ? (result as () => void) : undefined;
}

/** Puts bytes at a path, in place of any file there, in one of the ways in which programs save. */
export function putBack(path: string, bytes: Buffer, random: Random): void {
  if (isFile(path)) return save(path, bytes, random);
  fs.rmSync(path, { recursive: true, force: true });
  fs.writeFileSync(path, bytes, { mode: 0o600 });
}
