/** The contents of Copilot's events as blocks and results of ours. */

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

/** Pictures and other bytes that an event has once and others name, by their id. */
type Assets = ReadonlyMap<string, JsonObject>;

/** Returns the blocks of an answer. `reasoning`: what an event before said that the model thought. */
export function answerBlocks(data: JsonObject, reasoning: string): JsonObject[] {
  const { content, toolRequests } = data;
  const blocks: JsonObject[] = [];
  const thought = thoughtOf(data, reasoning);
  if (thought) blocks.push(thought);
  if (typeof content === "string" && content !== "") blocks.push(textBlock(content));
  const requests = Array.isArray(toolRequests) ? toolRequests.filter(isObject) : [];
  for (const { toolCallId, name, arguments: args } of requests)
    blocks.push(toolCallBlock(textIn(toolCallId) ?? "", textIn(name) ?? "", argumentsOf(args)));
  return blocks;
}

function thoughtOf(
  { reasoningText, reasoningOpaque, encryptedContent }: JsonObject,
  reasoning: string,
): JsonObject | undefined {
  const text = textIn(reasoningText) ?? reasoning;
  const opaque = textIn(reasoningOpaque) ?? textIn(encryptedContent);
  if (text === "") return opaque === undefined ? undefined : { ...thinkingBlock("", opaque), redacted: true };
  const signed = thinkingBlock(text, textIn(reasoningOpaque));
  return typeof encryptedContent === "string" ? { ...signed, encryptedContent } : signed;
}

/** Returns arguments as the object that they are, also where they are written as a text. */
function argumentsOf(args: unknown): unknown {
  if (typeof args !== "string") return args;
  try {
    const value: unknown = JSON.parse(args);
    return isObject(value) ? value : args;
  } catch {
    return args;
  }
}

/** Returns what the model saw of a tool's result, and the rest of what the event says. */
export function outcomeIn(data: JsonObject, assets: Assets) {
  const { result, error, success, toolCallId: _, ...more } = data;
  const isError = success === false;
  const given = isObject(result) ? result : {};
  const { content, binaryResultsForLlm, ...rest } = given;
  const binaries = Array.isArray(binaryResultsForLlm) ? binaryResultsForLlm.filter(isObject) : [];
  const pictures = binaries.map((one) => pictureOf(one, assets)).filter((one) => one !== undefined);
  const others = pictures.length < binaries.length ? { binaryResultsForLlm } : {};
  const reason = isObject(error) ? textIn(error.message) : textIn(error);
  // A result of some other form is what the model saw of it.
  const said = textIn(content) ?? textIn(result) ?? reason ?? (result === undefined ? "" : JSON.stringify(result));
  const details = { ...more, ...rest, ...others, ...(error === undefined ? {} : { error }) };
  return { content: [textBlock(said), ...pictures], isError, details };
}

/** Returns a picture that an event has or names; undefined for anything else. */
export function pictureOf({ data, mimeType, assetId }: JsonObject, assets: Assets): JsonObject | undefined {
  const asset = typeof assetId === "string" ? assets.get(assetId) : undefined;
  const type = textIn(mimeType) ?? textIn(asset?.mimeType) ?? "";
  const bytes = textIn(data) ?? textIn(asset?.data);
  return type.startsWith("image/") ? imageBlock(bytes, type) : undefined;
}

export function usageInEvent(data: JsonObject): SourceUsage {
  const cacheRead = countIn(data.cacheReadTokens);
  const cacheWrite = countIn(data.cacheWriteTokens);
  return {
    input: Math.max(0, countIn(data.inputTokens) - cacheRead - cacheWrite),
    output: countIn(data.outputTokens),
    cacheRead,
    cacheWrite,
  };
}

/** Returns who wrote a user's message when no person did, as a word. */
export function sourceIn({ source, isAutopilotContinuation }: JsonObject): string | undefined {
  if (isAutopilotContinuation === true) return "autopilot";
  if (typeof source !== "string" || source === "" || source === "user") return undefined;
  const word = source.toLowerCase().replace(/[^a-z].*$/s, "");
  return word === "" ? "program" : word;
}
