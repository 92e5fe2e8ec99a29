/** Records as lines that every reader takes. */

import type { JsonObject } from "../../../core/foreign/messages.ts";
import { replaceHalves } from "../../../core/json/halves.ts";
import { toJsonText } from "../../../core/json/json.ts";

/** Returns a record as a line. Some readers of lines cut them at U+2028 and U+2029, too. */
export function toRecordLine(record: JsonObject): string {
  const text = replaceHalves(toJsonText(record));
  return `${text.replace(/[\u2028\u2029]/g, (c) => (c === "\u2028" ? "\\u2028" : "\\u2029"))}\n`;
}
