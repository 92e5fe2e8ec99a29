/** Text that does nothing to whoever shows it. */

import { jsonText } from "../json/json.ts";

// Control characters but line feeds and tabs, and the marks that turn the direction of text for whatever follows them.
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
const ACTIVE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

/** Characters that act instead of being seen, made visible: controls as their pictures, others as a replacement. */
export function visibleText(text: string): string {
  return text
    .replace(/\r\n/g, "\n")
    .replace(ACTIVE, (c) => (c < " " ? String.fromCharCode(0x2400 + c.charCodeAt(0)) : "\ufffd"));
}

/** Arguments of a tool call, readable. */
export function argumentsText(value: unknown): string {
  if (value === undefined) return "";
  try {
    return JSON.stringify(value, null, 2);
  } catch {
    // Nested deeper than that goes.
    return jsonText(value);
  }
}
