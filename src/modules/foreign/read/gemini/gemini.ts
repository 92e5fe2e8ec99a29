/**
 * Gemini CLI's session files: `session-<time>-<id>.jsonl`, a record on each line, and the older `.json`, one document
 * with the messages in a list. Both have the same messages.
 */

import { isObject, type JsonObject } from "../../../../core/foreign/messages.ts";
import { toBytes, tryParse } from "../../../../core/json/json.ts";
import { isArrayAt, readDocumentRecords, readRest, splitParts, toRecordBytes, toWholePart } from "../documents.ts";
import { readLineBeginning, type Skim } from "../skim.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { GeminiTranslation } from "./translation.ts";

const TYPES = new Set(["user", "gemini", "info", "warning", "error"]);
/** Members that `$set` is known to have. */
const SET = ["lastUpdated", "messages", "summary", "sessionId", "directories", "memoryScratchpad"];

export const geminiLines: Translator = {
  agent: "gemini",
  title: "Gemini CLI",
  form: { kind: "lines" },
  recognises: ({ lines }) => lines.some(isOfGemini),
  isRecord: (record) => isOfGemini(record) || isMessageRecord(record),
  skim: makeGeminiSkim,
  begin: (tools) => new GeminiTranslation(tools),
};

export const geminiDocument: Translator = {
  ...geminiLines,
  form: { kind: "document", records: (document) => readDocumentRecords(document, "messages") },
  recognises: isDocument,
};

function isOfGemini(record: JsonObject): boolean {
  const { $rewindTo, $set, sessionId, projectHash, startTime, id, timestamp, type, content } = record;
  if (typeof $rewindTo === "string") return true;
  if (isObject($set)) return SET.some((name) => name in $set);
  if (typeof sessionId === "string" && [projectHash, startTime].some((one) => typeof one === "string")) return true;
  return type === "gemini" && typeof id === "string" && typeof timestamp === "string" && content !== undefined;
}

function isDocument({ bytes }: Beginnings): boolean {
  if (isIndented(bytes)) return true;
  const { parts, end } = splitParts(bytes, toWholePart(bytes));
  // Another line comes after the first one.
  const [rest] = readRest(bytes, end);
  if (rest?.[0] === 0x7b) return false;
  const list = parts.find((part) => part.name === "messages" && isArrayAt(bytes, part));
  if (!list) return false;
  const names = new Set(parts.map(({ name }) => name));
  if (names.has("sessionId") && names.has("projectHash")) return true;
  const [first] = splitParts(bytes, list).parts;
  return first !== undefined && isMessage(toRecordBytes(bytes, first)) && !names.has("version");
}

/** Returns whether a document has, on lines of their own, members of Gemini CLI's only: it may be damaged elsewhere. */
function isIndented(bytes: Uint8Array): boolean {
  const text = new TextDecoder().decode(bytes);
  return /^[ \t]+"projectHash": "/m.test(text) && /^[ \t]+"messages": \[/m.test(text);
}

function isMessage(bytes: Uint8Array): boolean {
  const value = tryParse(bytes);
  return isObject(value) && isMessageRecord(value);
}

function isMessageRecord({ type, id, timestamp, content }: JsonObject): boolean {
  return TYPES.has(String(type)) && typeof id === "string" && typeof timestamp === "string" && content !== undefined;
}

// --- counting messages for lists ------------------------------------------------------------------------------------

const LINE = /^\{"id":"([^"\\]+)","timestamp":"[^"]*","type":"(user|gemini)"/;
/** The beginning of a result; in a text, its quotes are escaped. */
const RESULT = toBytes('"functionResponse":{');

function makeGeminiSkim(): Skim {
  // A message is written again when something is added to it.
  const counted = new Map<string, number>();
  return (line) => {
    const begun = readLineBeginning(line);
    if (begun.startsWith('{"$set":{"lastUpdated":"') && line.length < 80) return 0;
    // The repeated conversation has hardly anything new, and counting the new part would need all the unread lines.
    if (begun.startsWith('{"$set":{"messages":[')) return 0;
    const [, id, type] = LINE.exec(begun) ?? [];
    if (id === undefined) return undefined;
    const results = resultsIn(line);
    // A person's message with results is those of the answer before it once more.
    const messages = type === "gemini" ? 1 + results : results > 0 ? 0 : 1;
    const before = counted.get(id) ?? 0;
    counted.set(id, messages);
    return messages - before;
  };
}

function resultsIn(line: Uint8Array): number {
  const bytes = Buffer.from(line.buffer, line.byteOffset, line.length);
  let results = 0;
  for (let at = bytes.indexOf(RESULT); at >= 0; at = bytes.indexOf(RESULT, at + 1)) results++;
  return results;
}
