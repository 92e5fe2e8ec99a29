/** Records as lines that every reader takes. */

import type { JsonObject } from "../../foreign/messages.ts";
import { jsonText } from "../../json/json.ts";

/** Halves of characters, which JSON.stringify escapes; an escaped backslash is looked past. */
const ALONE = /\\\\|\\u[dD][89a-fA-F][0-9a-fA-F]{2}/g;
const MAYBE_ALONE = /\\u[dD][89a-fA-F]/;

/** Returns JSON text without halves of characters, because readers in other languages refuse a line that has one. */
export function withoutHalves(text: string): string {
  return MAYBE_ALONE.test(text) ? text.replace(ALONE, (found) => (found[1] === "u" ? "\\ufffd" : found)) : text;
}

/** Returns a record as a line. Some readers of lines cut them at U+2028 and U+2029, too. */
export function lineOf(record: JsonObject): string {
  const text = withoutHalves(jsonText(record));
  return `${text.replace(/[\u2028\u2029]/g, (c) => (c === "\u2028" ? "\\u2028" : "\\u2029"))}\n`;
}
