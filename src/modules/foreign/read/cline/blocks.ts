/** The blocks of messages as Cline and its relatives write them, as ours. */

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

/** Returns the blocks of a content; a text alone is one block. */
export function toClineBlocks(content: unknown): readonly JsonObject[] {
  if (typeof content === "string") return content === "" ? [] : [makeTextBlock(content)];
  return Array.isArray(content) ? content.filter(isObject) : [];
}

export function translateGivenBlock(block: JsonObject): JsonObject {
  return knownBlock(block) ?? makeOtherBlock(block);
}

/** Returns a text, a picture or a file as ours; undefined for anything else. */
function knownBlock(block: JsonObject): JsonObject | undefined {
  const { type, source, data, mediaType, path, content } = block;
  if (type === "text") return makeTextBlock(toText(block.text) ?? "");
  if (type === "image" && typeof data === "string") return makeImageBlock(data, mediaType);
  if (type === "image" && isObject(source)) return makeImageBlock(source.data, source.media_type);
  // The program writes a file to the model in this way.
  if (type === "file" && typeof path === "string" && typeof content === "string")
    return makeTextBlock(`<file_content path="${path}">\n${content}\n</file_content>`);
  return undefined;
}

/** Returns a tool's result as blocks. Some tools return lists of objects that are no blocks. */
export function toResultBlocks(content: unknown): JsonObject[] {
  if (content === undefined || content === null) return [];
  if (!Array.isArray(content)) return [makeTextBlock(typeof content === "string" ? content : toJsonText(content))];
  const isBlock = (block: unknown): boolean => isObject(block) && (block.type === "text" || block.type === "image");
  return content.map((block) => (isBlock(block) ? translateGivenBlock(block) : makeTextBlock(toJsonText(block))));
}

export function toSpokenBlocks(message: JsonObject): JsonObject[] {
  const blocks: JsonObject[] = [];
  for (const block of toClineBlocks(message.content)) {
    const { type, thoughtSignature } = block;
    // A signature of its own belongs to the calls before it.
    const last = blocks.at(-1);
    if (type === "thoughtSignature" && typeof thoughtSignature === "string" && last?.type === "toolCall")
      blocks[blocks.length - 1] = { ...last, thoughtSignature };
    else blocks.push(spokenBlock(block));
  }
  if (blocks.some(({ type }) => type === "thinking")) return blocks;
  return [...separateThoughts(message), ...blocks];
}

function spokenBlock(block: JsonObject): JsonObject {
  const { type, signature } = block;
  const signed = toText(signature);
  if (type === "text") {
    const text = makeTextBlock(toText(block.text) ?? "");
    return signed === undefined ? text : { ...text, textSignature: signed };
  }
  if (type === "thinking") return makeThinkingBlock(toText(block.thinking) ?? "", signed);
  if (type === "redacted_thinking") return hiddenThought(toText(block.data));
  if (type === "reasoning") return toThoughtBlock(block);
  if (type === "tool_use") {
    const call = makeToolCallBlock(toText(block.id) ?? "", toText(block.name) ?? "", block.input);
    return signed === undefined ? call : { ...call, thoughtSignature: signed };
  }
  return knownBlock(block) ?? (typeof type === "string" ? block : { ...block, type: "unknown" });
}

/** Returns a provider's thought: a text, a summary, or data that only the provider reads. */
export function toThoughtBlock({ text, summary, encrypted_content: encrypted }: JsonObject): JsonObject {
  const said = toText(text) ?? "";
  const parts = Array.isArray(summary)
    ? summary.map((part) => (isObject(part) ? toText(part.text) : toText(part)))
    : [];
  const thought = said === "" ? parts.filter((part) => part !== undefined).join("\n\n") : said;
  if (thought === "" && typeof encrypted === "string") return hiddenThought(encrypted);
  return makeThinkingBlock(thought, toText(encrypted));
}

function hiddenThought(data: string | undefined): JsonObject {
  return { ...makeThinkingBlock("", data), redacted: true };
}

/** Returns thoughts that are stored outside the content. */
function separateThoughts({ reasoning_details: details, reasoning_content: reasoning }: JsonObject): JsonObject[] {
  const thoughts = (Array.isArray(details) ? details.filter(isObject) : []).flatMap((detail) => {
    const { type, text, summary, signature, data } = detail;
    if (type === "reasoning.encrypted") return [hiddenThought(toText(data))];
    const said = toText(text) ?? toText(summary);
    return said === undefined ? [] : [makeThinkingBlock(said, toText(signature))];
  });
  if (thoughts.length > 0 || typeof reasoning !== "string" || reasoning === "") return thoughts;
  return [makeThinkingBlock(reasoning)];
}

/** Members of blocks that are in ours, by their type. */
const SAID: Readonly<Record<string, string>> = {
  text: "text signature",
  thinking: "thinking signature",
  redacted_thinking: "data",
  reasoning: "text encrypted_content",
  tool_use: "id name input signature",
  tool_result: "tool_use_id name content is_error",
};

/** Returns whether blocks have members that ours do not have. Those of other types are kept as they are. */
export function haveMoreMembers(blocks: readonly JsonObject[]): boolean {
  return blocks.some((block) => {
    const { type } = block;
    const said = typeof type === "string" && Object.hasOwn(SAID, type) ? SAID[type].split(" ") : undefined;
    return said !== undefined && Object.keys(block).some((name) => isMore(block, name, said));
  });
}

function isMore(block: JsonObject, name: string, said: readonly string[]): boolean {
  const value = block[name];
  if (name === "type" || said.includes(name) || value === undefined || value === null) return false;
  return !(Array.isArray(value) && value.length === 0);
}

/** Returns the tokens of a message. In both forms, the prompt's count includes the cached ones. */
export function parseClineUsage(metrics: unknown): SourceUsage {
  if (!isObject(metrics)) return NO_USAGE;
  const { tokens, inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens } = metrics;
  const cost = toCount(metrics.cost);
  if (isObject(tokens)) {
    const cached = toCount(tokens.cached);
    const input = Math.max(0, toCount(tokens.prompt) - cached);
    return { input, output: toCount(tokens.completion), cacheRead: cached, cost };
  }
  const cacheRead = toCount(cacheReadTokens);
  const cacheWrite = toCount(cacheWriteTokens);
  const input = Math.max(0, toCount(inputTokens) - cacheRead - cacheWrite);
  return { input, output: toCount(outputTokens), cacheRead, cacheWrite, cost };
}

/** APIs of providers that have one of their own. */
const APIS: Readonly<Record<string, string>> = {
  anthropic: "anthropic-messages",
  gemini: "google-generative-ai",
  "openai-native": "openai-responses",
};

/** Returns the model of a message, as far as the message names it. */
export function getMessageModel(
  info: unknown,
  known: string | undefined,
): { api: string; provider: string; model: string } {
  const { id, modelId, provider, providerId } = isObject(info) ? info : ({} as JsonObject);
  const name = toText(provider) ?? toText(providerId) ?? "unknown";
  const api = Object.hasOwn(APIS, name) ? APIS[name] : "unknown";
  return { api, provider: name, model: toText(id) ?? toText(modelId) ?? known ?? "unknown" };
}
