/**
 * Files of Cline and of the programs that came from it. Cline's own are documents with the messages in a list,
 * `<id>.messages.json`. In older versions, and in Roo Code and Kilo Code, each task has a plain list of messages,
 * `api_conversation_history.json`, and in the same folder the list that a person sees, `ui_messages.json`. Kilo Code
 * writes the same content as Roo Code, so that a file does not show which of them wrote it.
 */

import { isObject } from "../../../../core/foreign/messages.ts";
import { parse } from "../../../../core/json/json.ts";
import { listRecords, readDocumentRecords, splitParts, toWholePart } from "../documents.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { ScreenTranslation } from "./screen.ts";
import { ClineTranslation } from "./translation.ts";

export const clineMessages: Translator = {
  agent: "cline",
  title: "Cline",
  form: { kind: "document", records: (document) => readDocumentRecords(document, "messages") },
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

/** The list that a person sees of a task, for tasks without any other file. */
export const clineScreen: Translator = {
  ...clineMessages,
  form: list,
  recognises: isScreen,
  begin: (tools) => new ScreenTranslation(tools),
};

/** The same of Roo Code and Kilo Code, if it has a mark that only these write. */
export const rooScreen: Translator = {
  ...clineScreen,
  agent: rooHistory.agent,
  title: rooHistory.title,
  recognises: isScreenOfRoo,
};

/** Returns the translator of a list of messages at the path of a task's list that does not name its program. */
export function recogniseTask(bytes: Uint8Array): Translator | undefined {
  return listOfMessages(bytes) === null ? undefined : clineHistory;
}

/** Returns the translator of the same files of Roo Code and Kilo Code, for one that does not name its program. */
export function toRooTranslator(translator: Translator): Translator {
  return translator === clineHistory ? rooHistory : translator === clineScreen ? rooScreen : translator;
}

/**
 * Returns whether a file of a task has a readable message, or a readable line for a person. For a truncated file, its
 * beginning decides.
 */
export function holdsMessage(bytes: Uint8Array, isCut: boolean): boolean {
  if (listOfMessages(bytes) === null && !isScreen({ bytes })) return false;
  if (isCut) return true;
  const { parts } = splitParts(bytes, toWholePart(bytes));
  return parts.some((part) => {
    const one = part.isWhole ? parse(bytes, part.start, part.end) : undefined;
    return isObject(one) && ("role" in one || typeof one.say === "string" || typeof one.ask === "string");
  });
}

function recordsOfList(document: Uint8Array): Iterable<Uint8Array> {
  return listRecords(document, toWholePart(document));
}

function isContract({ bytes }: Beginnings): boolean {
  const text = new TextDecoder().decode(bytes);
  // Each of its facts is on a line of its own, and damage may be anywhere.
  const isOwn = /^[ \t]+"messages":\s*\[/m.test(text) && /^[ \t]+"agent":\s*"(?:lead|subagent|teammate)"/m.test(text);
  if (isOwn && /^[ \t]+"(?:updated_at|sessionId)":\s*"/m.test(text)) return true;
  const all = new Set(splitParts(bytes, toWholePart(bytes)).parts.map(({ name }) => name));
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

/** Marks of Roo Code and Kilo Code in the list that a person sees, and of Cline. */
const ROO_SHOWN =
  /"say"\s*:\s*"(?:rooignore_error|codebase_search_result|subtask_result|user_edit_todos|condense_context_error)"|\\"apiProtocol\\"|"isProtected"\s*:/;
const CLINE_SHOWN = /"(?:modelInfo|conversationHistoryIndex|lastCheckpointHash)"\s*:/;

function isScreenOfRoo(beginning: Beginnings): boolean {
  if (!isScreen(beginning)) return false;
  const text = new TextDecoder().decode(beginning.bytes);
  return ROO_SHOWN.test(text) && !CLINE_SHOWN.test(text);
}
