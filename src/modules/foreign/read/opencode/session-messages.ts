/**
 * opencode's newer table `session_message`, whose rows are whole messages: translates each to the message and the parts
 * that an export has.
 */

import { isObject, type JsonObject, toText } from "../../../../core/foreign/messages.ts";

interface SessionMessage {
  readonly id: string;
  readonly type: string;
  readonly data: JsonObject;
}

/** Returns a row as a message with its parts; of a kind that has no such form, as it is. */
export function toExportedMessage(row: SessionMessage): JsonObject[] {
  const { id, type, data } = row;
  if (type === "user") return [userOf(row), ...givenParts(row)];
  if (type === "synthetic" || type === "system")
    return [userOf(row), partOf(id, 0, { type: "text", text: toText(data.text) ?? "", synthetic: true })];
  if (type === "shell") {
    const text = [`$ ${toText(data.command) ?? ""}`, toText(data.output) ?? ""]
      .filter((line) => line !== "")
      .join("\n");
    return [userOf(row), partOf(id, 0, { type: "text", text, synthetic: true })];
  }
  if (type === "assistant") return answerOf(row);
  if (type === "compaction") return compactionOf(row);
  return [{ session_message: { id, type, ...data } }];
}

function userOf({ id, data }: SessionMessage): JsonObject {
  const { time, metadata } = data;
  return { role: "user", time, ...(metadata === undefined ? {} : { metadata }), id };
}

function partOf(messageID: string, index: number, part: JsonObject): JsonObject {
  return { ...part, id: toText(part.id) ?? `${messageID}/${index}`, messageID };
}

function givenParts({ id, data }: SessionMessage): JsonObject[] {
  const text = toText(data.text) ?? "";
  const parts = text === "" ? [] : [{ type: "text", text }];
  return [...parts, ...filesOf(data.files)].map((part, index) => partOf(id, index, part));
}

function filesOf(files: unknown): JsonObject[] {
  return (Array.isArray(files) ? files.filter(isObject) : []).map(fileOf);
}

function fileOf({ uri, name, ...file }: JsonObject): JsonObject {
  return { ...file, type: "file", url: uri, ...(name === undefined ? {} : { filename: name }) };
}

function answerOf({ id, data }: SessionMessage): JsonObject[] {
  const { model, content, error, ...rest } = data;
  const { id: modelID, providerID } = isObject(model) ? model : {};
  const failed = isObject(error) ? { error: { name: ERRORS[String(error.type)] ?? error.type, data: error } } : {};
  const parts = Array.isArray(content) ? content.filter(isObject) : [];
  return [
    { role: "assistant", ...rest, modelID, providerID, ...failed, id },
    ...parts.map((part, index) => partOf(id, index, part.type === "tool" ? toolOf(part) : spokenOf(part))),
  ];
}

/** Names of errors. The reader of an export expects another name for one of them. */
const ERRORS: Readonly<Record<string, string>> = { aborted: "MessageAbortedError" };

function spokenOf({ providerMetadata, ...part }: JsonObject): JsonObject {
  return providerMetadata === undefined ? part : { ...part, metadata: providerMetadata };
}

function toolOf({ id, callID, name, state, provider, time, ...rest }: JsonObject): JsonObject {
  const { input, content, error, attachments, ...given } = isObject(state) ? state : ({} as JsonObject);
  const shown = Array.isArray(content) ? content.filter(isObject) : [];
  const output = shown.flatMap(({ text }) => toText(text) ?? []).join("\n");
  const files = [...shown.filter(({ type }) => type === "file").map(fileOf), ...filesOf(attachments)];
  const { ran, completed, created } = isObject(time) ? time : {};
  const reason = isObject(error) ? toText(error.message) : toText(error);
  const isCutOff = typeof input === "string";
  return {
    ...rest,
    ...(provider === undefined ? {} : { metadata: { provider } }),
    id,
    callID: toText(callID) ?? id,
    tool: name,
    state: {
      ...given,
      ...(isCutOff ? { input: {}, raw: input } : { input }),
      ...(given.status === "completed" ? { output } : {}),
      ...(given.status === "error" ? { error: [reason, output].filter((one) => one).join("\n") } : {}),
      ...(files.length === 0 ? {} : { attachments: files }),
      time: { start: ran ?? created, end: completed },
    },
  };
}

/** Returns a compaction as its request and its summary, followed by the last messages that it repeats. */
function compactionOf({ id, data }: SessionMessage): JsonObject[] {
  const { time, reason, summary, recent } = data;
  const texts = [summary, recent].flatMap((text) => toText(text) || []);
  const over = { summary: true, finish: "stop" };
  return [
    { role: "user", time, id },
    partOf(id, 0, { type: "compaction", auto: reason === "auto" }),
    { role: "assistant", time, ...over, id: `${id}/summary` },
    ...texts.map((text, index) => partOf(`${id}/summary`, index, { type: "text", text })),
  ];
}
