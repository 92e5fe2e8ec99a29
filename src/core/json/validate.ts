/** Reads all of one entry line: whether it is JSON, whether its head is ambiguous, where its message stands. */

import { bytesOf, holdsAt, isJson, skipSpace, stringAt, valueEnd, valueStart } from "./json.ts";

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

const named = (...names: string[]): Names => ({ names, spelled: names.map((name) => bytesOf(`"${name}"`)) });

/** Members that tell what the head of an entry is. */
const OF_ENTRY = named("message", "type", "id", "parentId", "customType", "_batch");
const MESSAGE = 1;
const OF_MESSAGE = named("role");

/** One reader serves many lines: after a successful {@link read} its fields tell of the last one. */
export class BodyReader {
  /** A member of the head stands twice: the quick reading of heads takes the first, parsers take the last. */
  isAmbiguous = false;
  /** Where the message begins, if nothing but a brace stands behind it; else 0. */
  messageStart = 0;
  /** The message that is the last member of the object that was read last, and its end; 0 when that is another. */
  private last = 0;
  private lastEnd = 0;

  /** Whether `b[start, end)` is one JSON value (RFC 8259; UTF-8 is not checked here): in one pass, building nothing. */
  read(b: Uint8Array, start: number, end: number): boolean {
    this.isAmbiguous = false;
    this.messageStart = 0;
    if (b[start] !== OPEN_BRACE) return isJson(b, start, end);
    const past = this.object(b, start, end, OF_ENTRY);
    if (past < 0) return false;
    if (this.last > 0 && this.lastEnd === end - 1) this.messageStart = this.last - start;
    return skipSpace(b, past, end) === end;
  }

  /** Just past the object at `at`, or -1; members of these names are told apart. */
  private object(b: Uint8Array, at: number, end: number, told: Names): number {
    let seen = 0;
    this.last = 0;
    let i = skipSpace(b, at + 1, end);
    if (i < end && b[i] === CLOSE_BRACE) return i + 1;
    for (;;) {
      const value = valueStart(b, i, end);
      if (value < 0) return -1;
      const bit = bitOf(told, b, i, end);
      if ((seen & bit) !== 0) this.isAmbiguous = true;
      seen |= bit;
      const isMessage = bit === MESSAGE && told === OF_ENTRY;
      const past =
        isMessage && b[value] === OPEN_BRACE ? this.object(b, value, end, OF_MESSAGE) : valueEnd(b, value, end);
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

/** Which of the names the one at `at` is, as a bit; 0 when none. */
function bitOf({ names, spelled }: Names, b: Uint8Array, at: number, end: number): number {
  for (let k = 0; k < spelled.length; k++) if (holdsAt(b, at, spelled[k])) return 1 << k;
  for (let i = at + 1; b[i] !== QUOTE; i++) {
    if (b[i] !== BACKSLASH) continue;
    // Escapes can spell any of them.
    const k = names.indexOf(stringAt(b, at, end));
    return k < 0 ? 0 : 1 << k;
  }
  return 0;
}
