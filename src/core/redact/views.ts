/** Other readings of a text, with escapes, colours and encodings undone, and the source position of each character. */

import type { SecretSpan } from "./tokens.ts";

interface View {
  readonly text: string;
  /** The parts of the text around hidden characters: the rest reads as it did before. */
  readonly parts: readonly (readonly [start: number, end: number])[];
  /** The span of the original text that a span of this one came from. */
  origin(span: SecretSpan): SecretSpan;
}

/** Characters in a text that can be read in another way, and signs of Markdown within a word, which no page shows. */
const HIDING =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: escapes of terminals begin with one
  /[\\\u0000\u001b\u00ad\u200b-\u200d\u2060\ufeff\uff01-\uff5e]|%[0-9A-Fa-f]{2}|&(?:#|amp;|quot;|lt;)|(?:^|[\n"])[ \t]{0,8}\d{1,6}(?:[→\t:]|[ \t]?[│|])|[A-Za-z0-9_-](?:\*{1,3}|`{1,2}|~~)[A-Za-z0-9_-]/;
const HIDDEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the same
  /\\{1,16}(?:u\{?[0-9A-Fa-f]{4,6}\}?|x[0-9A-Fa-f]{2}|[0-3]?[0-7]{2}|[nrtbf"'`/])|\\{2,16}|\u001b\[[0-9;?]{0,32}[A-Za-z]|[\u0000\u00ad\u200b-\u200d\u2060\ufeff\uff01-\uff5e]|%[0-9A-Fa-f]{2}|&(?:#\d{1,6}|#x[0-9A-Fa-f]{1,5}|amp|quot|lt|gt);|(?<=^|[\n"])[ \t]{0,8}\d{1,6}(?:→|\t|[ \t]?[│|][ \t]|:(?=[^\d\s/]))|(?<=[A-Za-z0-9_-])(?:\*{1,3}|`{1,2}|~~)(?=[A-Za-z0-9_-])/g;
const LETTERS: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t", b: " ", f: " " };
const ENTITIES: Readonly<Record<string, string>> = { amp: "&", quot: '"', lt: "<", gt: ">" };

/** A line as a viewer of files shows it. */
const NUMBERED = /(?<=^|\n)[ \t]{0,8}\d{1,6}→/g;

/** Returns the text as it is, but for the numbers of lines that a viewer of files writes before them. */
export function stripLineNumbers(text: string): View {
  const itself: View = { text, parts: [[0, text.length]], origin: (span) => span };
  const view = /^[ \t]{0,8}\d{1,6}→/.test(text) ? plain(itself, NUMBERED) : undefined;
  return view ? { ...view, parts: [[0, view.text.length]] } : itself;
}

/** Yields the readings, each of the one before, until nothing is hidden; JSON in JSON in JSON takes three. */
export function* decodeViews(itself: View): Generator<View> {
  let last = itself;
  for (let depth = 0; depth < 4 && HIDING.test(last.text); depth++) {
    const next = plain(last);
    if (!next) return;
    yield next;
    last = next;
  }
}

function plain({ text, origin }: View, hidden = HIDDEN): View | undefined {
  const parts: string[] = [];
  /** Pairs of positions after each change: here, and there. */
  const here: number[] = [0];
  const there: number[] = [0];
  let copied = 0;
  let length = 0;
  for (const { 0: found, index } of text.matchAll(hidden)) {
    const shown = meaning(found);
    parts.push(text.slice(copied, index), shown);
    length += index - copied;
    here.push(length);
    there.push(index);
    length += shown.length;
    copied = index + found.length;
    here.push(length);
    there.push(copied);
  }
  if (copied === 0) return undefined;
  parts.push(text.slice(copied));
  const back = (at: number, isEnd: boolean): number => {
    let low = 0;
    let high = here.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (isEnd ? here[middle] < at : here[middle] <= at) low = middle;
      else high = middle - 1;
    }
    // Inside a changed character, all of it counts.
    const isInside = low % 2 === 1;
    if (isInside) return isEnd ? there[low + 1] : there[low];
    return there[low] + (at - here[low]);
  };
  const shown = parts.join("");
  return {
    text: shown,
    parts: partsAround(here, shown),
    origin: ({ start, end, kind }) => origin({ start: back(start, false), end: back(end, true), kind }),
  };
}

/** Characters before and after hidden ones that may belong to the same secret, up to the ends of their lines. */
const AROUND = 600;

function partsAround(places: readonly number[], text: string): [start: number, end: number][] {
  const parts: [number, number][] = [];
  for (const at of places.slice(1)) {
    const last = parts.at(-1);
    if (last && at + AROUND / 2 <= last[1]) continue;
    const start = text.lastIndexOf("\n", Math.max(0, at - AROUND)) + 1;
    const line = text.indexOf("\n", at + AROUND);
    const end = line < 0 ? text.length : line + 1;
    if (last && start <= last[1]) last[1] = end;
    else parts.push([start, end]);
  }
  return parts;
}

function meaning(found: string): string {
  if (found[0] === "\\") {
    const rest = found.replace(/^\\+/, "");
    if (rest === "") return "\\";
    if (rest[0] === "u" || rest[0] === "x") return character(Number.parseInt(rest.replace(/[ux{}]/g, ""), 16));
    if (/^[0-7]+$/.test(rest)) return character(Number.parseInt(rest, 8));
    return LETTERS[rest] ?? rest;
  }
  // A letter or sign in the width of an ideograph.
  if (found >= "\uff01") return found === "\ufeff" ? "" : character(found.charCodeAt(0) - 0xfee0);
  if (found[0] === "%") return character(Number.parseInt(found.slice(1), 16));
  if (found[0] !== "&") return "";
  const name = found.slice(1, -1);
  if (name[0] !== "#") return ENTITIES[name];
  return character(name[1] === "x" ? Number.parseInt(name.slice(2), 16) : Number(name.slice(1)));
}

function character(code: number): string {
  return code <= 0x10ffff ? String.fromCodePoint(code) : "\ufffd";
}

/** A stretch of base64 with its decoded text, or without one if it encodes no text. */
interface Encoded {
  readonly start: number;
  readonly end: number;
  readonly text: string | undefined;
}

/** Runs below SHORT cannot hold a secret; non-text runs above LONG_RUN are reported as unjudged. */
const SHORT = 24;
export const LONG_RUN = 512;
/** A beginning of a run; its end is walked to, because an expression without a bound needs a stack of its own. */
const RUN = /[A-Za-z0-9+/_-]{24}/g;
const VALUES = Int8Array.from({ length: 128 }, (_, code) => {
  const at = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".indexOf(String.fromCharCode(code));
  return code === 0x2d ? 62 : code === 0x5f ? 63 : at;
});
/** Bytes that text has. */
const isText = (byte: number): boolean =>
  (byte >= 0x20 && byte !== 0x7f) || (byte >= 0x09 && byte <= 0x0d) || byte === 0x1b;
const utf8 = new TextDecoder("utf-8", { fatal: true });
const utf16 = new TextDecoder("utf-16le");

/** Yields the base64 runs in a text, in one line or in lines of 40 to 76 characters. */
export function* findEncoded(text: string, least = SHORT): Generator<Encoded> {
  if (text.length < least) return;
  let start = -1;
  let end = -1;
  for (const [from, to] of runsIn(text)) {
    // Lines of the same block have the same text between them.
    const between = end >= 0 && from - end <= 4 ? text.slice(end, from) : "";
    const goesOn = end - start >= 40 && /^(?:\r?\n|\\n|\\r\\n)$/.test(between);
    if (!goesOn && end - start >= least) yield encoded(text, start, end);
    if (!goesOn) start = from;
    end = to;
  }
  if (end - start >= least) yield encoded(text, start, end);
}

function* runsIn(text: string): Generator<[start: number, end: number]> {
  for (let from = 0; ; ) {
    RUN.lastIndex = from;
    const found = RUN.exec(text);
    if (!found) return;
    from = found.index + SHORT;
    while (VALUES[text.charCodeAt(from)] >= 0) from++;
    yield [found.index, from];
  }
}

function encoded(text: string, start: number, end: number): Encoded {
  const first = bytesOfBase64(text, start, end, 24);
  // UTF-16, as PowerShell takes its commands.
  const isWide = first.length > 8 && first.every((byte, at) => (at % 2 === 1 ? byte === 0 : isText(byte)));
  if (!(isWide || beginsAsText(first))) return { start, end, text: undefined };
  try {
    const all = bytesOfBase64(text, start, end, Number.POSITIVE_INFINITY);
    if (isWide) return { start, end, text: utf16.decode(all) };
    // The last character of a cut text may be half of one.
    return { start, end, text: all.every(isText) ? utf8.decode(all) : undefined };
  } catch {
    return { start, end, text: undefined };
  }
}

/** Returns whether these bytes begin a text: no controls, and more than half of them ASCII. */
function beginsAsText(bytes: Uint8Array): boolean {
  let ascii = 0;
  for (const byte of bytes) {
    if (!isText(byte)) return false;
    if (byte < 0x80) ascii++;
  }
  return ascii * 2 > bytes.length;
}

/** Returns the first decoded bytes of a run. Skips the characters between its lines. */
function bytesOfBase64(text: string, start: number, end: number, most: number): Uint8Array {
  const bytes = new Uint8Array(Math.min(most, Math.floor(((end - start) * 3) / 4)));
  let bits = 0;
  let held = 0;
  let filled = 0;
  for (let at = start; at < end && filled < bytes.length; at++) {
    const code = text.charCodeAt(at);
    const value = VALUES[code];
    if (code === 0x5c) at++;
    if (value < 0) continue;
    held = ((held << 6) | value) & 0xffff;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes[filled++] = (held >> bits) & 0xff;
  }
  return bytes.subarray(0, filled);
}
