/**
 * Finds the members of an entry's head at both ends of its line, in any order and spelling, without reading the bytes
 * between them: long lines have their long texts there.
 */

import { findValueEnd, findValueStart, holdsAt, skipSpace } from "../json/json.ts";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

const NAMES = ["type", "id", "parentId", "customType", "_batch", "role", "message"] as const;
const SPELLED = NAMES.map((name) => Uint8Array.from(`"${name}"`, (c) => c.charCodeAt(0)));
const [TYPE, ID, PARENT, CUSTOM, BATCH, ROLE, MESSAGE] = NAMES.keys();

/** Bytes of a value before the end of a line that is passed over: usage of tokens and costs takes 200. */
const NESTED = 256;
/** Bytes at the end of a line that are searched for its last member. */
const LAST = 512;
const LAST_OF_ROLE = 0x65;

export class LineEnds {
  /** Start of each member's value, by its place in {@link NAMES}; -1 for one that was not found. */
  private readonly starts = new Int32Array(NAMES.length);
  /** True if reading from the beginning stopped within the message. */
  private isInMessage = false;

  get type(): number {
    return this.starts[TYPE];
  }
  get id(): number {
    return this.starts[ID];
  }
  get parentId(): number {
    return this.starts[PARENT];
  }
  get customType(): number {
    return this.starts[CUSTOM];
  }
  get role(): number {
    return this.starts[ROLE];
  }
  get isBatch(): boolean {
    return this.starts[BATCH] >= 0;
  }

  /** Reads the members from the beginning of the line at `start` up to one that does not end before `end`. */
  readBeginning(b: Uint8Array, start: number, end: number): void {
    this.starts.fill(-1);
    this.isInMessage = false;
    const at = skipSpace(b, start, end);
    if (at < end && b[at] === OPEN_BRACE) this.readFrom(b, at + 1, end, false, false);
  }

  /** `isShort`: the whole message is there, so that its texts are skipped. */
  private readFrom(b: Uint8Array, from: number, end: number, isInside: boolean, isShort: boolean): void {
    let isInMessage = isInside;
    let i = skipSpace(b, from, end);
    for (;;) {
      const value = findValueStart(b, i, end);
      if (value < 0 || value >= end) break;
      const name = nameAt(b, i, isInMessage);
      if (name === MESSAGE && b[value] === OPEN_BRACE) {
        isInMessage = true;
        i = skipSpace(b, value + 1, end);
        continue;
      }
      // The texts of a message: the members after them are read from the end.
      if (isInMessage && !isShort && b[value] === OPEN_BRACKET) break;
      const past = findValueEnd(b, value, end);
      if (past < 0) break;
      this.take(name, value);
      i = skipSpace(b, past, end);
      // The members after it are no part of the usual head, except a second role.
      const isHead = name === ROLE && this.type >= 0 && this.id >= 0 && this.parentId >= 0;
      if (isHead && nameAt(b, skipSpace(b, i + 1, end), true) !== ROLE) break;
      if (isInMessage && i < end && b[i] === CLOSE_BRACE) {
        isInMessage = false;
        i = skipSpace(b, i + 1, end);
      }
      if (i >= end || b[i] !== COMMA) break;
      i = skipSpace(b, i + 1, end);
    }
    this.isInMessage = isInMessage;
  }

  /** Reads the members from the end of a line back to one that does not begin after `start`. */
  readEnd(b: Uint8Array, start: number, end: number): void {
    let isInMessage = false;
    /** The comma or brace after the next value. */
    let mark = spaceStart(b, start, end) - 1;
    if (mark < start || b[mark] !== CLOSE_BRACE) return;
    for (;;) {
      const past = spaceStart(b, start, mark);
      const value = valueBefore(b, Math.max(start, past - NESTED), past);
      if (value < 0) {
        if (isInMessage || !this.isInMessage || past <= start || b[past - 1] !== CLOSE_BRACE) return;
        // The message, whose beginning was read.
        isInMessage = true;
        mark = past - 1;
        continue;
      }
      const colon = spaceStart(b, start, value) - 1;
      if (colon < start || b[colon] !== COLON) return;
      const at = stringBefore(b, start, spaceStart(b, start, colon));
      if (at < 0) return;
      const name = nameAt(b, at, isInMessage);
      this.take(name, value);
      if (name === MESSAGE && b[value] === OPEN_BRACE) this.readFrom(b, value + 1, past, true, true);
      else if (name === ROLE) return;
      mark = spaceStart(b, start, at) - 1;
      if (mark < start || b[mark] !== COMMA) return;
    }
  }

