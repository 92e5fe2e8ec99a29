/** The contents of Goose's messages as blocks and results of ours. */

import {
  countIn,
  imageBlock,
  isObject,
  type JsonObject,
  type SourceUsage,
  textBlock,
  textIn,
  thinkingBlock,
  toolCallBlock,
} from "../messages.ts";

/** Kinds of content that the program shows to a person, or asks one, and the model never sees. */
const ASIDE = new Set([
  "toolConfirmationRequest",
  "actionRequired",
  "systemNotification",
  "conversationCompacted",
  "contextLengthExceeded",
  "summarizationRequested",
]);

export function isAside({ type }: JsonObject): boolean {
  return ASIDE.has(String(type));
}

/** Returns a text or a picture; undefined for anything else. */
export function plainBlock(block: JsonObject): JsonObject | undefined {
  const { type, text, data, mimeType } = block;
  if (type === "text" && typeof text === "string") return textBlock(text);
  if (type === "image") return imageBlock(data, mimeType);
  return undefined;
}

/** Returns a block of the model's; undefined for what is none. */
export function spokenBlock(block: JsonObject): JsonObject | undefined {
  const { type, thinking, signature, data, text } = block;
  if (type === "thinking") return thinkingBlock(textIn(thinking) ?? "", textIn(signature) || undefined);
  if (type === "reasoning" && typeof text === "string") return thinkingBlock(text);
  if (type === "redactedThinking") return { ...thinkingBlock("", textIn(data) ?? ""), redacted: true };
  if (isCall(block)) return calledBlock(block);
  return plainBlock(block);
}

export function isCall({ type, id }: JsonObject): boolean {
  return (type === "toolRequest" || type === "frontendToolRequest") && typeof id === "string";
}

function calledBlock({ id, toolCall, thoughtSignature }: JsonObject): JsonObject {
  const { value, error } = isObject(toolCall) ? toolCall : {};
  // A call that could not be read has its reason in place of its arguments.
  const { name, arguments: args } = isObject(value) ? value : {};
  const block = toolCallBlock(String(id), textIn(name) ?? "unknown", isObject(value) ? args : { error });
  return typeof thoughtSignature === "string" ? { ...block, thoughtSignature } : block;
}

/** A tool's answer: what the model sees of it, and the rest. */
interface ToolOutcome {
  readonly content: readonly JsonObject[];
  readonly isError: boolean;
  readonly details: JsonObject | undefined;
}

export function outcomeOf({ toolResult }: JsonObject): ToolOutcome {
  const { status, value, error, ...others } = isObject(toolResult) ? toolResult : {};
  if (status === "error" || error !== undefined) {
    const reason = typeof error === "string" ? error : JSON.stringify(error ?? null);
    return { content: [textBlock(reason)], isError: true, details: undefined };
  }
  const { content, isError, ...more } = isObject(value) ? value : { content: value, isError: false };
  const blocks = Array.isArray(content) ? content.filter(isObject) : [];
  const shown: JsonObject[] = [];
  const rest: JsonObject[] = [];
  for (const block of blocks) {
    const plain = isForModel(block) ? plainBlock(block) : undefined;
    if (plain) shown.push(plain);
    else {
      rest.push(block);
      const text = isForModel(block) ? resourceText(block) : undefined;
      if (text !== undefined) shown.push(textBlock(text));
    }
  }
  const details = { ...others, ...more, ...(rest.length > 0 ? { content: rest } : {}) };
  return { content: shown, isError: isError === true, details: Object.keys(details).length > 0 ? details : undefined };
}

/** Returns whether the model sees a block; some are for a person only. */
function isForModel({ annotations, audience }: JsonObject): boolean {
  const given = isObject(annotations) ? annotations.audience : audience;
  return !Array.isArray(given) || given.length === 0 || given.includes("assistant");
}

function resourceText({ type, resource, uri }: JsonObject): string | undefined {
  if (type === "resource_link") return textIn(uri);
  if (type !== "resource" || !isObject(resource)) return undefined;
  return textIn(resource.text) ?? textIn(resource.uri);
}

/** Returns the tokens that a message says it took; undefined where it says nothing. */
export function usageOfAnswer(usage: unknown): SourceUsage | undefined {
  if (!isObject(usage)) return undefined;
  const { inputTokens, outputTokens, totalTokens, cacheReadTokens, cacheWriteTokens, cost } = usage;
  const input = countIn(inputTokens);
  const output = countIn(outputTokens);
  const cacheRead = countIn(cacheReadTokens);
  const cacheWrite = countIn(cacheWriteTokens);
  // By the total, where there is one, it shows whether those of the cache are among the input.
  const isAmong = totalTokens === undefined || totalTokens === input + output;
  const fresh = isAmong ? Math.max(0, input - cacheRead - cacheWrite) : input;
  return { input: fresh, output, cacheRead, cacheWrite, cost: countIn(cost) };
}
