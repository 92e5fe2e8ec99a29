/** Bytes that a text writes as numbers: in hex or decimal, in one piece, with signs between, or as the lines of a dump. */

import { findMatches } from "./tokens.ts";

/** A stretch of numbers with its decoded text. */
interface Dump {
  readonly text: string;
  /** Returns the span in the original of a span of this one. */
  origin(start: number, end: number): { readonly start: number; readonly end: number };
}

/** Fewest bytes that are read. */
const LEAST = 8;
const HEX = /(?<![0-9A-Za-z])(?:0x)?[0-9a-fA-F]{16}/g;
/** A line feed between lines of the same run. */
const WRAP = /\r?\n(?=[0-9a-fA-F]{2,}(?:\r?\n|$))/y;
/** Bytes with signs between: as C, Go, Python, MAC addresses and `od` write them. */
const BYTES =
  /(?<![0-9A-Za-z])(?:0x)?[0-9a-fA-F]{2}(?:(?:, ?|[ :-]|,?\r?\n[ \t]{0,16})(?:0x)?[0-9a-fA-F]{2}){7,16384}(?![0-9A-Za-z])/g;
const DECIMAL = /(?<![0-9A-Za-z.])\d{2,3}(?:,\s{0,16}\d{2,3}){7,16384}(?![0-9A-Za-z.])/g;
/** A line of a dump: its place, and groups of bytes. The characters after these repeat them. */
const LINE =
  /(?:^|\n)[ \t>|]{0,8}(?:0x)?([0-9a-fA-F]{6,16}):?[ \t]{1,4}((?:[0-9a-fA-F]{2}){1,8}(?:[ \t]{1,2}(?:[0-9a-fA-F]{2}){1,8}){0,32})(?![0-9A-Za-z])[^\n]{0,80}/g;

/** Yields the dumps in a text, if all of their content, or each line, may be text. */
export function* findDumps(text: string): Generator<Dump> {
  yield* linesOf(text);
  for (let from = 0; ; ) {
    HEX.lastIndex = from;
    const found = HEX.exec(text);
    if (!found) break;
    const start = found.index;
    from = start + found[0].length;
    for (;;) {
      while (isHex(text.charCodeAt(from))) from++;
      WRAP.lastIndex = from;
      const wrap = WRAP.exec(text);
      if (!wrap) break;
      from += wrap[0].length;
    }
    const digits = text.slice(start, from).replace(/^0x|\s/g, "");
    if (digits.length % 2 === 0) yield* whole(start, from, bytesOf(digits));
  }
  for (const { 0: found, index } of findMatches(BYTES, text))
    yield* whole(index, index + found.length, bytesOf(found.replace(/0x|[^0-9a-fA-F]/g, "")));
  for (const { 0: found, index } of findMatches(DECIMAL, text))
    yield* whole(index, index + found.length, found.split(",").map(Number));
}

const isHex = (code: number): boolean =>
  (code >= 0x30 && code <= 0x39) || (code >= 0x41 && code <= 0x46) || (code >= 0x61 && code <= 0x66);

function bytesOf(digits: string): number[] {
  const bytes: number[] = [];
  for (let at = 0; at + 1 < digits.length; at += 2) bytes.push(Number.parseInt(digits.slice(at, at + 2), 16));
  return bytes;
}

const isText = (byte: number): boolean => (byte >= 0x20 && byte < 0x7f) || (byte >= 0x09 && byte <= 0x0d) || byte === 0;

function* whole(start: number, end: number, bytes: readonly number[]): Generator<Dump> {
  if (bytes.length >= LEAST && bytes.every(isText)) yield { text: textOf(bytes), origin: () => ({ start, end }) };
}

function textOf(bytes: readonly number[]): string {
  let text = "";
  for (const byte of bytes) if (byte !== 0) text += isText(byte) ? String.fromCharCode(byte) : "\n";
  return text;
}

function* linesOf(text: string): Generator<Dump> {
  let inner = "";
  let past = -1;
  let lines: { readonly at: number; readonly start: number; readonly end: number }[] = [];
  function* block(): Generator<Dump> {
    const of = lines;
    const last = (at: number): number =>
      Math.max(
        0,
        of.findLastIndex((line) => line.at <= at),
      );
    const origin = (start: number, end: number) => ({ start: of[last(start)].start, end: of[last(end - 1)].end });
    if (inner.length >= LEAST) yield { text: inner, origin };
    inner = "";
    lines = [];
  }
  for (const { 0: found, 2: groups, index } of findMatches(LINE, text)) {
    if (index !== past) yield* block();
    const start = index + (found[0] === "\n" ? 1 : 0);
    past = index + found.length;
    lines.push({ at: inner.length, start, end: past });
    inner += textOf(bytesOf(groups.replace(/[ \t]/g, "")));
  }
  yield* block();
}
