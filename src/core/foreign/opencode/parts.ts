/** The parts of opencode's messages as blocks and results of ours. */

import {
  countIn,
  imageBlock,
  isObject,
  type JsonObject,
  type SourceUsage,
  type ToolAnswer,
  textBlock,
  textIn,
  thinkingBlock,
  timeIn,
  toolCallBlock,
} from "../messages.ts";

/** Returns the tokens and the cost of a step, or of a whole message; thoughts are output that opencode counts apart. */
export function usageOf({ tokens, cost }: JsonObject): SourceUsage {
  const { input, output, reasoning, cache } = isObject(tokens) ? tokens : {};
  const { read, write } = isObject(cache) ? cache : {};
  return {
    input: countIn(input),
    output: countIn(output) + countIn(reasoning),
    cacheRead: countIn(read),
    cacheWrite: countIn(write),
    cost: countIn(cost),
  };
}

/** Returns a thought with what its provider wants back, where that is named as one of a provider's. */
export function thoughtBlock({ text, metadata }: JsonObject): JsonObject {
  const thinking = textIn(text) ?? "";
  const given = isObject(metadata) ? metadata : {};
  const { signature, redactedData } = isObject(given.anthropic) ? given.anthropic : {};
  const { reasoningEncryptedContent } = isObject(given.openai) ? given.openai : {};
  const opaque = textIn(redactedData) ?? textIn(reasoningEncryptedContent);
  if (thinking === "" && opaque !== undefined) return { ...thinkingBlock("", opaque), redacted: true };
  const block = thinkingBlock(thinking, textIn(signature));
  return metadata === undefined || textIn(signature) !== undefined ? block : { ...block, metadata };
}

/** Returns a file as a block, and whether that is all of it. */
export function fileBlock({ mime, url, filename }: JsonObject): { block: JsonObject; isWhole: boolean } {
  const type = textIn(mime) ?? "";
  const at = textIn(url) ?? "";
  const data = type.startsWith("image/") ? /^data:[^,]*;base64,([A-Za-z0-9+/=]+)$/.exec(at)?.[1] : undefined;
  const picture = imageBlock(data, type);
  if (picture) return { block: picture, isWhole: true };
  const name = textIn(filename) ?? (at.startsWith("data:") ? "" : at);
  return {
    block: textBlock(`[attached file: ${[name, type].filter((one) => one !== "").join(", ")}]`),
    isWhole: false,
  };
}

export function callBlock(part: JsonObject): JsonObject {
  const state = isObject(part.state) ? part.state : {};
  const { input, raw } = state;
  const isCutOff = typeof raw === "string" && raw !== "" && isObject(input) && Object.keys(input).length === 0;
  const block = toolCallBlock(callIdOf(part), textIn(part.tool) ?? "", isCutOff ? raw : input);
  const { google } = isObject(part.metadata) ? part.metadata : {};
  const { thoughtSignature } = isObject(google) ? google : {};
  return typeof thoughtSignature === "string" ? { ...block, thoughtSignature } : block;
}

function callIdOf({ callID, id }: JsonObject): string {
  return textIn(callID) ?? textIn(id) ?? "";
}

/** Returns the result of a tool part; undefined while the tool works. */
export function resultOf(part: JsonObject, otherwise: string): ToolAnswer | undefined {
  const { state } = part;
  if (!isObject(state)) return undefined;
  const { status, output, error, input: _, attachments, ...rest } = state;
  if (status !== "completed" && status !== "error") return undefined;
  const { end, start } = isObject(state.time) ? state.time : {};
  const files = Array.isArray(attachments) ? attachments.filter(isObject) : [];
  const said = status === "error" ? textIn(error) : textIn(output);
  const details = files.some((file) => !fileBlock(file).isWhole) ? { ...rest, attachments } : rest;
  return {
    toolCallId: callIdOf(part),
    toolName: textIn(part.tool) ?? "",
    content: [textBlock(said ?? ""), ...files.map((file) => fileBlock(file).block)],
    isError: status === "error",
    details,
    at: timeIn(end ?? start, otherwise),
  };
}
