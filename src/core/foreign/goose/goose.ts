/**
 * Goose's exports: one JSON document with the facts of the session and, in `conversation`, its messages. The facts are
 * the first record, each message is one.
 */

import { isArrayAt, isObjectAt, objectOf, partsOf, restAfter } from "../partial.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { GooseTranslation } from "./translation.ts";

export const goose: Translator = {
  agent: "goose",
  title: "Goose",
  form: { kind: "document", records },
  recognises,
  begin: (tools) => new GooseTranslation(tools),
};

function* records(b: Uint8Array): Generator<Uint8Array> {
  const { parts, end } = partsOf(b);
  const lists = parts.filter((part) => part.name === "conversation" && isArrayAt(b, part));
  const facts = parts.filter((part) => !lists.includes(part) && part.isWhole);
  if (facts.length > 0) yield objectOf(b, facts);
  for (const list of lists)
    for (const { start, end: past } of partsOf(b, list.start, list.end).parts) yield b.subarray(start, past);
  for (const part of parts) if (!part.isWhole && !lists.includes(part)) yield b.subarray(part.start, part.end);
  const rest = restAfter(b, end);
  if (rest) yield rest;
}

function recognises({ bytes }: Beginnings): boolean {
  const { parts } = partsOf(bytes);
  const names = new Map(parts.map((part) => [part.name, part]));
  const list = names.get("conversation");
  if (list) return names.has("working_dir") && isArrayAt(bytes, list);
  // Recipes and extensions, which come before, may be longer than the beginning.
  if (!names.has("working_dir") || !names.has("id")) return false;
  const own = ["user_set_name", "session_type", "extension_data", "accumulated_total_tokens"];
  return own.some((name) => names.has(name)) && parts.every((part) => part.name !== "info" || !isObjectAt(bytes, part));
}
