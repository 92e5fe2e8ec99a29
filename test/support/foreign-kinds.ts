/** The ways in which other programs change files: each is given a path and changes what is there. */

import { execFileSync, spawnSync } from "node:child_process";
import {
  appendFileSync,
  closeSync,
  ftruncateSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import type { Random } from "./random.ts";

/** The second half of a change, which comes after some requests. */
export type Later = (() => void) | undefined;

interface Kind {
  readonly change: (path: string, random: Random) => unknown;
  /** Whether it can be made so that neither size nor times tell of it. */
  readonly keepsSize?: boolean;
}

/** Whether there is a file that can be read without waiting for anybody. */
export function isFile(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

/** Writes over a part of a file, or the end of it, as programs do that do not truncate. */
function overwrite(path: string, at: number, bytes: Uint8Array, size?: number): void {
  const fd = openSync(path, "r+");
  try {
    writeSync(fd, bytes, 0, bytes.length, at);
    if (size !== undefined) ftruncateSync(fd, size);
  } finally {
    closeSync(fd);
  }
}

/** Returns where the lines of a text begin and end, without their line feeds. */
function linesIn(bytes: Buffer): { start: number; end: number }[] {
  const lines: { start: number; end: number }[] = [];
  for (let start = 0; start < bytes.length; ) {
    const feed = bytes.indexOf(0x0a, start);
    const end = feed < 0 ? bytes.length : feed;
    lines.push({ start, end });
    start = end + 1;
  }
  return lines;
}

/** Returns a line, at times the first, mostly one in the middle or at the end. */
function someLine(bytes: Buffer, random: Random): { start: number; end: number } {
  const lines = linesIn(bytes);
  if (lines.length === 0) return { start: 0, end: 0 };
  return random.chance(0.2) ? (lines.at(-1) as (typeof lines)[0]) : random.pick(lines);
}

/** Returns the text with a few letters of a word between quotes replaced by others: still JSON, as a person edits it. */
function edited(bytes: Buffer, random: Random, longer: number): Buffer {
  const { start, end } = someLine(bytes, random);
  const words = [
    ...bytes
      .subarray(start, end)
      .toString("latin1")
      .matchAll(/[a-z]{4,}/g),
  ];
  if (words.length === 0) return bytes;
  const word = random.pick(words);
  const at = start + word.index;
  const count = Math.max(1, word[0].length + longer);
  const text = Array.from({ length: count }, () => random.pick([..."xyzw"])).join("");
  return Buffer.concat([bytes.subarray(0, at), Buffer.from(text), bytes.subarray(at + word[0].length)]);
}

/** Saves a text in the file that is there, without emptying it first. */
function saveOver(path: string, bytes: Buffer): void {
  overwrite(path, 0, bytes, bytes.length);
}

function saveAtomically(path: string, bytes: Buffer): void {
  writeFileSync(`${path}.saving`, bytes, { mode: 0o600 });
  renameSync(`${path}.saving`, path);
}

/** Any text in place of another, in one of the ways in which programs save. */
function save(path: string, bytes: Buffer, random: Random): void {
  const ways = [saveOver, saveAtomically, (to: string, text: Buffer) => writeFileSync(to, text)];
  random.pick(ways)(path, bytes);
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

export const KINDS: Readonly<Record<string, Kind>> = {
  "an edit in place": {
    keepsSize: true,
    change: (path, random) => saveOver(path, edited(readFileSync(path), random, 0)),
  },
  "an edit in place, a little longer": {
    change: (path, random) => saveOver(path, edited(readFileSync(path), random, 1 + random.int(40))),
  },
  "an edit in place, a little shorter": {
    change: (path, random) => saveOver(path, edited(readFileSync(path), random, -3)),
  },
  "an edit, the file emptied and written": {
    change: (path, random) => writeFileSync(path, edited(readFileSync(path), random, random.int(20) - 3)),
  },
  "an edit, saved under another name and renamed": {
    keepsSize: true,
    change: (path, random) => saveAtomically(path, edited(readFileSync(path), random, random.pick([0, 0, 7]))),
  },
  "the same bytes, renamed into place": { change: (path) => saveAtomically(path, readFileSync(path)) },
  "the same bytes, written again": { change: (path) => writeFileSync(path, readFileSync(path)) },
  "a byte flipped": {
    keepsSize: true,
    change(path, random) {
      const bytes = readFileSync(path);
      const { start, end } = someLine(bytes, random);
      if (end > start) {
        const at = start + random.int(end - start);
        overwrite(path, at, Buffer.of(bytes[at] ^ (1 << random.int(8))));
      }
    },
  },
  "bytes of any kind written over others": {
    keepsSize: true,
    change(path, random) {
      const bytes = readFileSync(path);
      const length = Math.min(1 + random.int(60), bytes.length);
      const noise = Buffer.from(Array.from({ length }, () => random.int(256)));
      overwrite(path, random.int(bytes.length - length + 1), noise);
    },
  },
  "zeros in the middle": {
    keepsSize: true,
    change(path, random) {
      const { length } = readFileSync(path);
      const count = Math.min(1 + random.int(200), length);
      overwrite(path, random.int(length - count + 1), Buffer.alloc(count));
    },
  },
  "zeros at the end": { change: (path, random) => appendFileSync(path, Buffer.alloc(1 + random.int(300))) },
  "two lines swapped": {
    keepsSize: true,
    change(path, random) {
      const bytes = readFileSync(path);
      const [one, other] = [someLine(bytes, random), someLine(bytes, random)].sort((a, b) => a.start - b.start);
      if (one.start === other.start) return;
      const parts = [
        bytes.subarray(0, one.start),
        bytes.subarray(other.start, other.end),
        bytes.subarray(one.end, other.start),
        bytes.subarray(one.start, one.end),
        bytes.subarray(other.end),
      ];
      saveOver(path, Buffer.concat(parts));
    },
  },
  "a line twice": {
    change(path, random) {
      const bytes = readFileSync(path);
      const { start, end } = someLine(bytes, random);
      const line = Buffer.concat([bytes.subarray(start, end), Buffer.from("\n")]);
      if (random.chance(0.5)) appendFileSync(path, line);
      else save(path, Buffer.concat([bytes.subarray(0, start), line, bytes.subarray(start)]), random);
    },
  },
  "a line removed": {
    change(path, random) {
      const bytes = readFileSync(path);
      const { start, end } = someLine(bytes, random);
      save(path, Buffer.concat([bytes.subarray(0, start), bytes.subarray(end + 1)]), random);
    },
  },
  "a line feed within a line": {
    keepsSize: true,
    change(path, random) {
      const bytes = readFileSync(path);
      const { start, end } = someLine(bytes, random);
      if (end === start) return;
      const at = start + random.int(end - start);
      if (random.chance(0.7)) overwrite(path, at, Buffer.from("\n"));
      else saveOver(path, Buffer.concat([bytes.subarray(0, at), Buffer.from("\n"), bytes.subarray(at)]));
    },
  },
  "a line that looks like a reply": {
    change(path, random) {
      const bytes = readFileSync(path);
      const { start } = someLine(bytes, random);
      if (random.chance(0.3)) appendFileSync(path, `${REPLY}\n`);
      else
        save(path, Buffer.concat([bytes.subarray(0, start), Buffer.from(`${REPLY}\n`), bytes.subarray(start)]), random);
    },
  },
  "a line that looks like a reply over the middle of another": {
    keepsSize: true,
    change(path, random) {
      const bytes = readFileSync(path);
      const text = Buffer.from(`\n${REPLY}\n`);
      const long = linesIn(bytes).filter(({ start, end }) => end - start > text.length + 2);
      if (long.length === 0) return;
      const { start, end } = random.pick(long);
      overwrite(path, start + 1 + random.int(end - start - text.length - 1), text);
    },
  },
  "cut to nothing": { change: (path) => truncateSync(path, 0) },
  "cut anywhere": { change: (path, random) => truncateSync(path, random.int(readFileSync(path).length + 1)) },
  "cut after a line": {
    change(path, random) {
      truncateSync(path, Math.min(readFileSync(path).length, someLine(readFileSync(path), random).end + 1));
    },
  },
  "cut, and grown again": {
    change(path, random) {
      const bytes = readFileSync(path);
      truncateSync(path, someLine(bytes, random).start);
      appendFileSync(path, `${foreignLine(random)}\n`.repeat(1 + random.int(3)));
    },
  },
  "an entry appended": { change: (path, random) => appendFileSync(path, `${foreignLine(random)}\n`) },
  "an entry appended in two halves": {
    change(path, random) {
      const line = `${foreignLine(random)}\n`;
      const cut = 1 + random.int(line.length - 1);
      appendFileSync(path, line.slice(0, cut));
      return () => {
        if (isFile(path)) appendFileSync(path, line.slice(cut));
      };
    },
  },
  "half an entry appended": {
    change(path, random) {
      const line = foreignLine(random);
      appendFileSync(path, line.slice(0, 1 + random.int(line.length - 1)));
    },
  },
  "the first line edited": {
    keepsSize: true,
    change(path, random) {
      const bytes = readFileSync(path);
      const end = Math.max(0, bytes.indexOf(0x0a));
      const first = edited(bytes.subarray(0, end), random, random.chance(0.5) ? 0 : random.int(20));
      saveOver(path, Buffer.concat([first, bytes.subarray(end)]));
    },
  },
  "the first line removed": {
    change(path, random) {
      const bytes = readFileSync(path);
      save(path, bytes.subarray(bytes.indexOf(0x0a) + 1), random);
    },
  },
  removed: { change: (path) => unlinkSync(path) },
  "removed, and put back": {
    change(path) {
      const bytes = readFileSync(path);
      unlinkSync(path);
      return () => {
        if (!lstatSync(path, { throwIfNoEntry: false })) writeFileSync(path, bytes, { mode: 0o600 });
      };
    },
  },
  "removed, and another one made": {
    change(path, random) {
      const bytes = readFileSync(path);
      unlinkSync(path);
      writeFileSync(path, edited(bytes, random, 5), { mode: 0o600 });
    },
  },
  "a link in its place": {
    change(path) {
      renameSync(path, `${path}.elsewhere`);
      symlinkSync(`${path}.elsewhere`, path);
    },
  },
  "a folder in its place": {
    change(path) {
      unlinkSync(path);
      mkdirSync(path);
    },
  },
  "a pipe in its place": {
    change(path) {
      unlinkSync(path);
      spawnSync("mkfifo", [path]);
    },
  },
};

/** Makes one change; with `keepTimes` the file's times are set back to what they were. */
export function changeFile(name: string, path: string, random: Random, keepTimes: boolean): Later {
  const { change, keepsSize } = KINDS[name];
  if (!keepTimes || !keepsSize) return laterOf(change(path, random));
  const reference = `${path}.times`;
  // To the nanosecond, which Node cannot set.
  execFileSync("touch", ["-r", path, reference]);
  const later = laterOf(change(path, random));
  execFileSync("touch", ["-r", reference, path]);
  rmSync(reference);
  return later;
}

function laterOf(result: unknown): Later {
  return typeof result === "function" ? (result as () => void) : undefined;
}

/** Puts bytes at a path, whatever is there, in one of the ways in which programs save. */
export function putBack(path: string, bytes: Buffer, random: Random): void {
  if (isFile(path)) return save(path, bytes, random);
  rmSync(path, { recursive: true, force: true });
  writeFileSync(path, bytes, { mode: 0o600 });
}
