/** The parts of Gemini's messages as blocks of ours, and the calls that a message makes with what came of them. */

import { jsonText } from "../../json/json.ts";
import {
  countIn,
  imageBlock,
  isObject,
  type JsonObject,
  NO_USAGE,
  otherBlock,
  type SourceUsage,
  textBlock,
  textIn,
  thinkingBlock,
  toolCallBlock,
} from "../messages.ts";

/** A call of the model, with the program's record of what came of it. */
interface GeminiCall {
  id: string;
  readonly name: string;
  readonly args: unknown;
  readonly signature: string | undefined;
  /** The program's own record of it; missing where only the model's part is there. */
  record: JsonObject | undefined;
}

/** The result of a call. */
export interface GeminiResult {
  readonly content: readonly JsonObject[];
  readonly isError: boolean;
  readonly details: JsonObject | undefined;
}

/** Returns the parts of a content, which may be a text, a part, or a list of both. */
export function partsOf(content: unknown): readonly JsonObject[] {
  if (typeof content === "string") return content === "" ? [] : [{ text: content }];
  if (isObject(content)) return [content];
  if (!Array.isArray(content)) return [];
  return content.map((part) => (typeof part === "string" ? { text: part } : part)).filter(isObject);
}

/** Returns a part of a person's or a tool's as ours. */
export function givenPart(part: JsonObject): JsonObject {
  const known = knownPart(part);
  if (known) return known;
  const [kind = "part"] = Object.keys(part);
  return otherBlock(part, { ...(isObject(part[kind]) ? part[kind] : {}), type: kind });
}

