/**
 * JSON documents as records, as far as they are whole: one that was cut off, or damaged in the middle, still has members
 * and elements that can be read. How often each byte is looked at does not grow with the document.
 */

import {
  concat,
  findKnownValueEnd,
  findStringEnd,
  findValueEnd,
  findValueStart,
  holdsAt,
  isJson,
  parseStringAt,
  type Range,
  skipSpace,
  toBytes,
} from "../../../core/json/json.ts";

const LINE_FEED = 0x0a;
const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** Columns that a line is indented at most, to be gone by: each width may be looked for up to the end of the document. */
const WIDEST_INDENT = 64;

/** A member of an object, or an element of an array, by the range of its value. */
export interface DocumentPart extends Range {
  /** Empty for elements, and for names that cannot be read. */
  readonly name: string;
  /** Start of the member's name; that of the value, if it has none. */
  readonly nameStart: number;
  /** True if the value is JSON. One that is not may still have parts that are. */
  readonly isWhole: boolean;
}

interface DocumentParts {
  readonly parts: readonly DocumentPart[];
  /** The position after the object or array. */
  readonly end: number;
}

export function isObjectAt(b: Uint8Array, { start }: Range): boolean {
  return b[start] === OPEN_BRACE;
}

export function isArrayAt(b: Uint8Array, { start }: Range): boolean {
  return b[start] === OPEN_BRACKET;
}

/** Returns a document as one part, from its first byte after a byte order mark. */
export function toWholePart(b: Uint8Array): DocumentPart {
  const mark = b[0] === 0xef && b[1] === 0xbb && b[2] === 0xbf ? 3 : 0;
  const start = skipSpace(b, mark, b.length);
  return { name: "", nameStart: start, start, end: b.length, isWhole: isJson(b, start) };
}

/**
 * Returns the parts of an object or array, in order. A value that is no JSON ends at the end of its lines or at its
 * bracket, or else at the end of the value around it: everything between the brackets is in some part.
 */
export function splitParts(b: Uint8Array, { start, end, isWhole }: DocumentPart): DocumentParts {
  const parts: DocumentPart[] = [];
  const open = b[start];
  if (start >= end || (open !== OPEN_BRACE && open !== OPEN_BRACKET)) return { parts, end: start };
  const next = isWhole ? knownPart : doubtfulPart;
  let i = skipSpace(b, start + 1, end);
  while (i < end && b[i] !== open + 2) {
    const part = next(b, i, end, open);
    parts.push(part);
    i = skipSpace(b, part.end, end);
    if (i < end && b[i] === COMMA) i = skipSpace(b, i + 1, end);
  }
  return { parts, end: Math.min(i + 1, end) };
}

/** Returns the part that begins at `at` in valid JSON. */
function knownPart(b: Uint8Array, at: number, end: number, open: number): DocumentPart {
  const start = open === OPEN_BRACE ? findValueStart(b, at, end) : at;
  const name = open === OPEN_BRACE ? nameAt(b, at, end) : "";
  return { name, nameStart: at, start, end: findKnownValueEnd(b, start, end), isWhole: true };
}

/** Returns the part that begins at `at` in invalid JSON, though this part of it may be valid. */
function doubtfulPart(b: Uint8Array, at: number, end: number, open: number): DocumentPart {
  const isMember = open === OPEN_BRACE;
  const found = isMember ? findValueStart(b, at, end) : at;
  const start = found < 0 ? at : found;
  const name = isMember && found >= 0 ? nameAt(b, at, end) : "";
  const lines = linesEnd(b, at, end);
  const whole = found < 0 || start >= lines ? -1 : findValueEnd(b, start, lines);
  // A number at the end of the bytes may be the beginning of a longer one.
  const isWhole = whole >= 0 && (whole < b.length || isClosed(b[whole - 1]));
  if (isWhole) return { name, nameStart: at, start, end: whole, isWhole };
  const past = lines < end ? trimmed(b, start, lines) : bracketsEnd(b, start, end, open + 2);
  // A part has a byte at least, or those after it would never be reached.
  return { name, nameStart: at, start, end: Math.min(end, Math.max(past, start + 1)), isWhole };
}

function isClosed(last: number): boolean {
  return last === QUOTE || last === CLOSE_BRACE || last === CLOSE_BRACKET;
}

/**
 * Returns the end of a part that begins in a line of its own, in a document that was indented for people: before the
 * next line with no further indent, or after the bracket at the start of such a line. Returns `end` without such lines.
 * Strings have no line feeds.
 */
function linesEnd(b: Uint8Array, at: number, end: number): number {
  let from = at;
  while (from > 0 && (b[from - 1] === 0x20 || b[from - 1] === 0x09)) from--;
  const indent = at - from;
  if (indent === 0 || indent > WIDEST_INDENT || b[from - 1] !== LINE_FEED) return end;
  for (let feed = b.indexOf(LINE_FEED, at); feed >= 0 && feed < end; feed = b.indexOf(LINE_FEED, feed + 1)) {
    let first = feed + 1;
    while (first < end && first <= feed + 1 + indent && (b[first] === 0x20 || b[first] === 0x09)) first++;
    const deeper = first - feed - 1 - indent;
    if (first >= end || deeper > 0 || b[first] <= 0x20) continue;
    const closes = b[first] === CLOSE_BRACE || b[first] === CLOSE_BRACKET;
    if (deeper === 0) return closes ? first + 1 : feed;
    if (closes) return feed;
  }
  return end;
}

