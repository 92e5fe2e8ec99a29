/** Translates the parts of Gemini's messages to blocks, and pairs a message's calls with their results. */

import {
  isObject,
  type JsonObject,
  makeImageBlock,
  makeOtherBlock,
  makeTextBlock,
  makeThinkingBlock,
  makeToolCallBlock,
  NO_USAGE,
  type SourceUsage,
  toCount,
  toText,
} from "../../../../core/foreign/messages.ts";
import { toJsonText } from "../../../../core/json/json.ts";
import { addTo } from "../../../../core/lists.ts";

/** A call of the model, with the program's record of its result. */
interface GeminiCall {
  id: string;
  readonly name: string;
  readonly args: unknown;
  readonly signature: string | undefined;
  /** The program's own record of it; missing if only the model's part exists. */
  record: JsonObject | undefined;
}

export interface GeminiResult {
  readonly content: readonly JsonObject[];
  readonly isError: boolean;
  readonly details: JsonObject | undefined;
}

/** Returns the parts of a content, which may be a text, a part, or a list of both. */
export function toGeminiParts(content: unknown): readonly JsonObject[] {
  if (typeof content === "string") return content === "" ? [] : [{ text: content }];
  if (isObject(content)) return [content];
  if (!Array.isArray(content)) return [];
  return content.map((part) => (typeof part === "string" ? { text: part } : part)).filter(isObject);
}

/** Returns a part of a person's or a tool's as ours. */
export function translateUserPart(part: JsonObject): JsonObject {
  const known = knownPart(part);
  if (known) return known;
  const [kind = "part"] = Object.keys(part);
  return makeOtherBlock(part, { ...(isObject(part[kind]) ? part[kind] : {}), type: kind });
}

