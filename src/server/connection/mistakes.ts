/** Sentences for authors of new hosts: the probable mistake in unreadable input. */

import { commandNames } from "../../handlers/shared/find.ts";
import type { DialectName } from "./dialect.ts";
import type { FramingName } from "./framing.ts";

const ONE_LINE = "one message per line, without line breaks inside it";
const COUNTS_BYTES = "Content-Length counts bytes, not characters";

const UTF_16 = "The message is in UTF-16. Send UTF-8.";
const REQUEST = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}';

/** Characters of a message to examine; mistakes show at the beginning or at the end. */
const LOOKED_AT = 1 << 16;

/** Returns a sentence about a payload that is not UTF-8. */
export function explainNotUtf8(bytes: Uint8Array, framing: FramingName): string {
  const isUtf16 = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
  if (isUtf16) return UTF_16;
  return `The message is not UTF-8.${framing === "headers" ? ` Where a character was cut: ${COUNTS_BYTES}.` : ""}`;
}

/** Returns the sentence about a message of the dialect that a connection does not speak. */
export function explainOtherDialect(spoken: string, other: DialectName): string {
  return `This connection speaks ${spoken}, as its first message or --dialect decided, and this is a message of the other dialect. Send all in one, or start the server with --dialect ${other}.`;
}

/** Returns a sentence about a payload that is not JSON. Its work is bounded by the payload's length. */
export function explainNotJson(text: string, framing: FramingName): string {
  // In UTF-16 every second byte of ASCII is zero; a line feed leaves one of its zeros to the next line.
  if (text.slice(0, 4).includes("\0")) return UTF_16;
  return `The message is not JSON. ${guess(text.trim(), framing)}`.trim();
}

function guess(text: string, framing: FramingName): string {
  if (framing === "lines" && /^content-(?:length|type)\s*:/i.test(text))
    return `This is a header, but messages come as lines here: send ${ONE_LINE}, or start the server with --framing headers.`;
  if (/^[[{][\s[{]*'/.test(text)) return "Strings of JSON have double quotes, and members have quotes too.";
  if (/^[[{]\s*[A-Za-z_$]\w*\s*:/.test(text)) return 'The names of members have double quotes: {"jsonrpc":"2.0"}.';
  if (/^[A-Z]{3,7} \S{1,2000} HTTP\/\d/.test(text))
    return "This is HTTP, but the server speaks on its stdin and stdout: start it as a child process.";
  if (/^[[{]/.test(text)) {
    const end = endOfValue(text);
    if (end === text.length)
      return framing === "lines" ? `It ends too early: send ${ONE_LINE}.` : `It ends too early: ${COUNTS_BYTES}.`;
    if (/^\s*[[{]/.test(text.slice(end + 1, end + 100)))
      return `Where it ends, another one follows it: send ${framing === "lines" ? ONE_LINE : "each with a Content-Length of its own"}.`;
  }
  if (framing === "lines" && /^(?:[\]}],?|"[^"]*"\s*:.*)$/s.test(text))
    return `It is a part of a message that was sent in several lines: send ${ONE_LINE}.`;
  if (/,\s*[\]}]/.test(text.slice(-LOOKED_AT))) return "There is a comma with nothing after it.";
  if (/(?:^|[[:,])\s*(?:None|True|False)\s*(?:[\]},]|$)/.test(text.slice(0, LOOKED_AT)))
    return "None, True and False are written null, true and false in JSON; in Python, json.dumps does it.";
  if (/^[\w$]/.test(text)) return `A message is an object, such as ${REQUEST}.`;
  return "";
}

/** Returns a sentence about bytes at the position of a header. */
export function explainBadHeader(reason: string, beginning: string): string {
  const hint = /^\s*[[{]/.test(beginning)
    ? " A message came without its header: send Content-Length: <bytes>, an empty line, and the message, or start the server with --framing lines."
    : /^[^\r\n]*\S/.test(beginning) && !/^content-/i.test(beginning)
      ? ` Where the message before was cut: ${COUNTS_BYTES}.`
      : "";
  return `The header block cannot be read: ${reason}.${hint}`;
}

/** Returns the end of the string, object or list that begins a text: the text's length if it does not end. */
function endOfValue(text: string): number {
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
    if (depth === 0 && i > 0 && !inString) return i;
  }
  return text.length;
}

/** Other words for commands, as {@link plain} has them. */
const OTHER_WORDS: Readonly<Record<string, readonly string[]>> = {
  append: words(
    "add addmessage addentry appendmessage appendentry save savemessage sendmessage write insert push message",
  ),
  new_session: words(
    "new create createsession sessionnew sessioncreate startsession newconversation newchat newthread",
  ),
  switch_session: words("load resume loadsession resumesession sessionload sessionresume sessionopen selectsession"),
  get_messages: words("history gethistory messages listmessages readmessages loadmessages conversation messagehistory"),
  list_sessions: words("sessions getsessions sessionslist sessionlist listconversations listthreads allsessions"),
  delete_session: words("delete removesession deleteconversation sessiondelete remove"),
  set_session_name: words("rename renamesession setname settitle sessionrename"),
  search_sessions: words("search find searchmessages"),
  branch: words("checkout goto navigate navigatetree moveleaf setleaf rewind undo"),
  get_state: words("status state info getsession sessioninfo getsessioninfo ping"),
  get_context: words("context buildcontext"),
  get_usage: words("usage getcost getcosts listcosts costs cost tokenusage spending"),
  get_tree: words("tree sessiontree"),
  close_session: words("close sessionclose closeconversation"),
  shutdown: words("quit stop"),
};

function words(list: string): readonly string[] {
  return list.split(" ");
}

/** Returns a question about the command of another word, or else the nearest; undefined when none is near. */
export function suggestCommand(name: string): string | undefined {
  const wanted = plain(name);
  const [meant] = Object.entries(OTHER_WORDS).find(([, others]) => others.includes(wanted)) ?? [];
  if (meant !== undefined) return `Did you mean ${meant}?`;
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

/** Returns a name without habitual differences: `getState`, `get-state` and `session/getState` are `getstate`. */
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