/** Returns the end without the white space, and the comma, before it. */
function trimmed(b: Uint8Array, start: number, end: number): number {
  let i = end;
  while (i > start && b[i - 1] <= 0x20) i--;
  return i > start && b[i - 1] === COMMA ? i - 1 : i;
}

/** Returns the end of a value by its brackets and quotes, if the next character may follow it; otherwise `end`. */
function bracketsEnd(b: Uint8Array, at: number, end: number, close: number): number {
  const past = findKnownValueEnd(b, at, end);
  if (past <= at || past > end) return end;
  const next = skipSpace(b, past, end);
  return next >= end || b[next] === COMMA || b[next] === close ? past : end;
}

/** Returns a member's name; an empty one if it is no UTF-8. */
function nameAt(b: Uint8Array, at: number, end: number): string {
  try {
    return parseStringAt(b, at, end);
  } catch {
    return "";
  }
}

export function toRecordBytes(b: Uint8Array, { start, end }: Range): Uint8Array {
  return b.subarray(start, end);
}

/** Returns an object of these members, as they are written. One alone that is no JSON is without the braces. */
export function joinMembers(b: Uint8Array, members: readonly DocumentPart[]): Uint8Array {
  const [first] = members;
  if (members.length === 1 && !first.isWhole) return b.subarray(first.nameStart, first.end);
  const texts = members.flatMap(({ nameStart, end }, n) => [toBytes(n === 0 ? "" : ","), b.subarray(nameStart, end)]);
  return concat([toBytes("{"), ...texts, toBytes("}")]);
}

/** Yields the facts of a document without its list, as one record, then the elements of the list. */
export function* readDocumentRecords(b: Uint8Array, list: string): Generator<Uint8Array> {
  const { parts, end } = splitMembers(b, list);
  const isList = (part: DocumentPart): boolean => part.name === list && isArrayAt(b, part);
  const facts = parts.filter((part) => part.isWhole && !isList(part));
  if (facts.length > 0) yield joinMembers(b, facts);
  for (const part of parts) if (!part.isWhole && !isList(part)) yield joinMembers(b, [part]);
  for (const part of parts) if (isList(part)) yield* listRecords(b, part);
  yield* readRest(b, end);
}

/** Returns the members of a document. Damage among its facts leaves the list behind it as it is. */
export function splitMembers(b: Uint8Array, list: string): DocumentParts {
  const { parts, end } = splitParts(b, toWholePart(b));
  const damaged = parts.findIndex(({ isWhole }) => !isWhole);
  if (parts.some((part) => part.name === list && isArrayAt(b, part))) return { parts, end };
  const before = damaged < 0 ? parts : parts.slice(0, damaged);
  const from = damaged < 0 ? end : parts[damaged].nameStart;
  // After a lost quote, the quote before its name is the end of the string before it.
  const found = listIn(b, before.length > 0 && damaged > 0 ? before[damaged - 1].end - 1 : from, list);
  if (!found) return { parts, end };
  const rest = { name: "", nameStart: from, start: from, end: trimmed(b, from, found.nameStart), isWhole: false };
  return { parts: [...before, ...(rest.end > from ? [rest] : []), found], end: found.end };
}

/** Returns a list with a name in the text from `from` on. */
function listIn(b: Uint8Array, from: number, name: string): DocumentPart | undefined {
  const named = toBytes(`"${name}"`);
  for (let at = b.indexOf(QUOTE, from); at >= 0; at = b.indexOf(QUOTE, at + 1)) {
    if (!holdsAt(b, at, named)) continue;
    const start = findValueStart(b, at, b.length);
    if (start < 0 || b[start] !== OPEN_BRACKET) continue;
    const lines = linesEnd(b, at, b.length);
    const whole = findValueEnd(b, start, lines);
    const end = whole >= 0 ? whole : lines < b.length ? lines : bracketsEnd(b, start, b.length, CLOSE_BRACE);
    return { name, nameStart: at, start, end, isWhole: whole >= 0 };
  }
  return undefined;
}

/** Yields the elements of a list, or the value in its place if it is no list. */
export function* listRecords(b: Uint8Array, list: DocumentPart): Generator<Uint8Array> {
  const { parts, end } = splitParts(b, list);
  for (const part of parts) yield toRecordBytes(b, part);
  yield* readRest(b, end, list.end);
}

/** Yields the rest of a document after its end, unless that is only white space. */
export function* readRest(b: Uint8Array, from: number, end = b.length): Generator<Uint8Array> {
  const at = skipSpace(b, from, end);
  if (at < end) yield b.subarray(at, end);
}

export function compactJson(b: Uint8Array): Uint8Array {
  const out = new Uint8Array(b.length);
  let length = 0;
  for (let at = 0; at < b.length; ) {
    if (b[at] !== QUOTE) {
      if (b[at] > 0x20) out[length++] = b[at];
      at++;
      continue;
    }
    const past = findStringEnd(b, at, b.length);
    const end = past < 0 ? b.length : past;
    out.set(b.subarray(at, end), length);
    length += end - at;
    at = end;
  }
  return out.subarray(0, length);
}
