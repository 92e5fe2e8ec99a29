/**
 * Goose's exports: one JSON document with the facts of the session and, in `conversation`, its messages. The facts are
 * the first record, each message is one. Older versions kept the same in a file of lines, the facts in the first.
 */

import { isArrayAt, isObjectAt, objectOf, partsOf, restAfter } from "../partial.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { GooseTranslation } from "./translation.ts";

const OPEN_BRACE = 0x7b;
const LINE_FEED = 0x0a;

export const goose: Translator = {
  agent: "goose",
  title: "Goose",
  form: { kind: "document", records },
  recognises,
  begin: (tools) => new GooseTranslation(tools),
};

function* records(b: Uint8Array): Generator<Uint8Array> {
  const { parts, end } = partsOf(b);
  if (isOlder(b, end)) {
    yield* linesOf(b);
    return;
  }
  const lists = parts.filter((part) => part.name === "conversation" && isArrayAt(b, part));
  const facts = parts.filter((part) => !lists.includes(part) && part.isWhole);
  if (facts.length > 0) yield objectOf(b, facts);
  for (const list of lists)
    for (const { start, end: past } of partsOf(b, list.start, list.end).parts) yield b.subarray(start, past);
  for (const part of parts) if (!part.isWhole && !lists.includes(part)) yield b.subarray(part.start, part.end);
  const rest = restAfter(b, end);
  if (rest) yield rest;
}

/** Returns whether the first line is a whole object, and another one comes after it. */
function isOlder(b: Uint8Array, end: number): boolean {
  const feed = b.indexOf(LINE_FEED);
  return b[0] === OPEN_BRACE && feed > 0 && feed <= end + 1 && b[feed + 1] === OPEN_BRACE;
}

function* linesOf(b: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < b.length; ) {
    const feed = b.indexOf(LINE_FEED, at);
    const end = feed < 0 ? b.length : feed;
    yield b.subarray(at, end);
    at = end + 1;
  }
}

function recognises({ bytes, lines }: Beginnings): boolean {
  const [facts, first] = lines;
  if (facts && first && isOlder(bytes, bytes.length))
    return typeof facts.working_dir === "string" && typeof first.created === "number" && Array.isArray(first.content);
  const { parts } = partsOf(bytes);
  const names = new Map(parts.map((part) => [part.name, part]));
  const list = names.get("conversation");
  if (list) return names.has("working_dir") && isArrayAt(bytes, list);
  // Recipes and extensions, which come before, may be longer than the beginning.
  if (!names.has("working_dir") || !names.has("id")) return false;
  const own = ["user_set_name", "session_type", "extension_data", "accumulated_total_tokens"];
  return own.some((name) => names.has(name)) && parts.every((part) => part.name !== "info" || !isObjectAt(bytes, part));
}
