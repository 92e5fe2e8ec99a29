/** The parts of opencode's messages as blocks and results of ours. */

import {
  isObject,
  type JsonObject,
  makeImageBlock,
  makeTextBlock,
  makeThinkingBlock,
  makeToolCallBlock,
  type SourceUsage,
  type ToolAnswer,
  toCount,
  toText,
  toTimestamp,
} from "../../../../core/foreign/messages.ts";

/** Returns the tokens and the cost of a step, or of a whole message; thoughts are output that opencode counts apart. */
export function parseOpencodeUsage({ tokens, cost }: JsonObject): SourceUsage {
  const { input, output, reasoning, cache } = isObject(tokens) ? tokens : {};
  const { read, write } = isObject(cache) ? cache : {};
  return {
    input: toCount(input),
    output: toCount(output) + toCount(reasoning),
    cacheRead: toCount(read),
    cacheWrite: toCount(write),
    cost: toCount(cost),
  };
}

/** Returns a thought with the data that its provider wants back, if that is named as a provider's. */
export function toOpencodeThought({ text, metadata }: JsonObject): JsonObject {
  const thinking = toText(text) ?? "";
  const given = isObject(metadata) ? metadata : {};
  const { signature, redactedData } = isObject(given.anthropic) ? given.anthropic : {};
  const { reasoningEncryptedContent } = isObject(given.openai) ? given.openai : {};
  const opaque = toText(redactedData) ?? toText(reasoningEncryptedContent);
  if (thinking === "" && opaque !== undefined) return { ...makeThinkingBlock("", opaque), redacted: true };
  const block = makeThinkingBlock(thinking, toText(signature));
  return metadata === undefined || toText(signature) !== undefined ? block : { ...block, metadata };
}

/** Returns a file as a block, and whether that is all of it. */
export function toFileBlock({ mime, url, filename }: JsonObject): { block: JsonObject; isWhole: boolean } {
  const type = toText(mime) ?? "";
  const at = toText(url) ?? "";
  const data = type.startsWith("image/") ? /^data:[^,]*;base64,([A-Za-z0-9+/=]+)$/.exec(at)?.[1] : undefined;
  const picture = makeImageBlock(data, type);
  if (picture) return { block: picture, isWhole: true };
  const name = toText(filename) ?? (at.startsWith("data:") ? "" : at);
  return {
    block: makeTextBlock(`[attached file: ${[name, type].filter((one) => one !== "").join(", ")}]`),
    isWhole: false,
  };
}

export function toCallBlock(part: JsonObject): JsonObject {
  const state = isObject(part.state) ? part.state : {};
  const { input, raw } = state;
  const isCutOff = typeof raw === "string" && raw !== "" && isObject(input) && Object.keys(input).length === 0;
  const block = makeToolCallBlock(callIdOf(part), toText(part.tool) ?? "", isCutOff ? raw : input);
  const { google } = isObject(part.metadata) ? part.metadata : {};
  const { thoughtSignature } = isObject(google) ? google : {};
  return typeof thoughtSignature === "string" ? { ...block, thoughtSignature } : block;
}

function callIdOf({ callID, id }: JsonObject): string {
  return toText(callID) ?? toText(id) ?? "";
}

/** Returns the result of a tool part; undefined while the tool works. */
export function toToolResult(part: JsonObject, otherwise: string): ToolAnswer | undefined {
  const { state } = part;
  if (!isObject(state)) return undefined;
  const { status, output, error, input: _, attachments, ...rest } = state;
  if (status !== "completed" && status !== "error") return undefined;
  const { end, start } = isObject(state.time) ? state.time : {};
  const files = Array.isArray(attachments) ? attachments.filter(isObject) : [];
  const said = status === "error" ? toText(error) : toText(output);
  const details = files.some((file) => !toFileBlock(file).isWhole) ? { ...rest, attachments } : rest;
  return {
    toolCallId: callIdOf(part),
    toolName: toText(part.tool) ?? "",
    content: [makeTextBlock(said ?? ""), ...files.map((file) => toFileBlock(file).block)],
    isError: status === "error",
    details,
    at: toTimestamp(end ?? start, otherwise),
  };
}
