/**
 * Files of Cline and of the programs that came from it. Cline's own are documents with the messages in a list,
 * `<id>.messages.json`; before, and in Roo Code and Kilo Code, each task has a list of messages alone,
 * `api_conversation_history.json`, and beside it what is shown of it, `ui_messages.json`. Kilo Code writes what Roo Code
 * writes, and cannot be told from it by that.
 */

import { parse } from "../../json/json.ts";
import { documentRecords, listRecords, partsOf, wholeOf } from "../documents.ts";
import { isObject } from "../messages.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { ScreenTranslation } from "./screen.ts";
import { ClineTranslation } from "./translation.ts";

export const clineMessages: Translator = {
  agent: "cline",
  title: "Cline",
  form: { kind: "document", records: (document) => documentRecords(document, "messages") },
  recognises: isContract,
  begin: (tools) => new ClineTranslation(tools),
};

const list = { kind: "document", records: recordsOfList } as const;

export const clineHistory: Translator = { ...clineMessages, form: list, recognises: isOfCline };

export const rooHistory: Translator = {
  ...clineMessages,
  agent: "roo",
  title: "Roo Code or Kilo Code",
  form: list,
  recognises: isOfRoo,
};

/** The list of all that is shown of a task, for tasks of which nothing else is there. */
export const clineScreen: Translator = {
  ...clineMessages,
  form: list,
  recognises: isScreen,
  begin: (tools) => new ScreenTranslation(tools),
};

/** The same of Roo Code and Kilo Code, as far as it says anything that only these say. */
export const rooScreen: Translator = {
  ...clineScreen,
  agent: rooHistory.agent,
  title: rooHistory.title,
  recognises: isScreenOfRoo,
};

/** Returns the translator of a list of messages that lies where tasks have theirs, though it says nothing of whose it is. */
export function ofTask(bytes: Uint8Array): Translator | undefined {
  return listOfMessages(bytes) === null ? undefined : clineHistory;
}

/** Returns the translator of the same files of Roo Code and Kilo Code, for a file of theirs that says nothing of whose it is. */
export function asOfRoo(translator: Translator): Translator {
  return translator === clineHistory ? rooHistory : translator === clineScreen ? rooScreen : translator;
}

/**
 * Returns whether a file of a task has a message, or a line of what is shown, that can be read. Of a file that is cut off,
 * its beginning tells.
 */
export function holdsMessage(bytes: Uint8Array, isCut: boolean): boolean {
  if (listOfMessages(bytes) === null && !isScreen({ bytes })) return false;
  if (isCut) return true;
  const { parts } = partsOf(bytes, wholeOf(bytes));
  return parts.some((part) => {
    const one = part.isWhole ? parse(bytes, part.start, part.end) : undefined;
    return isObject(one) && ("role" in one || typeof one.say === "string" || typeof one.ask === "string");
  });
}

function recordsOfList(document: Uint8Array): Iterable<Uint8Array> {
  return listRecords(document, wholeOf(document));
}

function isContract({ bytes }: Beginnings): boolean {
  const text = new TextDecoder().decode(bytes);
  // Each of its facts is on a line of its own, and damage may be anywhere.
  const isOwn = /^[ \t]+"messages":\s*\[/m.test(text) && /^[ \t]+"agent":\s*"(?:lead|subagent|teammate)"/m.test(text);
  if (isOwn && /^[ \t]+"(?:updated_at|sessionId)":\s*"/m.test(text)) return true;
  const all = new Set(partsOf(bytes, wholeOf(bytes)).parts.map(({ name }) => name));
  return ["version", "updated_at", "sessionId", "messages"].every((name) => all.has(name)) && !all.has("projectHash");
}

/** Marks of Roo Code and Kilo Code in a list of messages. */
const ROO =
  /<slug>[\w-]+<\/slug>|# Current Workspace Directory \(|"(?:condense|truncation)(?:Parent|Id)"\s*:|"isTruncationMarker"|"type"\s*:\s*"thoughtSignature"|"text"\s*:\s*"<user_message>/;
/** Marks of Cline. */
const CLINE =
  /<environment_details>|"text"\s*:\s*"<task>|# Current Working Directory|"modelInfo"\s*:\s*\{|\[TASK RESUMPTION\]/;

function isOfRoo({ bytes }: Beginnings): boolean {
  const text = listOfMessages(bytes);
  return text !== null && ROO.test(text);
}

function isOfCline({ bytes }: Beginnings): boolean {
  const text = listOfMessages(bytes);
  return text !== null && !ROO.test(text) && CLINE.test(text);
}

/** Returns the text of a list whose elements are messages; null for anything else. */
function listOfMessages(bytes: Uint8Array): string | null {
  const text = new TextDecoder().decode(bytes);
  if (!/^\s*\[\s*\{/.test(text)) return null;
  return /"role"\s*:\s*"(?:user|assistant)"/.test(text) && /"content"\s*:\s*["[]/.test(text) ? text : null;
}

function isScreen({ bytes }: Pick<Beginnings, "bytes">): boolean {
  const text = new TextDecoder().decode(bytes);
  if (!/^\s*\[\s*\{/.test(text) || listOfMessages(bytes) !== null) return false;
  return /"ts"\s*:\s*\d/.test(text) && /"type"\s*:\s*"(?:say|ask)"/.test(text) && /"(?:say|ask)"\s*:\s*"\w/.test(text);
}

/** Marks of Roo Code and Kilo Code in what is shown of a task, and of Cline. */
const ROO_SHOWN =
  /"say"\s*:\s*"(?:rooignore_error|codebase_search_result|subtask_result|user_edit_todos|condense_context_error)"|\\"apiProtocol\\"|"isProtected"\s*:/;
const CLINE_SHOWN = /"(?:modelInfo|conversationHistoryIndex|lastCheckpointHash)"\s*:/;

function isScreenOfRoo(beginning: Beginnings): boolean {
  if (!isScreen(beginning)) return false;
  const text = new TextDecoder().decode(beginning.bytes);
  return ROO_SHOWN.test(text) && !CLINE_SHOWN.test(text);
}
