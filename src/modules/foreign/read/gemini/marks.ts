/**
 * Marks that recognise messages of Gemini CLI. It writes the messages of a conversation anew, with other ids and as
 * parts instead of text, so that a mark is made from their content.
 */

import { isObject, type JsonObject, toText } from "../../../../core/foreign/messages.ts";
import { toBytes } from "../../../../core/json/json.ts";
import type { Env } from "../../../../core/ports/env.ts";
import {
  type AnsweredCall,
  filterResponses,
  type GeminiResult,
  getGeminiCalls,
  pairCallResults,
  parseGeminiResult,
  toGeminiParts,
} from "./parts.ts";

/** The mark of a message that has only results of calls: it belongs to the message with the calls. */
const RESPONSE = "response";

export function markUserMessage(message: JsonObject, sha256: Env["sha256"]): string {
  const parts = toGeminiParts(message.content);
  if (filterResponses(parts).length > 0) return RESPONSE;
  const others = parts.filter(({ text }) => typeof text !== "string");
  return markOf(["user", summed(joinGeminiText(parts), sha256), others], sha256);
}

/** Returns the mark of a model's message with the results of its calls. */
export function markAnswer(message: JsonObject, answered: readonly AnsweredCall[], sha256: Env["sha256"]): string {
  const said = joinGeminiText(toGeminiParts(message.content).filter(({ thought }) => thought !== true));
  const calls = answered.map(({ call, result }) => {
    const { id, name } = call;
    return [id, name, result ? result.content.map((block) => summedBlock(block, sha256)) : null];
  });
  return markOf(["gemini", summed(said, sha256), calls], sha256);
}

/** Returns the marks of messages that come one after the other. */
export function markMessages(messages: readonly JsonObject[], sha256: Env["sha256"]): string[] {
  return messages.map((message, index) => {
    if (message.type !== "gemini") return markUserMessage(message, sha256);
    const results = new Map<string, GeminiResult>();
    for (let next = index + 1; next < messages.length && messages[next].type !== "gemini"; next++) {
      const responses = filterResponses(toGeminiParts(messages[next].content));
      if (responses.length === 0) break;
      for (const response of responses) noteResponse(results, response);
    }
    return markAnswer(message, pairCallResults(message, results), sha256);
  });
}

/** Remembers the result of a call, if its response has the call's id and is the first one. */
export function noteResponse(results: Map<string, GeminiResult>, response: JsonObject): void {
  const id = toText(response.id);
  if (id !== undefined && !results.has(id)) results.set(id, parseGeminiResult(response));
}

/** Returns whether a text is the summary that replaces a conversation from then on. */
export function isSnapshot(message: JsonObject): boolean {
  return message.type === "user" && joinGeminiText(toGeminiParts(message.content)).includes("<state_snapshot>");
}

/** Returns whether a message of the model only acknowledges a summary. */
export function isAcknowledgement(message: JsonObject | undefined): boolean {
  if (message?.type !== "gemini" || getGeminiCalls(message).length > 0) return false;
  return joinGeminiText(toGeminiParts(message.content)).startsWith("Got it.");
}

/** Returns the text of parts, as Gemini CLI writes it when it stores parts as text. */
export function joinGeminiText(parts: readonly JsonObject[]): string {
  const text = parts.map((part) => toText(part.text) ?? "").join("");
  return withoutComments(text.replace(/[\u200B-\u200F\uFEFF]/g, "")).trim();
}

function withoutComments(text: string): string {
  let kept = "";
  for (let at = 0; ; ) {
    const opened = text.indexOf("<!--", at);
    const closed = opened < 0 ? -1 : text.indexOf("-->", opened + 4);
    if (closed < 0) return kept + text.slice(at);
    kept += text.slice(at, opened);
    at = closed + 3;
  }
}

/** Characters from which on a mark has a text's hash: JSON.stringify takes ten times as long. */
const LONG = 256;

/** Returns a text's form in a mark: for a long one a list, which no text is. */
function summed(text: string, sha256: Env["sha256"]): unknown {
  // UTF-8 has no bytes for half of a pair.
  return text.length < LONG ? text : [sha256(Buffer.from(text, "utf16le"))];
}

function summedBlock(block: JsonObject, sha256: Env["sha256"]): unknown {
  const { type, text, ...rest } = block;
  const isText = type === "text" && typeof text === "string" && Object.keys(rest).length === 0;
  return isText ? summed(text, sha256) : block;
}

function markOf(value: unknown, sha256: Env["sha256"]): string {
  return sha256(toBytes(textOrEmpty(value))).slice(0, 16);
}

function textOrEmpty(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch (error) {
    // Something in it is nested too deep: it is known again by nothing.
    if (error instanceof RangeError) return "";
    throw error;
  }
}

/** Returns the messages of a list that are part of a conversation with a model. */
export function filterSpoken(list: unknown): JsonObject[] {
  if (!Array.isArray(list)) return [];
  return list
    .filter(isObject)
    .filter(({ id, type }) => typeof id === "string" && (type === "user" || type === "gemini"));
}
