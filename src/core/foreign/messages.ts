/** The messages that translators make, complete with all that Pi needs in one. */

import { isObject, type LooseMembers } from "../format/loose.ts";

export { isObject };
export type JsonObject = LooseMembers;

export function toText(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** Returns a count that a file has; anything but a usable number counts as 0. */
export function toCount(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) && value > 0 ? value : 0;
}

/** Tokens of a message, and its cost if the agent gives it. */
export interface SourceUsage {
  readonly input: number;
  readonly output: number;
  readonly cacheRead?: number;
  readonly cacheWrite?: number;
  /** Dollars; missing if the agent does not give it. */
  readonly cost?: number;
}

/** Returns the usage of a message. An unknown cost is 0, which counts as unknown in a message with tokens. */
export function toMessageUsage({ input, output, cacheRead = 0, cacheWrite = 0, cost = 0 }: SourceUsage): JsonObject {
  return {
    input,
    output,
    cacheRead,
    cacheWrite,
    totalTokens: input + output + cacheRead + cacheWrite,
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: cost },
  };
}

export const NO_USAGE: SourceUsage = { input: 0, output: 0 };

export interface ModelAnswer {
  readonly content: readonly unknown[];
  readonly api: string;
  readonly provider: string;
  readonly model: string;
  readonly usage: SourceUsage;
  readonly stopReason: "stop" | "length" | "toolUse" | "error" | "aborted";
  readonly errorMessage?: string;
  /** ISO 8601. */
  readonly at: string;
}

export function makeAssistantMessage({ content, api, provider, model, usage, at, ...end }: ModelAnswer) {
  const { stopReason, errorMessage } = end;
  const message = { api, provider, model, usage: toMessageUsage(usage), stopReason, errorMessage };
  return { message: { role: "assistant", content, ...message, timestamp: momentIn(at) } };
}

export function makeUserMessage(content: unknown, at: string): JsonObject {
  return { message: { role: "user", content, timestamp: momentIn(at) } };
}

export interface ToolAnswer {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly content: readonly unknown[];
  readonly isError: boolean;
  readonly details?: unknown;
  /** ISO 8601. */
  readonly at: string;
}

export function makeToolResultMessage({ toolCallId, toolName, content, isError, details, at }: ToolAnswer): JsonObject {
  return { message: { role: "toolResult", toolCallId, toolName, content, details, isError, timestamp: momentIn(at) } };
}

export function makeTextBlock(text: string): JsonObject {
  return { type: "text", text };
}

/**
 * Returns a block of a person's or a tool's that is neither a text nor a picture as a text: Pi takes any other block
 * for a picture, and the provider then refuses the whole conversation. The text's `original` keeps the block itself.
 */
export function makeOtherBlock(original: JsonObject, about = original): JsonObject {
  const { type, source, mimeType, media_type, title, name, filename, tool_name } = about;
  const { media_type: ofSource, data, type: kind } = isObject(source) ? source : ({} as JsonObject);
  if (kind === "text" && typeof data === "string") return { ...makeTextBlock(data), original };
  const said = [title, name, filename, tool_name, mimeType, media_type, ofSource].map((one) => toText(one) ?? "");
  const names = said.filter((one) => one !== "").join(", ");
  return { ...makeTextBlock(`[${toText(type) ?? "part"}${names === "" ? "" : `: ${names}`}]`), original };
}

/** Returns the other agent's block that a text replaces. */
export function getOriginal({ original }: JsonObject): JsonObject | undefined {
  return isObject(original) ? original : undefined;
}

/** Returns a picture of base64 text; undefined for an empty one: providers refuse that. */
export function makeImageBlock(data: unknown, mimeType: unknown): JsonObject | undefined {
  if (typeof data !== "string" || data === "") return undefined;
  return { type: "image", data, mimeType: toText(mimeType) || "image/png" };
}

/** Returns a thought, with the signature that its provider checks. */
export function makeThinkingBlock(thinking: string, signature?: string): JsonObject {
  return { type: "thinking", thinking, thinkingSignature: signature };
}

/** Returns a call. Arguments that are no object, as a cut-off call has them, are kept as the text that they are. */
export function makeToolCallBlock(id: string, name: string, args: unknown): JsonObject {
  return { type: "toolCall", id, name, arguments: isObject(args) ? args : args === undefined ? {} : { input: args } };
}

/** Times as entries have them, on days that every month has: others are looked at more closely. */
const USUAL_TIME = /^(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z$/;

/** The time of an entry whose record has none. */
export const NO_TIME = "1970-01-01T00:00:00.000Z";

/** Returns a time as entries have it, from ISO 8601 or milliseconds; `otherwise` for any other value. */
export function toTimestamp(value: unknown, otherwise: string): string {
  // Nearly all are written as they are wanted.
  if (typeof value === "string" && value.length === 24 && USUAL_TIME.test(value)) return value;
  if (typeof value !== "string" && typeof value !== "number") return otherwise;
  const at = typeof value === "number" ? value : Date.parse(value);
  return Number.isFinite(at) && Math.abs(at) < 8.64e15 ? new Date(at).toISOString() : otherwise;
}

function momentIn(at: string): number {
  return Date.parse(at);
}
