/** JSON as bytes: values and members of a text are found and checked without building them. */

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** Byte offsets into the text that was searched, as all positions here are. */
export interface Range {
  readonly start: number;
  readonly end: number;
}

/** One member of an object, with the range of its value. */
export interface Member extends Range {
  readonly name: string;
  /** Start of the member's name, at its quote. */
  readonly nameStart: number;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

/** A text with more characters than a string of this runtime holds: V8 has 536,870,888. Its bytes can be sent. */
export class TextTooLong extends Error {
  readonly size: number;

  constructor(size: number) {
    super(`A text of ${size} bytes is longer than a string can be here.`);
    this.size = size;
  }
}

/** Returns the text of `bytes[start, end)`. Throws a TypeError when the bytes are not UTF-8, and TextTooLong. */
export function decodeText(bytes: Uint8Array, start = 0, end = bytes.length): string {
  try {
    return utf8.decode(start === 0 && end === bytes.length ? bytes : bytes.subarray(start, end));
  } catch (error) {
    throw (error as { code?: unknown }).code === "ERR_STRING_TOO_LONG" ? new TextTooLong(end - start) : error;
  }
}

export function toBytes(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Returns the value of a JSON text. Throws what JSON.parse throws, or a TypeError when it is not UTF-8. */
export function parse(bytes: Uint8Array, start = 0, end = bytes.length): unknown {
  return parseText(decodeText(bytes, start, end));
}

/**
 * True if JSON.parse mistakes a name for another one, as V8 of Node 24 (13.6) and 26 does. V8 expects the names of an
 * earlier object that began in the same way. If an escaped name is as long as the expected one, it compares the
 * expected name with the text before its escapes are resolved. So after an object with the name `\`, it reads a quote
 * as that name; after the name `\u00`, it reads `type`, written as "\u0074ype", as that name.
 */
const MISREADS_NAMES = (() => {
  JSON.parse('{"pi-session-server":1,"\\\\":1}');
  return !('"' in JSON.parse('{"pi-session-server":1,"\\"":1}'));
})();

/** Returns the value of a JSON text, with the names that it has. Throws what JSON.parse throws. */
export function parseText(text: string): unknown {
  const value: unknown = JSON.parse(text);
  // A mistaken name has a backslash: if the text or all names have none, the value is right.
  if (!MISREADS_NAMES || !text.includes("\\") || !hasBackslashedName(value)) return value;
  return valueOfKnown(toBytes(text));
}

/** Returns the value of a JSON text; undefined if it is none. */
export function tryParse(bytes: Uint8Array, start = 0, end = bytes.length): unknown {
  try {
    return parse(bytes, start, end);
  } catch {
    return undefined;
  }
}

/** Does the same as {@link tryParse} with a text. */
export function tryParseText(text: string): unknown {
  try {
    return parseText(text);
  } catch {
    return undefined;
  }
}

function hasBackslashedName(value: unknown): boolean {
  const open = [value];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (typeof next !== "object" || next === null) continue;
    if (Array.isArray(next)) {
      for (const item of next) if (typeof item === "object" && item !== null) open.push(item);
    } else
      for (const name of Object.keys(next)) {
        if (name.includes("\\")) return true;
        const item = (next as Record<string, unknown>)[name];
        if (typeof item === "object" && item !== null) open.push(item);
      }
  }
  return false;
}

/** Returns the value of a text that is known to be JSON. JSON.parse reads only its strings, numbers and words. */
function valueOfKnown(b: Uint8Array): unknown {
  const open: object[] = [];
  let name: string | undefined;
  for (let i = 0; ; ) {
    const c = b[i];
    const inside = open.at(-1);
    if (c === CLOSE_BRACE || c === CLOSE_BRACKET) {
      open.pop();
      if (open.length === 0) return inside;
    }
    if (c <= 0x20 || c === COMMA || c === COLON || c === CLOSE_BRACE || c === CLOSE_BRACKET) {
      i++;
      continue;
    }
    if (inside && !Array.isArray(inside) && name === undefined) {
      name = parseStringAt(b, i, b.length);
      i = findStringEnd(b, i, b.length);
      continue;
    }
    const opens = c === OPEN_BRACE || c === OPEN_BRACKET;
    const past = opens ? i + 1 : findKnownValueEnd(b, i, b.length);
    const value: unknown = c === OPEN_BRACE ? {} : c === OPEN_BRACKET ? [] : JSON.parse(decodeText(b, i, past));
    if (Array.isArray(inside)) inside.push(value);
    else if (inside)
      Object.defineProperty(inside, name as string, { value, writable: true, enumerable: true, configurable: true });
    else if (!opens) return value;
    name = undefined;
    if (opens) open.push(value as object);
    i = past;
  }
}

/** Returns the value of a JSON text; if that has more than `over` bytes, strings over `longest` are cut to that. */
export function parseAbridged(
  b: Uint8Array,
  longest: number,
  over = 2 * longest,
  endOf: ValueEnd = findValueEnd,
): unknown {
  if (b.length <= over) return parse(b);
  const parts: Uint8Array[] = [];
  let copied = 0;
  for (let at = b.indexOf(QUOTE); at >= 0; ) {
    const past = endOf(b, at, b.length);
    if (past < 0) break;
    if (past - at > longest) {
      parts.push(b.subarray(copied, cutAt(b, at + 1, at + longest)));
      copied = past - 1;
    }
    at = b.indexOf(QUOTE, past);
  }
  return copied === 0 ? parse(b) : parse(concat([...parts, b.subarray(copied)]));
}

/** Returns the beginning of the string `b[start, end)`, quotes included: so many characters at least, if it has them. */
export function readStringBeginning(b: Uint8Array, start: number, end: number, count: number): string {
  // A character takes six bytes at most.
  if (end - start <= 6 * count + 2) return parse(b, start, end) as string;
  return JSON.parse(`${decodeText(b, start, cutAt(b, start + 1, start + 1 + 6 * count))}"`);
}

/** Returns the last position before `end` that cuts neither an escape nor a character in two. */
function cutAt(b: Uint8Array, start: number, end: number): number {
  let cut = start;
  for (let i = start; i < end; ) {
    cut = i;
    i += b[i] === BACKSLASH ? (b[i + 1] === 0x75 ? 6 : 2) : 1;
    while ((b[i] & 0xc0) === 0x80) i++;
  }
  return cut;
}

export function skipSpace(b: Uint8Array, at: number, end: number): number {
  let i = at;
  while (i < end) {
    const c = b[i];
    if (c !== 0x20 && c !== 0x0a && c !== 0x0d && c !== 0x09) break;
    i++;
  }
  return i;
}

/** Table of bytes: 1 for literal characters of a string: all but quotes, backslashes and control characters. */
const PLAIN = Uint8Array.from({ length: 256 }, (_, c) => (c >= 0x20 && c !== QUOTE && c !== BACKSLASH ? 1 : 0));
/** Table of bytes: 1 for hexadecimal digits, 0 for others. */
export const HEX = Uint8Array.from({ length: 256 }, (_, c) => (/[0-9a-fA-F]/.test(String.fromCharCode(c)) ? 1 : 0));
/** Length of an escape by the byte after its backslash; 0 if that byte begins none. */
export const ESCAPE = Uint8Array.from({ length: 256 }, (_, c) =>
  c === 0x75 ? 6 : '"\\/bfnrt'.includes(String.fromCharCode(c)) ? 2 : 0,
);

/** Returns the position just past the string whose opening quote is at `at`, or -1. */
export function findStringEnd(b: Uint8Array, at: number, end: number): number {
  let i = at + 1;
  for (;;) {
    // The quote or the line feed after `end` stops this too; checking for `end` at every byte takes a third longer.
    while (PLAIN[b[i]] === 1) i++;
    if (i >= end) return -1;
    if (b[i] === QUOTE) return i + 1;
    if (b[i] !== BACKSLASH) return -1;
    const length = i + 1 < end ? ESCAPE[b[i + 1]] : 0;
    if (length === 0 || i + length > end) return -1;
    if (length === 6 && (HEX[b[i + 2]] & HEX[b[i + 3]] & HEX[b[i + 4]] & HEX[b[i + 5]]) === 0) return -1;
    i += length;
  }
}

function digitsEnd(b: Uint8Array, at: number, end: number): number {
  let i = at;
  while (i < end && b[i] >= 0x30 && b[i] <= 0x39) i++;
  return i;
}

function numberEnd(b: Uint8Array, at: number, end: number): number {
  let i = at;
  if (b[i] === 0x2d) i++;
  const whole = i;
  i = digitsEnd(b, i, end);
  if (i === whole || (b[whole] === 0x30 && i > whole + 1)) return -1;
  if (i < end && b[i] === 0x2e) {
    const fraction = ++i;
    i = digitsEnd(b, i, end);
    if (i === fraction) return -1;
  }
  if (i < end && (b[i] === 0x65 || b[i] === 0x45)) {
    i++;
    if (i < end && (b[i] === 0x2b || b[i] === 0x2d)) i++;
    const exponent = i;
    i = digitsEnd(b, i, end);
    if (i === exponent) return -1;
  }
  return i;
}

const WORDS = [toBytes("true"), toBytes("false"), toBytes("null")];

function wordEnd(b: Uint8Array, at: number, end: number): number {
  for (const word of WORDS) if (holdsAt(b, at, word)) return at + word.length <= end ? at + word.length : -1;
  return -1;
}

/** Returns the start of the value of the member whose name is at `at`, or -1. */
export function findValueStart(b: Uint8Array, at: number, end: number): number {
  if (at >= end || b[at] !== QUOTE) return -1;
  const afterName = findStringEnd(b, at, end);
  if (afterName < 0) return -1;
  const colon = skipSpace(b, afterName, end);
  if (colon >= end || b[colon] !== COLON) return -1;
  return skipSpace(b, colon + 1, end);
}

/**
 * Returns the position just past the JSON value that starts at `at`, or -1 when there is no well-formed value.
 * Iterative, so depth costs memory and never the stack (RFC 8259 grammar; UTF-8 is not checked here).
 */
export function findValueEnd(b: Uint8Array, at: number, end: number): number {
  if (at < end && b[at] === QUOTE) return findStringEnd(b, at, end);
  const open: number[] = [];
  let i = at;
  for (;;) {
    if (i >= end) return -1;
    const c = b[i];
    if (c === QUOTE) i = findStringEnd(b, i, end);
    else if (c === OPEN_BRACE || c === OPEN_BRACKET) {
      i = skipSpace(b, i + 1, end);
      if (i < end && b[i] === c + 2) i++;
      else {
        open.push(c);
        if (c === OPEN_BRACE) i = findValueStart(b, i, end);
        if (i < 0) return -1;
        continue;
      }
    } else if (c === 0x2d || (c >= 0x30 && c <= 0x39)) i = numberEnd(b, i, end);
    else i = wordEnd(b, i, end);
    if (i < 0) return -1;
    for (;;) {
      if (open.length === 0) return i;
      i = skipSpace(b, i, end);
      if (i >= end) return -1;
      const container = open[open.length - 1];
      if (b[i] === COMMA) {
        i = skipSpace(b, i + 1, end);
        if (container === OPEN_BRACE) i = findValueStart(b, i, end);
        if (i < 0) return -1;
        break;
      }
      if (b[i] !== container + 2) return -1;
      open.pop();
      i++;
    }
  }
}

/** A function that finds the end of a value. */
type ValueEnd = typeof findValueEnd;

/** Bytes of a string that are checked one by one before indexOf searches for its end: most strings are shorter. */
const NEAR = 64;

/**
 * Does the same as {@link findValueEnd} in a text that is known to be JSON, because JSON.parse accepted it. It looks only
 * at strings and brackets, which takes a quarter of the time for a message of 700 characters (0.2 us instead of 0.8).
 */
export function findKnownValueEnd(b: Uint8Array, at: number, end: number): number {
  let depth = 0;
  let i = at;
  while (i < end) {
    const c = b[i];
    if (c === QUOTE) {
      i = knownStringEnd(b, i);
      if (i < 0) return -1;
    } else if (c === OPEN_BRACE || c === OPEN_BRACKET) {
      depth++;
      i++;
      continue;
    } else if (depth === 0) return scalarEnd(b, i, end);
    else {
      i++;
      if (c !== CLOSE_BRACE && c !== CLOSE_BRACKET) continue;
      depth--;
    }
    if (depth === 0) return i;
  }
  return -1;
}

function knownStringEnd(b: Uint8Array, at: number): number {
  for (let i = at + 1; ; i++) {
    const near = i + NEAR;
    while (i < near && b[i] !== QUOTE) i += b[i] === BACKSLASH ? 2 : 1;
    if (i < near) return i + 1;
    const plain = i;
    i = b.indexOf(QUOTE, plain);
    if (i < 0) return -1;
    let escapes = i;
    while (escapes > plain && b[escapes - 1] === BACKSLASH) escapes--;
    if ((i - escapes) % 2 === 0) return i + 1;
  }
}

/** Returns the position just past the number or word at `at`. */
function scalarEnd(b: Uint8Array, at: number, end: number): number {
  let i = at;
  while (i < end && b[i] > 0x20 && b[i] !== COMMA && b[i] !== CLOSE_BRACE && b[i] !== CLOSE_BRACKET) i++;
  return i;
}

/** Returns whether the bytes are exactly one JSON value, with white space around it. */
export function isJson(b: Uint8Array, start = 0, end = b.length): boolean {
  const i = findValueEnd(b, skipSpace(b, start, end), end);
  return i >= 0 && skipSpace(b, i, end) === end;
}

/** Returns the members of the object that is all of `bytes[start, end)`, duplicates included; else null. */
export function getMembers(b: Uint8Array, start = 0, end = b.length, endOf: ValueEnd = findValueEnd): Member[] | null {
  let i = skipSpace(b, start, end);
  if (i >= end || b[i] !== OPEN_BRACE) return null;
  const found: Member[] = [];
  i = skipSpace(b, i + 1, end);
  if (i < end && b[i] === CLOSE_BRACE) return skipSpace(b, i + 1, end) === end ? found : null;
  for (;;) {
    const nameStart = i;
    const at = findValueStart(b, i, end);
    if (at < 0) return null;
    const past = endOf(b, at, end);
    if (past < 0) return null;
    found.push({ name: parseStringAt(b, nameStart, end), nameStart, start: at, end: past });
    i = skipSpace(b, past, end);
    if (i >= end) return null;
    if (b[i] === CLOSE_BRACE) return skipSpace(b, i + 1, end) === end ? found : null;
    if (b[i] !== COMMA) return null;
    i = skipSpace(b, i + 1, end);
  }
}

/** Returns the elements of the array that is all of `bytes[start, end)`, or null when it is not an array. */
export function getElements(b: Uint8Array, start = 0, end = b.length, endOf: ValueEnd = findValueEnd): Range[] | null {
  let i = skipSpace(b, start, end);
  if (i >= end || b[i] !== OPEN_BRACKET) return null;
  const found: Range[] = [];
  i = skipSpace(b, i + 1, end);
  if (i < end && b[i] === CLOSE_BRACKET) return skipSpace(b, i + 1, end) === end ? found : null;
  for (;;) {
    const past = endOf(b, i, end);
    if (past < 0) return null;
    found.push({ start: i, end: past });
    i = skipSpace(b, past, end);
    if (i >= end) return null;
    if (b[i] === CLOSE_BRACKET) return skipSpace(b, i + 1, end) === end ? found : null;
    if (b[i] !== COMMA) return null;
    i = skipSpace(b, i + 1, end);
  }
}

export function parseStringAt(b: Uint8Array, at: number, end: number): string {
  const usual = usualName(b, at, end);
  if (usual !== undefined) return usual;
  const past = findStringEnd(b, at, end);
  for (let i = at + 1; i < past - 1; i++) if (b[i] === BACKSLASH) return JSON.parse(decodeText(b, at, past));
  return decodeText(b, at + 1, past - 1);
}

/** Names that nearly every entry has: comparing bytes takes a tenth of the time of making a string. */
const USUAL_NAMES = ["type", "id", "parentId", "timestamp", "message", "role", "content", "text", "_batch"].map(
  (name) => ({ name, bytes: toBytes(`"${name}"`) }),
);

function usualName(b: Uint8Array, at: number, end: number): string | undefined {
  for (const { name, bytes } of USUAL_NAMES) {
    const { length } = bytes;
    if (b[at + 1] !== bytes[1] || b[at + length - 1] !== QUOTE || at + length > end) continue;
    let k = 2;
    while (k < length - 1 && b[at + k] === bytes[k]) k++;
    if (k === length - 1) return name;
  }
  return undefined;
}

/** Returns the last member of that name, as JSON.parse would choose it. */
export function findMember(found: readonly Member[], name: string): Member | undefined {
  for (let i = found.length - 1; i >= 0; i--) if (found[i].name === name) return found[i];
  return undefined;
}

/** Returns the value of that member; undefined when it is missing. */
export function getMemberValue(b: Uint8Array, found: readonly Member[], name: string): unknown {
  const member = findMember(found, name);
  return member && parse(b, member.start, member.end);
}

/** Returns the value at a path of member names and array indexes in a JSON text, or undefined. */
export function findValue(
  b: Uint8Array,
  range: Range,
  path: readonly (string | number)[],
  endOf: ValueEnd = findValueEnd,
): Range | undefined {
  const goal: Goal = { path, endOf, found: undefined };
  const past = seek(b, skipSpace(b, range.start, range.end), range.end, goal, 0);
  return past >= 0 && skipSpace(b, past, range.end) === range.end ? goal.found : undefined;
}

interface Goal {
  readonly path: readonly (string | number)[];
  readonly endOf: ValueEnd;
  found: Range | undefined;
}

/** Walks once through the value at `at`, `depth` steps down the path, for the goal. Returns its end, or -1. */
function seek(b: Uint8Array, at: number, end: number, goal: Goal, depth: number): number {
  const step = goal.path[depth];
  const open = typeof step === "string" ? OPEN_BRACE : OPEN_BRACKET;
  if (step === undefined || at >= end || b[at] !== open) {
    const past = goal.endOf(b, at, end);
    goal.found = step === undefined && past >= 0 ? { start: at, end: past } : undefined;
    return past;
  }
  // The last of several members with the same name counts, even if it leads nowhere.
  goal.found = undefined;
  let i = skipSpace(b, at + 1, end);
  if (i < end && b[i] === open + 2) return i + 1;
  for (let index = 0; ; index++) {
    const isOnPath = typeof step === "string" ? isNamed(b, i, end, step) : index === step;
    if (typeof step === "string") i = findValueStart(b, i, end);
    if (i < 0) return -1;
    i = isOnPath ? seek(b, i, end, goal, depth + 1) : goal.endOf(b, i, end);
    if (i < 0) return -1;
    i = skipSpace(b, i, end);
    if (i >= end) return -1;
    if (b[i] === open + 2) return i + 1;
    if (b[i] !== COMMA) return -1;
    i = skipSpace(b, i + 1, end);
  }
}

/** Returns whether the string literal at `at` is this name, which has neither quotes nor backslashes. */
function isNamed(b: Uint8Array, at: number, end: number, name: string): boolean {
  for (let i = at + 1, k = 0; i < end; i++, k++) {
    const c = b[i];
    if (c === BACKSLASH || c >= 0x80) return findStringEnd(b, at, end) >= 0 && parseStringAt(b, at, end) === name;
    if (c === QUOTE) return k === name.length;
    if (c !== name.charCodeAt(k)) return false;
  }
  return false;
}

/** Yields the lines of a text without their line feeds; the last need not have one. */
export function* splitLines(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; ) {
    const feed = bytes.indexOf(0x0a, at);
    const end = feed < 0 ? bytes.length : feed;
    yield bytes.subarray(at, end);
    at = end + 1;
  }
}