  /** Returns whether the last member of the line, if its end shows it, is a second one with a name that was found. */
  isRepeatedAtEnd(b: Uint8Array, end: number): boolean {
    const { starts } = this;
    const at = lastMember(b, starts[TYPE], end, false);
    const name = at < 0 ? -1 : nameAt(b, at, false);
    if (name >= 0) return starts[name] >= 0 && starts[name] < at;
    const inside = at < 0 ? lastMember(b, starts[TYPE], end, true) : -1;
    return inside > starts[ROLE] && starts[ROLE] >= 0 && nameAt(b, inside, true) === ROLE;
  }

  /** Notes a value: of several members with one name the last counts. */
  private take(name: number, value: number): void {
    if (name >= 0 && value > this.starts[name]) this.starts[name] = value;
  }
}

/**
 * Returns whether the line that ends at `end` has a member of a head after its usual head, which ends at `start`. A
 * parser takes the last of several with one name. Looks at the last member alone, which is free for a usual line.
 */
export function endsInHead(b: Uint8Array, start: number, end: number, isMessage: boolean): boolean {
  // If the message is not the last member, another one comes after the head.
  if (isMessage && (b[end - 1] !== CLOSE_BRACE || b[end - 2] !== CLOSE_BRACE)) return true;
  if (isMessage) {
    // Nearly every message ends with a time, whose name has another last letter than `role`.
    let i = end - 3;
    while (b[i] >= 0x30 && b[i] <= 0x39) i--;
    if (i < end - 3 && b[i] === COLON && b[i - 1] === QUOTE && b[i - 2] !== LAST_OF_ROLE) return false;
  }
  const at = lastMember(b, start, end, isMessage);
  return at >= 0 && nameAt(b, at, isMessage) >= 0;
}

/**
 * Returns the start of the last member's name in the line that ends at `end`, or in the object that ends the line; -1
 * unless its value is a scalar that begins after `start` and among the last bytes.
 */
function lastMember(b: Uint8Array, start: number, end: number, isInside: boolean): number {
  const from = Math.max(start, end - LAST);
  let past = spaceStart(b, from, end) - 1;
  if (isInside) past = spaceStart(b, from, past) - 1;
  past = spaceStart(b, from, past);
  if (past <= from || b[past] === undefined || (b[past - 1] | 0x20) === CLOSE_BRACE) return -1;
  const value = valueBefore(b, from, past);
  const colon = value < 0 ? -1 : spaceStart(b, from, value) - 1;
  return colon < from || b[colon] !== COLON ? -1 : stringBefore(b, from, spaceStart(b, from, colon));
}

/** Returns the place in {@link NAMES} of the name at `at`; -1 for one that counts for nothing there. */
function nameAt(b: Uint8Array, at: number, isInMessage: boolean): number {
  if (isInMessage) return holdsAt(b, at, SPELLED[ROLE]) ? ROLE : -1;
  for (let name = 0; name < NAMES.length; name++)
    if (name !== ROLE && b[at + 1] === SPELLED[name][1] && holdsAt(b, at, SPELLED[name])) return name;
  return -1;
}

/** Returns the start of the white space that ends at `past`. */
function spaceStart(b: Uint8Array, start: number, past: number): number {
  let i = past;
  while (i > start && (b[i - 1] === 0x20 || b[i - 1] === 0x09 || b[i - 1] === 0x0d)) i--;
  return i;
}

/** Returns the start of the string that ends at `past`; -1 if that is not after `start`. */
function stringBefore(b: Uint8Array, start: number, past: number): number {
  if (past <= start || b[past - 1] !== QUOTE) return -1;
  for (let i = past - 2; i > start; i--) {
    if (b[i] !== QUOTE) continue;
    let escapes = i;
    while (escapes > start && b[escapes - 1] === BACKSLASH) escapes--;
    if ((i - escapes) % 2 === 0) return escapes > start ? i : -1;
  }
  return -1;
}

/** Returns the start of the value that ends at `past`; -1 if that is not after `start`. */
function valueBefore(b: Uint8Array, start: number, past: number): number {
  let depth = 0;
  for (let i = past; i > start; ) {
    const c = b[i - 1];
    if (c === QUOTE) {
      i = stringBefore(b, start, i);
      if (i < 0) return -1;
    } else {
      i--;
      // [ and { differ in one bit, and each is two less than its closing bracket.
      if ((c | 0x20) === CLOSE_BRACE) depth++;
      else if ((c | 0x20) === OPEN_BRACE) depth--;
      else if (depth > 0) continue;
      else while (i > start && b[i - 1] > 0x20 && b[i - 1] !== COLON) i--;
    }
    if (depth === 0) return i;
  }
  return -1;
}