/** Returns a text or a picture; undefined for anything else. */
function knownPart({ text, inlineData }: JsonObject): JsonObject | undefined {
  if (typeof text === "string") return textBlock(text);
  if (isObject(inlineData) && /^image\//.test(textIn(inlineData.mimeType) ?? ""))
    return imageBlock(inlineData.data, inlineData.mimeType);
  return undefined;
}

/** Returns the calls of a message of the model: those among its parts, and those that were recorded beside them. */
export function callsOf(message: JsonObject): GeminiCall[] {
  const calls: GeminiCall[] = [];
  /** Calls that no record was found for, by their id, or by their name if they have none. */
  const alone = new Map<string, GeminiCall[]>();
  for (const { functionCall, thoughtSignature } of partsOf(message.content)) {
    if (!isObject(functionCall)) continue;
    const { args } = functionCall;
    const { id, name } = namesIn(functionCall);
    const call: GeminiCall = { id, name, args, signature: textIn(thoughtSignature), record: undefined };
    calls.push(call);
    const key = id === "" ? `name ${name}` : `id ${id}`;
    const others = alone.get(key);
    if (others) others.push(call);
    else alone.set(key, [call]);
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
  for (const [n, call] of calls.entries()) if (call.id === "") call.id = `${textIn(message.id) ?? ""}/call/${n}`;
  return calls;
}

function namesIn({ id, name }: JsonObject): { id: string; name: string } {
  return { id: textIn(id) ?? "", name: textIn(name) ?? "" };
}

/** Returns the blocks of a message of the model. */
export function answerBlocks(message: JsonObject, calls: readonly GeminiCall[]): JsonObject[] {
  const parts = partsOf(message.content);
  const blocks: JsonObject[] = parts.some(({ thought }) => thought === true) ? [] : thoughtsOf(message);
  let made = 0;
  for (const part of parts) {
    const { text, thought, thoughtSignature, functionCall } = part;
    const signature = textIn(thoughtSignature);
    if (isObject(functionCall)) blocks.push(callBlock(calls[made++]));
    else if (thought === true) blocks.push(thinkingBlock(textIn(text) ?? "", signature));
    else if (typeof text === "string")
      blocks.push(signature === undefined ? textBlock(text) : { ...textBlock(text), textSignature: signature });
    else blocks.push(knownPart(part) ?? { ...part, type: "unknown" });
  }
  return [...blocks, ...calls.slice(made).map(callBlock)];
}

function callBlock({ id, name, args, signature }: GeminiCall): JsonObject {
  return {
    ...toolCallBlock(id, name, args),
    ...(signature === undefined ? {} : { thoughtSignature: signature }),
  };
}

function thoughtsOf({ thoughts }: JsonObject): JsonObject[] {
  if (!Array.isArray(thoughts)) return [];
  return thoughts.filter(isObject).map(({ subject, description }) => {
    const about = textIn(subject) ?? "";
    const text = textIn(description) ?? "";
    return thinkingBlock(about === "" ? text : `**${about}**${text === "" ? "" : ` ${text}`}`);
  });
}

/** Returns the parts that say what calls gave. */
export function responsesOf(parts: readonly JsonObject[]): JsonObject[] {
  return parts.map(({ functionResponse }) => functionResponse).filter(isObject);
}

/** Returns what a call gave as it was recorded with it; undefined where nothing was. */
function recordedResult({ id, record }: GeminiCall): GeminiResult | undefined {
  if (!record) return undefined;
  const { id: _id, name: _name, args: _args, result, timestamp: _at, ...details } = record;
  const { status, resultDisplay } = details;
  const parts = partsOf(result);
  const isFailed = status === "error" || status === "cancelled";
  if (parts.length === 0 && typeof resultDisplay !== "string" && !isFailed) return undefined;
  const responses = responsesOf(parts);
  const own = responses.find((response) => response.id === id) ?? (responses.length === 1 ? responses[0] : undefined);
  // The parts of all parallel calls may be written to each of them.
  const others = responses.length > 1 && own !== responses[0] ? [] : parts.filter((part) => !isResponse(part));
  const content = [...(own ? responseBlocks(own) : []), ...others.map(givenPart)];
  if (content.length === 0 && typeof resultDisplay === "string") content.push(textBlock(resultDisplay));
  return { content, isError: isFailed || (own !== undefined && isErrorResponse(own)), details };
}

/** A call, with what it gave as far as that is known. */
export interface AnsweredCall {
  readonly call: GeminiCall;
  readonly result: GeminiResult | undefined;
}

/** Returns the calls of a message with what they gave; `results`: as later messages say it. */
export function answeredCalls(message: JsonObject, results: ReadonlyMap<string, GeminiResult>): AnsweredCall[] {
  return callsOf(message).map((call) => ({ call, result: recordedResult(call) ?? results.get(call.id) }));
}

/** Returns what a call gave as a message to the model says it. */
export function givenResult(response: JsonObject): GeminiResult {
  return { content: responseBlocks(response), isError: isErrorResponse(response), details: undefined };
}

export function isResponse({ functionResponse }: JsonObject): boolean {
  return isObject(functionResponse);
}

function isErrorResponse({ response }: JsonObject): boolean {
  return isObject(response) && response.error !== undefined && response.output === undefined;
}

function responseBlocks({ response, parts }: JsonObject): JsonObject[] {
  return [textBlock(responseText(response)), ...partsOf(parts).map(givenPart)];
}

function responseText(response: unknown): string {
  if (typeof response === "string") return response;
  if (!isObject(response)) return response === undefined ? "" : jsonText(response);
  const names = Object.keys(response);
  const [only] = names;
  if (names.length === 1 && (only === "output" || only === "error") && typeof response[only] === "string")
    return response[only] as string;
  return jsonText(response);
}

/** Returns the tokens of a message. The prompt's count has those that were cached in it. */
export function usageOf({ tokens }: JsonObject): SourceUsage {
  if (!isObject(tokens)) return NO_USAGE;
  const cached = countIn(tokens.cached);
  return {
    input: Math.max(0, countIn(tokens.input) - cached) + countIn(tokens.tool),
    output: countIn(tokens.output) + countIn(tokens.thoughts),
    cacheRead: cached,
  };
}
