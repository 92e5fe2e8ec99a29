/** Sentences for hosts that are being written: what is probably wrong with input that cannot be read. */

import { commandNames } from "../../handlers/shared/find.ts";
import type { FramingName } from "./framing.ts";

const ONE_LINE = "one message per line, without line breaks inside it";
const COUNTS_BYTES = "Content-Length counts bytes, not characters";

/** Characters of a message that are looked at; the mistakes show at the beginning or at the end. */
const LOOKED_AT = 1 << 16;

/** Returns a sentence about a payload that is not UTF-8. */
export function notUtf8(framing: FramingName): string {
  return `The message is not UTF-8.${framing === "headers" ? ` Where a character was cut: ${COUNTS_BYTES}.` : ""}`;
}

/** Returns a sentence about a payload that is not JSON. */
export function notJson(text: string, framing: FramingName): string {
  return `The message is not JSON. ${guess(text.trim(), framing)}`.trim();
}

function guess(text: string, framing: FramingName): string {
  if (framing === "lines" && /^content-(?:length|type)\s*:/i.test(text))
    return `This is a header, but messages come as lines here: send ${ONE_LINE}, or start the server with --framing headers.`;
  if (/^[[{][\s[{]*'/.test(text)) return "Strings of JSON have double quotes, and members have quotes too.";
  if (/^[[{]\s*[A-Za-z_$]\w*\s*:/.test(text)) return 'The names of members have double quotes: {"jsonrpc":"2.0"}.';
  if (/^[[{]/.test(text) && isIncomplete(text))
    return framing === "lines" ? `It ends too early: send ${ONE_LINE}.` : `It ends too early: ${COUNTS_BYTES}.`;
  if (framing === "lines" && /^(?:[\]}],?|"[^"]*"\s*:.*)$/s.test(text))
    return `It is a part of a message that was sent in several lines: send ${ONE_LINE}.`;
  if (/,\s*[\]}]/.test(text.slice(-LOOKED_AT))) return "There is a comma with nothing after it.";
  return "";
}

/** Returns a sentence about bytes that come where a header was expected. */
export function badHeader(reason: string, beginning: string): string {
  const hint = /^\s*[[{]/.test(beginning)
    ? " A message came without its header: send Content-Length: <bytes>, an empty line, and the message, or start the server with --framing lines."
    : /^[^\r\n]*\S/.test(beginning) && !/^content-/i.test(beginning)
      ? ` Where the message before was cut: ${COUNTS_BYTES}.`
      : "";
  return `The header block cannot be read: ${reason}.${hint}`;
}

/** Returns whether a text ends inside a string, an object or a list. */
function isIncomplete(text: string): boolean {
  let depth = 0;
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (inString) {
      if (c === "\\") i++;
      else if (c === '"') inString = false;
    } else if (c === '"') inString = true;
    else if (c === "{" || c === "[") depth++;
    else if (c === "}" || c === "]") depth--;
    if (depth === 0 && i > 0 && !inString) return false;
  }
  return true;
}

/** Returns a question about the nearest command; undefined when none is near. */
export function nearest(name: string): string | undefined {
  const wanted = plain(name);
  let best: string | undefined;
  let least = 4;
  for (const known of commandNames) {
    const distance = plain(known) === wanted ? 0 : editDistance(wanted, plain(known), least);
    if (distance >= least || distance > known.length / 3) continue;
    best = known;
    least = distance;
  }
  return best === undefined ? undefined : `Did you mean ${best}?`;
}

/** Returns a name without what differs by habit: `getState`, `get-state` and `session/getState` are `getstate`. */
function plain(name: string): string {
  return name
    .slice(0, 100)
    .replace(/^.*[/:]/, "")
    .replace(/[^A-Za-z0-9]/g, "")
    .toLowerCase();
}

/** Returns how many letters differ (Levenshtein), or `most` when that is reached. */
function editDistance(a: string, b: string, most: number): number {
  if (Math.abs(a.length - b.length) >= most) return most;
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++)
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1));
    if (Math.min(...next) >= most) return most;
    row = next;
  }
  return Math.min(row[b.length], most);
}