/** Returns a text or a picture; undefined for anything else. */
function knownPart({ text, inlineData }: JsonObject): JsonObject | undefined {
  if (typeof text === "string") return makeTextBlock(text);
  if (isObject(inlineData) && /^image\//.test(toText(inlineData.mimeType) ?? ""))
    return makeImageBlock(inlineData.data, inlineData.mimeType);
  return undefined;
}

/** Returns the calls of a message of the model: those among its parts, and those recorded apart from them. */
export function getGeminiCalls(message: JsonObject): GeminiCall[] {
  const calls: GeminiCall[] = [];
  /** Calls without a record, by their id, or by their name if they have none. */
  const alone = new Map<string, GeminiCall[]>();
  for (const { functionCall, thoughtSignature } of toGeminiParts(message.content)) {
    if (!isObject(functionCall)) continue;
    const { args } = functionCall;
    const { id, name } = namesIn(functionCall);
    const call: GeminiCall = { id, name, args, signature: toText(thoughtSignature), record: undefined };
    calls.push(call);
    addTo(alone, id === "" ? `name ${name}` : `id ${id}`, call);
  }
  const { toolCalls } = message;
  for (const record of Array.isArray(toolCalls) ? toolCalls.filter(isObject) : []) {
    const { id, name } = namesIn(record);
    const known = alone.get(`id ${id}`)?.shift() ?? alone.get(`name ${name}`)?.shift();
    if (known) {
      known.record = record;
      if (known.id === "") known.id = id;
    } else calls.push({ id, name, args: record.args, signature: undefined, record });
  }
  // Older versions gave no ids.
  for (const [n, call] of calls.entries()) if (call.id === "") call.id = `${toText(message.id) ?? ""}/call/${n}`;
  return calls;
}

function namesIn({ id, name }: JsonObject): { id: string; name: string } {
  return { id: toText(id) ?? "", name: toText(name) ?? "" };
}

export function toGeminiBlocks(message: JsonObject, calls: readonly GeminiCall[]): JsonObject[] {
  const parts = toGeminiParts(message.content);
  const blocks: JsonObject[] = parts.some(({ thought }) => thought === true) ? [] : thoughtsOf(message);
  let made = 0;
  for (const part of parts) {
    const { text, thought, thoughtSignature, functionCall } = part;
    const signature = toText(thoughtSignature);
    if (isObject(functionCall)) blocks.push(callBlock(calls[made++]));
    else if (thought === true) blocks.push(makeThinkingBlock(toText(text) ?? "", signature));
    else if (typeof text === "string")
      blocks.push(signature === undefined ? makeTextBlock(text) : { ...makeTextBlock(text), textSignature: signature });
    else blocks.push(knownPart(part) ?? { ...part, type: "unknown" });
  }
  return [...blocks, ...calls.slice(made).map(callBlock)];
}

function callBlock({ id, name, args, signature }: GeminiCall): JsonObject {
  return { ...makeToolCallBlock(id, name, args), thoughtSignature: signature };
}

function thoughtsOf({ thoughts }: JsonObject): JsonObject[] {
  if (!Array.isArray(thoughts)) return [];
  return thoughts.filter(isObject).map(({ subject, description }) => {
    const about = toText(subject) ?? "";
    const text = toText(description) ?? "";
    return makeThinkingBlock(about === "" ? text : `**${about}**${text === "" ? "" : ` ${text}`}`);
  });
}

export function filterResponses(parts: readonly JsonObject[]): JsonObject[] {
  return parts.map(({ functionResponse }) => functionResponse).filter(isObject);
}

/** Returns the result that was recorded with a call; undefined without one. */
function recordedResult({ id, record }: GeminiCall): GeminiResult | undefined {
  if (!record) return undefined;
  const { id: _id, name: _name, args: _args, result, timestamp: _at, ...details } = record;
  const { status, resultDisplay } = details;
  const parts = toGeminiParts(result);
  const isFailed = status === "error" || status === "cancelled";
  if (parts.length === 0 && typeof resultDisplay !== "string" && !isFailed) return undefined;
  const responses = filterResponses(parts);
  const own = responses.find((response) => response.id === id) ?? (responses.length === 1 ? responses[0] : undefined);
  // The parts of all parallel calls may be written to each of them.
  const others = responses.length > 1 && own !== responses[0] ? [] : parts.filter((part) => !isResponse(part));
  const content = [...(own ? responseBlocks(own) : []), ...others.map(translateUserPart)];
  if (content.length === 0 && typeof resultDisplay === "string") content.push(makeTextBlock(resultDisplay));
  return { content, isError: isFailed || (own !== undefined && isErrorResponse(own)), details };
}

/** A call, with its result if that is known. */
export interface AnsweredCall {
  readonly call: GeminiCall;
  readonly result: GeminiResult | undefined;
}

/** Returns the calls of a message with their results; `results`: those of later messages. */
export function pairCallResults(message: JsonObject, results: ReadonlyMap<string, GeminiResult>): AnsweredCall[] {
  return getGeminiCalls(message).map((call) => ({ call, result: recordedResult(call) ?? results.get(call.id) }));
}

/** Returns the result of a call in a message to the model. */
export function parseGeminiResult(response: JsonObject): GeminiResult {
  return { content: responseBlocks(response), isError: isErrorResponse(response), details: undefined };
}

export function isResponse({ functionResponse }: JsonObject): boolean {
  return isObject(functionResponse);
}

function isErrorResponse({ response }: JsonObject): boolean {
  return isObject(response) && response.error !== undefined && response.output === undefined;
}

function responseBlocks({ response, parts }: JsonObject): JsonObject[] {
  return [makeTextBlock(responseText(response)), ...toGeminiParts(parts).map(translateUserPart)];
}

function responseText(response: unknown): string {
  if (typeof response === "string") return response;
  if (!isObject(response)) return response === undefined ? "" : toJsonText(response);
  const names = Object.keys(response);
  const [only] = names;
  if (names.length === 1 && (only === "output" || only === "error") && typeof response[only] === "string")
    return response[only] as string;
  return toJsonText(response);
}

/** Returns the tokens of a message. The prompt's count includes the cached ones. */
export function parseGeminiUsage({ tokens }: JsonObject): SourceUsage {
  if (!isObject(tokens)) return NO_USAGE;
  const cached = toCount(tokens.cached);
  return {
    input: Math.max(0, toCount(tokens.input) - cached) + toCount(tokens.tool),
    output: toCount(tokens.output) + toCount(tokens.thoughts),
    cacheRead: cached,
  };
}