/** Returns the JSON text on one line: line breaks between tokens become spaces, everything else stays as it is. */
export function toOneLine(bytes: Uint8Array): Uint8Array {
  if (!bytes.includes(0x0a) && !bytes.includes(0x0d)) return bytes;
  // A raw line break cannot occur inside a string of well-formed JSON, so it is always between tokens.
  return bytes.map((c) => (c === 0x0a || c === 0x0d ? 0x20 : c));
}

export function concat(parts: readonly Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0];
  let length = 0;
  for (const part of parts) length += part.length;
  const all = new Uint8Array(length);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

export function holdsAt(b: Uint8Array, at: number, text: Uint8Array): boolean {
  for (let i = 0; i < text.length; i++) if (b[at + i] !== text[i]) return false;
  return true;
}

export function areSameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && holdsAt(a, 0, b);
}

/** Returns the JSON text of a parsed value, even of one that is nested too deep for JSON.stringify. */
export function toJsonText(value: unknown): string {
  try {
    return JSON.stringify(value) ?? "";
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  let text = "";
  const open: { rest: Iterator<[string | null, unknown]>; close: string; first: boolean }[] = [];
  for (let next: unknown = value; ; ) {
    if (Array.isArray(next)) {
      text += "[";
      open.push({ rest: next.map((item): [null, unknown] => [null, item]).values(), close: "]", first: true });
    } else if (typeof next === "object" && next !== null) {
      text += "{";
      open.push({ rest: Object.entries(next).values(), close: "}", first: true });
    } else text += JSON.stringify(next) ?? "null";
    for (;;) {
      const top = open.at(-1);
      if (!top) return text;
      const { done, value: member } = top.rest.next();
      if (!done) {
        const [name, item] = member;
        text += `${top.first ? "" : ","}${name === null ? "" : `${JSON.stringify(name)}:`}`;
        top.first = false;
        next = item;
        break;
      }
      text += top.close;
      open.pop();
    }
  }
}

/** Returns an entry's line without the white space around it, which is not part of the JSON value. */
export function trimLine(line: Uint8Array): Uint8Array {
  const start = skipSpace(line, 0, line.length);
  let end = line.length;
  while (end > start && isSpace(line[end - 1])) end--;
  return line.subarray(start, end);
}

function isSpace(c: number): boolean {
  return c === 0x20 || c === 0x09 || c === 0x0d || c === 0x0a;
}
