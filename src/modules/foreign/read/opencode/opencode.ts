/**
 * opencode's exports: one JSON document with the facts of the session and its messages, each with its parts. The facts,
 * each message and each part are records, so that damage costs no more than one of them.
 */

import {
  type DocumentPart,
  isArrayAt,
  isObjectAt,
  joinMembers,
  listRecords,
  readRest,
  splitMembers,
  splitParts,
  toRecordBytes,
  toWholePart,
} from "../documents.ts";
import type { Beginnings, Translator } from "../translator.ts";
import { OpencodeTranslation } from "./translation.ts";

export const opencode: Translator = {
  agent: "opencode",
  title: "opencode",
  form: { kind: "document", records },
  recognises,
  begin: (tools) => new OpencodeTranslation(tools),
};

/** The facts of a session alone; older versions have its messages in files of their own. */
export const opencodeFacts: Translator = {
  agent: "opencode",
  title: "opencode",
  form: { kind: "document", records: (document) => [document] },
  recognises: isFacts,
  begin: (tools) => new OpencodeTranslation(tools),
};

function* records(b: Uint8Array): Generator<Uint8Array> {
  const { parts, end } = splitMembers(b, "messages");
  const isInfo = (part: DocumentPart): boolean => part.name === "info" && isObjectAt(b, part);
  const isList = (part: DocumentPart): boolean => part.name === "messages" && isArrayAt(b, part);
  for (const part of parts) if (isInfo(part)) yield toRecordBytes(b, part);
  for (const list of parts.filter(isList)) {
    const { parts: messages, end: past } = splitParts(b, list);
    for (const message of messages) yield* messageRecords(b, message);
    yield* readRest(b, past, list.end);
  }
  for (const part of parts) if (!isInfo(part) && !isList(part)) yield joinMembers(b, [part]);
  yield* readRest(b, end);
}

function* messageRecords(b: Uint8Array, message: DocumentPart): Generator<Uint8Array> {
  const { parts, end } = isObjectAt(b, message) ? splitParts(b, message) : { parts: [], end: message.start };
  const isInfo = (part: DocumentPart): boolean => part.name === "info" && isObjectAt(b, part);
  const isList = (part: DocumentPart): boolean => part.name === "parts" && isArrayAt(b, part);
  if (!parts.some((part) => isInfo(part) || isList(part))) {
    yield toRecordBytes(b, message);
    return;
  }
  for (const part of parts) if (isInfo(part)) yield toRecordBytes(b, part);
  for (const part of parts) {
    if (isInfo(part)) continue;
    if (isList(part)) yield* listRecords(b, part);
    else yield joinMembers(b, [part]);
  }
  yield* readRest(b, end, message.end);
}

function recognises({ bytes }: Beginnings): boolean {
  const { parts } = splitParts(bytes, toWholePart(bytes));
  const info = parts.find(({ name }) => name === "info");
  return info !== undefined && isObjectAt(bytes, info) && isSession(bytes, splitParts(bytes, info).parts);
}

function isFacts({ bytes }: Beginnings): boolean {
  const { parts } = splitParts(bytes, toWholePart(bytes));
  const isPart = ["info", "messages", "sessionID", "messageID", "role"].some((name) =>
    parts.some((part) => part.name === name),
  );
  return !isPart && isSession(bytes, parts);
}

/** Returns whether members are the facts of a session. */
function isSession(bytes: Uint8Array, members: readonly DocumentPart[]): boolean {
  const facts = new Map(members.map((part) => [part.name, part]));
  const id = facts.get("id");
  if (!id || !/^"ses_/.test(new TextDecoder().decode(bytes.subarray(id.start, Math.min(id.end, id.start + 100)))))
    return false;
  return ["projectID", "directory", "slug", "version", "title"].some((name) => facts.has(name));
}
