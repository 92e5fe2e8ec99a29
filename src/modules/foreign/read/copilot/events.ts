/** The contents of Copilot's events as blocks and results of ours. */

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

/** Pictures and other bytes that an event has once and others name, by their id. */
type Assets = ReadonlyMap<string, JsonObject>;

/** Returns the blocks of an answer. `reasoning`: the model's thought from an earlier event. */
export function toCopilotBlocks(data: JsonObject, reasoning: string): JsonObject[] {
  const { content, toolRequests } = data;
  const blocks: JsonObject[] = [];
  const thought = thoughtOf(data, reasoning);
  if (thought) blocks.push(thought);
  if (typeof content === "string" && content !== "") blocks.push(makeTextBlock(content));
  const requests = Array.isArray(toolRequests) ? toolRequests.filter(isObject) : [];
  for (const { toolCallId, name, arguments: args } of requests)
    blocks.push(makeToolCallBlock(toText(toolCallId) ?? "", toText(name) ?? "", argumentsOf(args)));
  return blocks;
}

function thoughtOf(
  { reasoningText, reasoningOpaque, encryptedContent }: JsonObject,
  reasoning: string,
): JsonObject | undefined {
  const text = toText(reasoningText) ?? reasoning;
  const opaque = toText(reasoningOpaque) ?? toText(encryptedContent);
  if (text === "") return opaque === undefined ? undefined : { ...makeThinkingBlock("", opaque), redacted: true };
  const signed = makeThinkingBlock(text, toText(reasoningOpaque));
  return typeof encryptedContent === "string" ? { ...signed, encryptedContent } : signed;
}

/** Returns arguments as the object that they are, even if they are written as a text. */
function argumentsOf(args: unknown): unknown {
  if (typeof args !== "string") return args;
  try {
    const value: unknown = JSON.parse(args);
    return isObject(value) ? value : args;
  } catch {
    return args;
  }
}

/** Returns the model's view of a tool's result, and the rest of the event. */
export function parseToolOutcome(data: JsonObject, assets: Assets) {
  const { result, error, success, toolCallId: _, ...more } = data;
  const isError = success === false;
  const given = isObject(result) ? result : {};
  const { content, binaryResultsForLlm, ...rest } = given;
  const binaries = Array.isArray(binaryResultsForLlm) ? binaryResultsForLlm.filter(isObject) : [];
  const pictures = binaries.map((one) => resolvePicture(one, assets)).filter((one) => one !== undefined);
  const others = pictures.length < binaries.length ? { binaryResultsForLlm } : {};
  const reason = isObject(error) ? toText(error.message) : toText(error);
  // The model saw a result of any other form as it is.
  const said = toText(content) ?? toText(result) ?? reason ?? (result === undefined ? "" : JSON.stringify(result));
  const details = { ...more, ...rest, ...others, ...(error === undefined ? {} : { error }) };
  return { content: [makeTextBlock(said), ...pictures], isError, details };
}

/** Returns a picture that an event has or names; undefined for anything else. */
export function resolvePicture({ data, mimeType, assetId }: JsonObject, assets: Assets): JsonObject | undefined {
  const asset = typeof assetId === "string" ? assets.get(assetId) : undefined;
  const type = toText(mimeType) ?? toText(asset?.mimeType) ?? "";
  const bytes = toText(data) ?? toText(asset?.data);
  return type.startsWith("image/") ? makeImageBlock(bytes, type) : undefined;
}

export function parseEventUsage(data: JsonObject): SourceUsage {
  const cacheRead = toCount(data.cacheReadTokens);
  const cacheWrite = toCount(data.cacheWriteTokens);
  return {
    input: Math.max(0, toCount(data.inputTokens) - cacheRead - cacheWrite),
    output: toCount(data.outputTokens),
    cacheRead,
    cacheWrite,
  };
}

/** Returns the writer of a user's message that no person wrote, as a word. */
export function getMessageSource({ source, isAutopilotContinuation }: JsonObject): string | undefined {
  if (isAutopilotContinuation === true) return "autopilot";
  if (typeof source !== "string" || source === "" || source === "user") return undefined;
  const word = source.toLowerCase().replace(/[^a-z].*$/s, "");
  return word === "" ? "program" : word;
}
