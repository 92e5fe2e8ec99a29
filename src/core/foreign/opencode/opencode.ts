/**
 * opencode's exports: one JSON document with the facts of the session and its messages, each with its parts. The facts,
 * each message and each part are records, so that damage costs no more than one of them.
 */

import { type DocumentPart, isArrayAt, isObjectAt, memberAlone, partsOf, restAfter } from "../partial.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { OpencodeTranslation } from "./translation.ts";

export const opencode: Translator = {
  agent: "opencode",
  title: "opencode",
  form: { kind: "document", records },
  recognises,
  begin: (tools) => new OpencodeTranslation(tools),
};

function* records(b: Uint8Array): Generator<Uint8Array> {
  const { parts, end } = partsOf(b);
  const has = (name: string, isIt: typeof isArrayAt) => parts.filter((part) => part.name === name && isIt(b, part));
  const infos = has("info", isObjectAt);
  const lists = has("messages", isArrayAt);
  for (const { start, end: past } of infos) yield b.subarray(start, past);
  for (const list of lists)
    for (const message of partsOf(b, list.start, list.end).parts) yield* messageRecords(b, message);
  for (const part of parts) if (!infos.includes(part) && !lists.includes(part)) yield memberAlone(b, part);
  const rest = restAfter(b, end);
  if (rest) yield rest;
}

function* messageRecords(b: Uint8Array, message: DocumentPart): Generator<Uint8Array> {
  const { parts } = isObjectAt(b, message) ? partsOf(b, message.start, message.end) : { parts: [] };
  const isInfo = (part: DocumentPart): boolean => part.name === "info" && isObjectAt(b, part);
  if (!parts.some((part) => isInfo(part) || (part.name === "parts" && isArrayAt(b, part)))) {
    yield b.subarray(message.start, message.end);
    return;
  }
  for (const part of parts) if (isInfo(part)) yield b.subarray(part.start, part.end);
  for (const part of parts) {
    if (isInfo(part)) continue;
    if (part.name === "parts" && isArrayAt(b, part))
      for (const { start, end } of partsOf(b, part.start, part.end).parts) yield b.subarray(start, end);
    else yield memberAlone(b, part);
  }
}

function recognises({ bytes }: Beginnings): boolean {
  const { parts } = partsOf(bytes);
  const info = parts.find(({ name }) => name === "info");
  if (!info || !isObjectAt(bytes, info)) return false;
  const facts = new Map(partsOf(bytes, info.start, info.end).parts.map((part) => [part.name, part]));
  const id = facts.get("id");
  if (!id || !/^"ses_/.test(new TextDecoder().decode(bytes.subarray(id.start, Math.min(id.end, id.start + 100)))))
    return false;
  return ["projectID", "directory", "slug", "version", "title"].some((name) => facts.has(name));
}
