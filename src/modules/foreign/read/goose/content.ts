/** The contents of Goose's messages as blocks and results of ours. */

import {
  isObject,
  type JsonObject,
  makeImageBlock,
  makeTextBlock,
  makeThinkingBlock,
  makeToolCallBlock,
  type SourceUsage,
  toCount,
  toText,
} from "../../../../core/foreign/messages.ts";

/** Kinds of content that the program shows to a person, or asks one, and the model never sees. */
const PROGRAM_NOTICES = new Set([
  "toolConfirmationRequest",
  "actionRequired",
  "systemNotification",
  "conversationCompacted",
  "contextLengthExceeded",
  "summarizationRequested",
]);

export function isProgramNotice({ type }: JsonObject): boolean {
  return PROGRAM_NOTICES.has(String(type));
}

/** Returns a text or a picture; undefined for anything else. */
export function toPlainBlock(block: JsonObject): JsonObject | undefined {
  const { type, text, data, mimeType } = block;
  if (type === "text" && typeof text === "string") return makeTextBlock(text);
  if (type === "image") return makeImageBlock(data, mimeType);
  return undefined;
}

/** Returns a block of the model; undefined for any other. */
export function toGooseBlock(block: JsonObject): JsonObject | undefined {
  const { type, thinking, signature, data, text } = block;
  if (type === "thinking") return makeThinkingBlock(toText(thinking) ?? "", toText(signature) || undefined);
  if (type === "reasoning" && typeof text === "string") return makeThinkingBlock(text);
  if (type === "redactedThinking") return { ...makeThinkingBlock("", toText(data) ?? ""), redacted: true };
  if (isCall(block)) return calledBlock(block);
  return toPlainBlock(block);
}

export function isCall({ type, id }: JsonObject): boolean {
  return (type === "toolRequest" || type === "frontendToolRequest") && typeof id === "string";
}

function calledBlock({ id, toolCall, thoughtSignature }: JsonObject): JsonObject {
  const { value, error } = isObject(toolCall) ? toolCall : {};
  // A call that could not be read has its reason in place of its arguments.
  const { name, arguments: args } = isObject(value) ? value : {};
  const block = makeToolCallBlock(String(id), toText(name) ?? "unknown", isObject(value) ? args : { error });
  return typeof thoughtSignature === "string" ? { ...block, thoughtSignature } : block;
}

/** A tool's answer: the model's view of it, and the rest. */
interface ToolOutcome {
  readonly content: readonly JsonObject[];
  readonly isError: boolean;
  readonly details: JsonObject | undefined;
}

export function getToolOutcome({ toolResult }: JsonObject): ToolOutcome {
  const { status, value, error, ...others } = isObject(toolResult) ? toolResult : {};
  if (status === "error" || error !== undefined) {
    const reason = typeof error === "string" ? error : JSON.stringify(error ?? null);
    return { content: [makeTextBlock(reason)], isError: true, details: undefined };
  }
  const { content, isError, ...more } = isObject(value) ? value : { content: value, isError: false };
  const blocks = Array.isArray(content) ? content.filter(isObject) : [];
  const shown: JsonObject[] = [];
  const rest: JsonObject[] = [];
  for (const block of blocks) {
    const plain = isForModel(block) ? toPlainBlock(block) : undefined;
    if (plain) shown.push(plain);
    else {
      rest.push(block);
      const text = isForModel(block) ? resourceText(block) : undefined;
      if (text !== undefined) shown.push(makeTextBlock(text));
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
  if (type === "resource_link") return toText(uri);
  if (type !== "resource" || !isObject(resource)) return undefined;
  return toText(resource.text) ?? toText(resource.uri);
}

/** Returns the tokens of a message; undefined if it gives none. */
export function parseGooseUsage(usage: unknown): SourceUsage | undefined {
  if (!isObject(usage)) return undefined;
  const { inputTokens, outputTokens, totalTokens, cacheReadTokens, cacheWriteTokens, cost } = usage;
  const input = toCount(inputTokens);
  const output = toCount(outputTokens);
  const cacheRead = toCount(cacheReadTokens);
  const cacheWrite = toCount(cacheWriteTokens);
  // The total, if there is one, shows whether the input includes the cached tokens.
  const isAmong = totalTokens === undefined || totalTokens === input + output;
  const fresh = isAmong ? Math.max(0, input - cacheRead - cacheWrite) : input;
  return { input: fresh, output, cacheRead, cacheWrite, cost: toCount(cost) };
}
