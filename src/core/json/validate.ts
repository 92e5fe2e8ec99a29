/** Validates whole entry lines: that a line is JSON, that its head is not ambiguous, and the place of its message. */

import { findValueEnd, findValueStart, holdsAt, isJson, parseStringAt, skipSpace, toBytes } from "./json.ts";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** Names of members, and the bytes that usually spell them. */
interface Names {
  readonly names: readonly string[];
  readonly spelled: readonly Uint8Array[];
}

const named = (...names: string[]): Names => ({ names, spelled: names.map((name) => toBytes(`"${name}"`)) });

/** Members that decide the head of an entry. */
const OF_ENTRY = named("message", "type", "id", "parentId", "customType", "_batch");
const MESSAGE = 1;
const OF_MESSAGE = named("role");

/** Reads many lines: after a successful {@link read} its fields describe the last one. */
export class LineValidator {
  /** True if a member of the head occurs twice: parsers use the last, and the fast path for heads may not see it. */
  isAmbiguous = false;
  /** Start of the message in the line, if only a brace comes after it; else 0. */
  messageStart = 0;
  /** Start and end of the message, if it is the last member of the object read last; 0 when another member is. */
  private last = 0;
  private lastEnd = 0;

  /** Returns whether `b[start, end)` is one JSON value (RFC 8259), in one pass; UTF-8 is not checked here. */
  read(b: Uint8Array, start: number, end: number): boolean {
    this.isAmbiguous = false;
    this.messageStart = 0;
    if (b[start] !== OPEN_BRACE) return isJson(b, start, end);
    const past = this.object(b, start, end, OF_ENTRY);
    if (past < 0) return false;
    if (this.last > 0 && this.lastEnd === end - 1) this.messageStart = this.last - start;
    return skipSpace(b, past, end) === end;
  }

  /** Returns the position just past the object at `at`, or -1. Notes whether any of these names occurs twice. */
  private object(b: Uint8Array, at: number, end: number, names: Names): number {
    let seen = 0;
    this.last = 0;
    let i = skipSpace(b, at + 1, end);
    if (i < end && b[i] === CLOSE_BRACE) return i + 1;
    for (;;) {
      const value = findValueStart(b, i, end);
      if (value < 0) return -1;
      const bit = bitOf(names, b, i, end);
      if ((seen & bit) !== 0) this.isAmbiguous = true;
      seen |= bit;
      const isMessage = bit === MESSAGE && names === OF_ENTRY;
      const past =
        isMessage && b[value] === OPEN_BRACE ? this.object(b, value, end, OF_MESSAGE) : findValueEnd(b, value, end);
      if (past < 0) return -1;
      i = skipSpace(b, past, end);
      if (i >= end) return -1;
      if (b[i] === CLOSE_BRACE) {
        this.last = isMessage ? value : 0;
        this.lastEnd = past;
        return i + 1;
      }
      if (b[i] !== COMMA) return -1;
      i = skipSpace(b, i + 1, end);
    }
  }
}

/** Returns the bit of the name at `at`, or 0 for a name that is not among these. */
function bitOf({ names, spelled }: Names, b: Uint8Array, at: number, end: number): number {
  for (let k = 0; k < spelled.length; k++) if (holdsAt(b, at, spelled[k])) return 1 << k;
  for (let i = at + 1; b[i] !== QUOTE; i++) {
    if (b[i] !== BACKSLASH) continue;
    // A name with escapes can be any of them.
    const k = names.indexOf(parseStringAt(b, at, end));
    return k < 0 ? 0 : 1 << k;
  }
  return 0;
}
