/**
 * JSON documents as far as they are whole: one that was cut off, or damaged in the middle, still has members and
 * elements that can be read.
 */

import {
  bytesOf,
  concat,
  holdsAt,
  knownValueEnd,
  type Range,
  skipSpace,
  stringAt,
  valueEnd,
  valueStart,
} from "../json/json.ts";

const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
const COMMA = 0x2c;
const LINE_FEED = 0x0a;

/**
 * Damaged parts of one object or array after which its rest counts as one more: each may be looked at up to the end of
 * the document to find out that it is damaged.
 */
const MOST_DAMAGED = 100;

/** A member of an object, or an element of an array, by the range of its value. */
export interface DocumentPart extends Range {
  /** Empty for elements. */
  readonly name: string;
  /** Whether the value is JSON. One that is not may still have parts that are. */
  readonly isWhole: boolean;
}

export interface DocumentParts {
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

/**
 * Returns the parts of the object or array that begins in this range, in order. A value that is no JSON ends where its
 * lines or its brackets say so, or else at the end of the range: nothing between the brackets is left out.
 */
export function partsOf(b: Uint8Array, start = 0, end = b.length): DocumentParts {
  const parts: DocumentPart[] = [];
  let i = skipSpace(b, start, end);
  const open = b[i];
  if (i >= end || (open !== OPEN_BRACE && open !== OPEN_BRACKET)) return { parts, end: start };
  i = skipSpace(b, i + 1, end);
  let damaged = 0;
  while (i < end && b[i] !== open + 2) {
    const found = open === OPEN_BRACE ? valueStart(b, i, end) : i;
    const name = open === OPEN_BRACE && found >= 0 ? nameAt(b, i, end) : "";
    const at = found < 0 ? i : found;
    const whole = found < 0 ? -1 : valueEnd(b, at, end);
    if (whole < 0) damaged++;
    const past = whole >= 0 ? whole : damaged > MOST_DAMAGED ? end : looseEnd(b, at, end, open + 2);
    parts.push({ name, start: at, end: past, isWhole: whole >= 0 });
    i = skipSpace(b, past, end);
    if (i < end && b[i] === COMMA) i = skipSpace(b, i + 1, end);
  }
  return { parts, end: Math.min(i + 1, end) };
}

/** Returns a member as an object of its own: its value alone does not say what it is. */
export function memberAlone(b: Uint8Array, { name, start, end }: DocumentPart): Uint8Array {
  return concat([bytesOf(`{${JSON.stringify(name)}:`), b.subarray(start, end), bytesOf("}")]);
}

/** Returns an object of these members. */
export function objectOf(b: Uint8Array, members: readonly DocumentPart[]): Uint8Array {
  const texts = members.flatMap(({ name, start, end }, index) => [
    bytesOf(`${index === 0 ? "" : ","}${JSON.stringify(name)}:`),
    b.subarray(start, end),
  ]);
  return concat([bytesOf("{"), ...texts, bytesOf("}")]);
}

/** Returns the rest of a document after its end; undefined when that is only white space. */
export function restAfter(b: Uint8Array, end: number): Uint8Array | undefined {
  const at = skipSpace(b, end, b.length);
  return at < b.length ? b.subarray(at) : undefined;
}

/** Returns where something ends that is no JSON: by the lines of a document that has some, or else by its brackets. */
function looseEnd(b: Uint8Array, at: number, end: number, close: number): number {
  const line = lineStart(b, at);
  if (line > 0) {
    const past = linesEnd(b, at, end, b.subarray(line - 1, skipSpace(b, line, at)));
    if (past > at) return past;
  }
  const past = knownValueEnd(b, at, end);
  if (past <= at || past > end) return end;
  const next = skipSpace(b, past, end);
  return next >= end || b[next] === COMMA || b[next] === close ? past : end;
}

/** Returns the start of the line that a position is in. */
function lineStart(b: Uint8Array, at: number): number {
  let i = at;
  while (i > 0 && b[i - 1] !== LINE_FEED) i--;
  return i;
}

/**
 * Returns where something ends that begins in a line of its own, in a document that was written for people: what is in
 * brackets ends in the next line with the same indent, which `indent` is, with the line feed before it. Within strings
 * there are no line feeds.
 */
function linesEnd(b: Uint8Array, at: number, end: number, indent: Uint8Array): number {
  const feed = feedAfter(b, at, end);
  let last = feed;
  while (last > at && b[last - 1] <= 0x20) last--;
  const opening = b[last - 1];
  if (opening !== OPEN_BRACE && opening !== OPEN_BRACKET) return last > at && b[last - 1] === COMMA ? last - 1 : last;
  for (let line = feed; line < end; line = feedAfter(b, line + 1, end)) {
    const past = line + indent.length;
    if (past < end && b[past] === opening + 2 && holdsAt(b, line, indent)) return past + 1;
  }
  return end;
}

function feedAfter(b: Uint8Array, at: number, end: number): number {
  const feed = b.indexOf(LINE_FEED, at);
  return feed < 0 || feed > end ? end : feed;
}

function nameAt(b: Uint8Array, at: number, end: number): string {
  try {
    return stringAt(b, at, end);
  } catch {
    // It is no UTF-8.
    return "";
  }
}
