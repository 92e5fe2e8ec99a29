/** The lines of derived entries. */

import { toBytes, toJsonText, toOneLine } from "../../../core/json/json.ts";
import type { TranslatedEntry } from "./translator.ts";

/** Returns the line of an entry, without line feed. */
export function toEntryLine(entry: TranslatedEntry): Uint8Array {
  try {
    return writeLine(entry);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    // Something in it is nested too deep for JSON.stringify.
    const texts = Object.entries(entry.members).map(([name, value]): [string, unknown] => [
      name,
      value instanceof Uint8Array || value === undefined ? value : toBytes(toJsonText(value)),
    ]);
    return writeLine({ ...entry, members: Object.fromEntries(texts) });
  }
}

function writeLine({ type, id, parentId, timestamp, members }: TranslatedEntry): Uint8Array {
  const parts: Uint8Array[] = [];
  let text = JSON.stringify({ type, id, parentId, timestamp }).slice(0, -1);
  for (const name in members) {
    const value = members[name];
    if (value instanceof Uint8Array) {
      parts.push(toBytes(`${text},${JSON.stringify(name)}:`), toOneLine(value));
      text = "";
      continue;
    }
    // Values that JSON does not have (undefined, functions) are left out, as JSON.stringify does.
    const json: string | undefined = JSON.stringify(value);
    if (json !== undefined) text += `,${JSON.stringify(name)}:${json}`;
  }
  return Buffer.concat([...parts, toBytes(`${text}}`)]);
}
