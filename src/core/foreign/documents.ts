/**
 * Records of a JSON document that has them in a list, even where it is damaged or cut: what is not whole is a record of
 * its own, which is kept as it is.
 */

import {
  bytesOf,
  concat,
  holdsAt,
  knownValueEnd,
  type Member,
  type Range,
  skipSpace,
  stringAt,
  valueStart,
} from "../json/json.ts";

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** The members of a document, as far as they can be told. */
export interface DocumentFacts {
  /** Members with whole values. */
  readonly members: readonly Member[];
  /** The member whose value is not whole, if there is one; it reaches to the end of the bytes. */
  readonly cut: Member | undefined;
  /** Where what follows the members begins; the end of the bytes if nothing but white space follows. */
  readonly rest: number;
}

/** Returns what can be told of a document that is an object; null for anything else. */
export function factsOf(b: Uint8Array): DocumentFacts | null {
  const end = b.length;
  let i = skipSpace(b, startOf(b), end);
  if (b[i] !== OPEN_BRACE) return null;
  const members: Member[] = [];
  i = skipSpace(b, i + 1, end);
  while (i < end && b[i] !== CLOSE_BRACE) {
    const start = valueStart(b, i, end);
    if (start < 0) return { members, cut: undefined, rest: i };
    const member = { name: nameAt(b, i), nameStart: i, start };
    const past = endOfValue(b, start);
    if (past < 0) return { members, cut: { ...member, end }, rest: end };
    members.push({ ...member, end: past });
    i = skipSpace(b, past, end);
    if (b[i] === COMMA) i = skipSpace(b, i + 1, end);
    else if (b[i] !== CLOSE_BRACE) return { members, cut: undefined, rest: i };
  }
  return { members, cut: undefined, rest: skipSpace(b, Math.min(i + 1, end), end) };
}

/** Returns a member's name; for one that is no text, a name that none has. */
function nameAt(b: Uint8Array, at: number): string {
  try {
    return stringAt(b, at, b.length);
  } catch {
    return "\uFFFD";
  }
}

/** Yields the facts of a document without its list, as one record, then the elements of the list. */
export function* documentRecords(b: Uint8Array, list: string): Generator<Uint8Array> {
  const { members, cut, rest } = factsOf(b) ?? { members: [], cut: undefined, rest: 0 };
  const isList = ({ name, start }: Member): boolean => name === list && b[start] === OPEN_BRACKET;
  const others = members.filter((member) => !isList(member));
  const pieces = others.flatMap(({ nameStart, end }, n) => [bytesOf(n === 0 ? "" : ","), b.subarray(nameStart, end)]);
  if (others.length > 0) yield concat([bytesOf("{"), ...pieces, bytesOf("}")]);
  for (const member of members) if (isList(member)) yield* listRecords(b, member);
  if (cut && isList(cut)) yield* listRecords(b, cut);
  else {
    const from = cut ? cut.nameStart : rest;
    // Damage among the facts leaves the list behind it as it is.
    const start = members.some(isList) ? b.length : listStart(b, from, list);
    if (from < start) yield b.subarray(from, start);
    if (start < b.length) yield* listRecords(b, { start, end: b.length });
  }
}

/** Returns where a list with a name begins in the text from `from` on; the end of the bytes if it is not there. */
function listStart(b: Uint8Array, from: number, name: string): number {
  const named = bytesOf(`"${name}"`);
  for (let at = b.indexOf(QUOTE, from); at >= 0; at = b.indexOf(QUOTE, at + 1)) {
    if (!holdsAt(b, at, named)) continue;
    const start = valueStart(b, at, b.length);
    if (start >= 0 && b[start] === OPEN_BRACKET) return start;
  }
  return b.length;
}

/**
 * Yields the elements of a list, which begins at `start`. What comes after one that is not whole is one record, up to
 * the next element where that can be told by how far it is indented.
 */
export function* listRecords(b: Uint8Array, { start, end }: Range): Generator<Uint8Array> {
  let i = skipSpace(b, start, end);
  if (b[i] !== OPEN_BRACKET) {
    if (i < end) yield b.subarray(i, end);
    return;
  }
  i = skipSpace(b, i + 1, end);
  const opening = openingOf(b, i);
  while (i < end && b[i] !== CLOSE_BRACKET) {
    const past = endOfValue(b, i);
    const next = past < 0 ? end : skipSpace(b, past, end);
    const isWhole = past >= 0 && (next >= end || b[next] === COMMA || b[next] === CLOSE_BRACKET);
    const again = isWhole ? -1 : placeOf(b, opening, i + 1);
    const to = isWhole ? past : again < 0 ? end : again;
    yield b.subarray(i, to);
    if (isWhole) i = b[next] === COMMA ? skipSpace(b, next + 1, end) : next;
    else i = again < 0 ? end : again + opening.length - 1;
  }
  const after = skipSpace(b, Math.min(i + 1, end), end);
  if (after < end) yield b.subarray(after, end);
}

/** Returns the line feed, the space and the brace that elements begin with; nothing if there are no lines. */
function openingOf(b: Uint8Array, at: number): Uint8Array {
  let from = at;
  while (from > 0 && (b[from - 1] === 0x20 || b[from - 1] === 0x09)) from--;
  const isLine = from > 0 && b[from - 1] === 0x0a && b[at] === OPEN_BRACE;
  return isLine ? b.subarray(from - 1, at + 1) : b.subarray(0, 0);
}

function placeOf(b: Uint8Array, text: Uint8Array, from: number): number {
  if (text.length === 0) return -1;
  for (let at = b.indexOf(0x0a, from); at >= 0; at = b.indexOf(0x0a, at + 1)) if (holdsAt(b, at, text)) return at;
  return -1;
}

/** Returns where the text begins: after a byte order mark. */
export function startOf(b: Uint8Array): number {
  return b[0] === 0xef && b[1] === 0xbb && b[2] === 0xbf ? 3 : 0;
}

/**
 * Returns the end of a value by its brackets and quotes, if what follows can follow a value; else -1. Whether it is JSON
 * inside is seen when the record is parsed.
 */
function endOfValue(b: Uint8Array, at: number): number {
  const end = knownValueEnd(b, at, b.length);
  if (end <= at) return -1;
  const next = skipSpace(b, end, b.length);
  if (next >= b.length) return b[at] === OPEN_BRACE || b[at] === OPEN_BRACKET ? end : -1;
  return b[next] === COMMA || b[next] === CLOSE_BRACE || b[next] === CLOSE_BRACKET ? end : -1;
}
