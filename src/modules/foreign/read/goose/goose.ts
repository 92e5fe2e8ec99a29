/**
 * Goose's exports: one JSON document with the facts of the session and, in `conversation`, its messages. The facts are
 * the first record, each message is one. Older versions kept the same in a file of lines, the facts in the first.
 */

import { findValueEnd, splitLines } from "../../../../core/json/json.ts";
import { isArrayAt, isObjectAt, readDocumentRecords, splitParts, toWholePart } from "../documents.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { GooseTranslation } from "./translation.ts";

const OPEN_BRACE = 0x7b;
const LINE_FEED = 0x0a;

export const goose: Translator = {
  agent: "goose",
  title: "Goose",
  form: { kind: "document", records },
  recognises,
  // The older versions' lines.
  isRecord: ({ role, created, content }) =>
    typeof role === "string" && typeof created === "number" && Array.isArray(content),
  begin: (tools) => new GooseTranslation(tools),
};

function records(b: Uint8Array): Iterable<Uint8Array> {
  return isOlder(b) ? splitLines(b) : readDocumentRecords(b, "conversation");
}

/** Returns whether the first line is a whole object, and another one comes after it. */
function isOlder(b: Uint8Array): boolean {
  const feed = b.indexOf(LINE_FEED);
  if (b[0] !== OPEN_BRACE || feed < 0 || b[feed + 1] !== OPEN_BRACE) return false;
  return findValueEnd(b, 0, feed) >= 0;
}

function recognises({ bytes, lines }: Beginnings): boolean {
  const [facts, first] = lines;
  if (facts && first && isOlder(bytes))
    return typeof facts.working_dir === "string" && typeof first.created === "number" && Array.isArray(first.content);
  const { parts } = splitParts(bytes, toWholePart(bytes));
  const names = new Map(parts.map((part) => [part.name, part]));
  const list = names.get("conversation");
  if (list) return names.has("working_dir") && isArrayAt(bytes, list);
  // Recipes and extensions, which come before, may be longer than the beginning.
  if (!names.has("working_dir") || !names.has("id")) return false;
  const own = ["user_set_name", "session_type", "extension_data", "accumulated_total_tokens"];
  return own.some((name) => names.has(name)) && parts.every((part) => part.name !== "info" || !isObjectAt(bytes, part));
}
