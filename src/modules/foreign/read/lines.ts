/**
 * Writes the lines of derived entries. They are written one after the other, each with a line feed after it, into few
 * large pieces of memory: making each line's own takes a tenth of a derivation, and copying them together to write them
 * to a file another twentieth.
 */

import { toBytes, toJsonText, toOneLine } from "../../../core/json/json.ts";
import type { TranslatedEntry } from "./translator.ts";

/** Bytes of a piece of memory, and of a line that gets its own. */
const PIECE = 1 << 20;
const OWN = PIECE >> 3;
const LINE_FEED = 0x0a;

export class EntryLines {
  private piece = Buffer.alloc(0);
  private at = 0;

  /** Returns the line of an entry, without line feed. */
  of(entry: TranslatedEntry): Uint8Array {
    try {
      return this.line(entry);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      // Something in it is nested too deep for JSON.stringify.
      const texts = Object.entries(entry.members).map(([name, value]): [string, unknown] => [
        name,
        value instanceof Uint8Array || value === undefined ? value : toBytes(toJsonText(value)),
      ]);
      return this.line({ ...entry, members: Object.fromEntries(texts) });
    }
  }

  private line({ type, id, parentId, timestamp, members }: TranslatedEntry): Uint8Array {
    const parts: (string | Uint8Array)[] = [];
    let text = `{"type":${JSON.stringify(type)},"id":${JSON.stringify(id)},"parentId":${JSON.stringify(parentId)},"timestamp":${JSON.stringify(timestamp)}`;
    // Nearly all have only values, and are written at once.
    if (!hasText(members)) {
      const rest = JSON.stringify(members);
      return this.write(rest === "{}" ? [`${text}}`] : [`${text},`, rest.slice(1)]);
    }
    for (const name in members) {
      const value = members[name];
      if (value instanceof Uint8Array) {
        parts.push(`${text},${JSON.stringify(name)}:`, toOneLine(value));
        text = "";
        continue;
      }
      // Values that JSON does not have (undefined, functions) are left out, as JSON.stringify does.
      const json: string | undefined = JSON.stringify(value);
      if (json !== undefined) text += `,${JSON.stringify(name)}:${json}`;
    }
    parts.push(`${text}}`);
    return this.write(parts);
  }

  private write(parts: readonly (string | Uint8Array)[]): Uint8Array {
    let most = 1;
    for (const part of parts) most += typeof part === "string" ? 3 * part.length : part.length;
    if (most > OWN) return Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part)));
    if (this.piece.length - this.at < most) {
      this.piece = Buffer.allocUnsafeSlow(PIECE);
      this.at = 0;
    }
    const { piece, at: start } = this;
    let at = start;
    for (const part of parts) {
      if (typeof part === "string") at += piece.write(part, at);
      else {
        piece.set(part, at);
        at += part.length;
      }
    }
    piece[at] = LINE_FEED;
    this.at = at + 1;
    return piece.subarray(start, at);
  }
}

function hasText(members: TranslatedEntry["members"]): boolean {
  for (const name in members) if (members[name] instanceof Uint8Array) return true;
  return false;
}
