/**
 * Where the members of a stored message are that lists and trees show, found in the bytes of its line. Parsing a line of
 * 650 bytes takes 3.5 us, and as much again for what the parser leaves to be collected; this takes half of one.
 */

import { bytesOf, holdsAt, knownValueEnd } from "../json/json.ts";

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** NameTable by their length, as bytes. */
type NameTable = readonly (readonly { readonly name: string; readonly bytes: Uint8Array }[])[];

function namesOf(names: readonly string[]): NameTable {
  const byLength: { name: string; bytes: Uint8Array }[][] = Array.from({ length: 16 }, () => []);
  for (const name of names) byLength[name.length].push({ name, bytes: bytesOf(name) });
  return byLength;
}

/** The members of a message's entry as they are usual. Others may have text of their own. */
const OF_ENTRY = namesOf(["type", "id", "parentId", "timestamp", "_batch", "message"]);
const SHOWN = ["role", "content", "toolName", "isError", "exitCode", "cancelled", "stopReason", "command"] as const;
const OF_MESSAGE = namesOf(SHOWN);
const OF_BLOCK = namesOf(["type", "text"]);
const TEXT = bytesOf('"text"');
const TOOL_CALL = bytesOf('"toolCall"');

/** Bytes of a value; both are 0 where there is none. */
export interface Found {
  start: number;
  end: number;
}

const nowhere = (): Found => ({ start: 0, end: 0 });

function put(place: Found, start: number, end: number): void {
  place.start = start;
  place.end = end;
}

type ShownName = (typeof SHOWN)[number] | "timestamp";

export class MessagePlaces {
  readonly found: Readonly<Record<ShownName, Found>> = {
    timestamp: nowhere(),
    role: nowhere(),
    content: nowhere(),
    toolName: nowhere(),
    isError: nowhere(),
    exitCode: nowhere(),
    cancelled: nowhere(),
    stopReason: nowhere(),
    command: nowhere(),
  };
  private readonly all = Object.values(this.found);
  /** The content if it is a string, else the last of its texts; and how many there are. */
  readonly text: Found = nowhere();
  texts = 0;
  /** The blocks of the content that are tool calls. */
  readonly calls: Found[] = [];
  /** Where the value begins of the member whose name was read last. */
  private valueStart = 0;

  /** Finds the members of a line that is known to be JSON. Returns false where it is unusual: then it must be parsed. */
  read(b: Uint8Array): boolean {
    for (const place of this.all) put(place, 0, 0);
    this.forgetContent();
    let hasMessage = false;
    let at = 0;
    if (b[0] !== OPEN_BRACE) return false;
    do {
      const name = this.nameAt(b, at + 1, OF_ENTRY);
      if (name === undefined || name === "") return false;
      const start = this.valueStart;
      if (name === "message") {
        if (hasMessage || b[start] !== OPEN_BRACE) return false;
        hasMessage = true;
        at = this.readMessage(b, start);
      } else {
        at = knownValueEnd(b, start, b.length);
        if (name === "timestamp") put(this.found.timestamp, start, at);
      }
    } while (at > 0 && b[at] === COMMA);
    return hasMessage && at === b.length - 1 && b[at] === CLOSE_BRACE;
  }

  /** Whether a value is there and is exactly this text. */
  is(b: Uint8Array, name: ShownName, text: Uint8Array): boolean {
    const { start, end } = this.found[name];
    return end - start === text.length && holdsAt(b, start, text);
  }

  private forgetContent(): void {
    put(this.text, 0, 0);
    this.texts = 0;
    this.calls.length = 0;
  }

  /** Returns the name of a member, "" for any other than these, and finds its value; undefined for an unusual one. */
  private nameAt(b: Uint8Array, at: number, names: NameTable): string | undefined {
    if (b[at] !== QUOTE) return undefined;
    let end = at + 1;
    while (b[end] !== QUOTE) if (b[end++] === BACKSLASH) return undefined;
    if (b[end + 1] !== COLON) return undefined;
    this.valueStart = end + 2;
    const length = end - at - 1;
    if (length >= names.length) return "";
    for (const { name, bytes } of names[length]) if (holdsAt(b, at + 1, bytes)) return name;
    return "";
  }

  /** Returns where the message ends, or -1 where it is unusual. */
  private readMessage(b: Uint8Array, open: number): number {
    if (b[open + 1] === CLOSE_BRACE) return open + 2;
    let at = open;
    do {
      const name = this.nameAt(b, at + 1, OF_MESSAGE);
      if (name === undefined) return -1;
      const start = this.valueStart;
      at = name === "content" ? this.readContent(b, start) : knownValueEnd(b, start, b.length);
      if (name !== "") put(this.found[name as ShownName], start, at);
    } while (at > 0 && b[at] === COMMA);
    return at > 0 && b[at] === CLOSE_BRACE ? at + 1 : -1;
  }

  /** Returns where the content ends, or -1 where it is unusual. */
  private readContent(b: Uint8Array, open: number): number {
    this.forgetContent();
    if (b[open] !== OPEN_BRACKET) {
      const end = knownValueEnd(b, open, b.length);
      if (b[open] === QUOTE) {
        put(this.text, open, end);
        this.texts = 1;
      }
      return end;
    }
    if (b[open + 1] === CLOSE_BRACKET) return open + 2;
    let at = open;
    do at = b[at + 1] === OPEN_BRACE ? this.readBlock(b, at + 1) : knownValueEnd(b, at + 1, b.length);
    while (at > 0 && b[at] === COMMA);
    return at > 0 && b[at] === CLOSE_BRACKET ? at + 1 : -1;
  }

  /** Returns where a block of the content ends, or -1 where it is unusual. */
  private readBlock(b: Uint8Array, open: number): number {
    if (b[open + 1] === CLOSE_BRACE) return open + 2;
    let at = open;
    let type = 0;
    let typeEnd = 0;
    let text = 0;
    let textEnd = 0;
    do {
      const name = this.nameAt(b, at + 1, OF_BLOCK);
      if (name === undefined) return -1;
      const start = this.valueStart;
      at = knownValueEnd(b, start, b.length);
      if (name === "type") {
        type = start;
        typeEnd = at;
      } else if (name === "text") {
        text = start;
        textEnd = at;
      }
    } while (at > 0 && b[at] === COMMA);
    if (at < 0 || b[at] !== CLOSE_BRACE) return -1;
    if (type > 0 && hasEscape(b, type, typeEnd)) return -1;
    if (type > 0 && holdsAt(b, type, TEXT) && b[text] === QUOTE && text > 0) {
      put(this.text, text, textEnd);
      this.texts++;
    } else if (type > 0 && holdsAt(b, type, TOOL_CALL)) this.calls.push({ start: open, end: at + 1 });
    return at + 1;
  }
}

/** Whether a short value has an escape. */
export function hasEscape(b: Uint8Array, start: number, end: number): boolean {
  for (let i = start; i < end; i++) if (b[i] === BACKSLASH) return true;
  return false;
}

/**
 * Whether JSON.stringify writes the string `b[start, end)`, quotes included, as it is there: it has only the escapes that
 * are written, and no other form of them.
 */
export function isAsWritten(b: Uint8Array, start: number, end: number): boolean {
  for (let i = b.indexOf(BACKSLASH, start); i >= 0 && i < end; i = b.indexOf(BACKSLASH, i + 2)) {
    const c = b[i + 1];
    // \u, and a slash, may be written otherwise.
    if (c === 0x75 || c === 0x2f) return false;
  }
  return true;
}
