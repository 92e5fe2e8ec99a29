/** The blocks of messages as Cline and its relatives write them, as ours. */

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

/** Returns the blocks of a content; a text alone is one block. */
export function clineBlocks(content: unknown): readonly JsonObject[] {
  if (typeof content === "string") return content === "" ? [] : [textBlock(content)];
  return Array.isArray(content) ? content.filter(isObject) : [];
}

/** Returns a block that a person or a tool gave, as ours. */
export function givenOf(block: JsonObject): JsonObject {
  return knownBlock(block) ?? otherBlock(block);
}

/** Returns a text, a picture or a file as ours; undefined for anything else. */
function knownBlock(block: JsonObject): JsonObject | undefined {
  const { type, source, data, mediaType, path, content } = block;
  if (type === "text") return textBlock(textIn(block.text) ?? "");
  if (type === "image" && typeof data === "string") return imageBlock(data, mediaType);
  if (type === "image" && isObject(source)) return imageBlock(source.data, source.media_type);
  // The program writes a file to the model in this way.
  if (type === "file" && typeof path === "string" && typeof content === "string")
    return textBlock(`<file_content path="${path}">\n${content}\n</file_content>`);
  return undefined;
}

/** Returns what a tool gave, as blocks. Some tools give lists of objects that are no blocks. */
export function resultOf(content: unknown): JsonObject[] {
  if (content === undefined || content === null) return [];
  if (!Array.isArray(content)) return [textBlock(typeof content === "string" ? content : jsonText(content))];
  const isBlock = (block: unknown): boolean => isObject(block) && (block.type === "text" || block.type === "image");
  return content.map((block) => (isBlock(block) ? givenOf(block) : textBlock(jsonText(block))));
}

/** Returns the blocks of a message of the model. */
export function spokenBlocks(message: JsonObject): JsonObject[] {
  const blocks: JsonObject[] = [];
  for (const block of clineBlocks(message.content)) {
    const { type, thoughtSignature } = block;
    // A signature of its own belongs to the calls before it.
    const last = blocks.at(-1);
    if (type === "thoughtSignature" && typeof thoughtSignature === "string" && last?.type === "toolCall")
      blocks[blocks.length - 1] = { ...last, thoughtSignature };
    else blocks.push(spokenBlock(block));
  }
  if (blocks.some(({ type }) => type === "thinking")) return blocks;
  return [...thoughtsBeside(message), ...blocks];
}

function spokenBlock(block: JsonObject): JsonObject {
  const { type, signature } = block;
  const signed = textIn(signature);
  if (type === "text") {
    const text = textBlock(textIn(block.text) ?? "");
    return signed === undefined ? text : { ...text, textSignature: signed };
  }
  if (type === "thinking") return thinkingBlock(textIn(block.thinking) ?? "", signed);
  if (type === "redacted_thinking") return hiddenThought(textIn(block.data));
  if (type === "reasoning") return thoughtOf(block);
  if (type === "tool_use") {
    const call = toolCallBlock(textIn(block.id) ?? "", textIn(block.name) ?? "", block.input);
    return signed === undefined ? call : { ...call, thoughtSignature: signed };
  }
  return knownBlock(block) ?? (typeof type === "string" ? block : { ...block, type: "unknown" });
}

/** Returns a thought that its provider gave as text, as a summary, or as something that only the provider reads. */
export function thoughtOf({ text, summary, encrypted_content: encrypted }: JsonObject): JsonObject {
  const said = textIn(text) ?? "";
  const parts = Array.isArray(summary)
    ? summary.map((part) => (isObject(part) ? textIn(part.text) : textIn(part)))
    : [];
  const thought = said === "" ? parts.filter((part) => part !== undefined).join("\n\n") : said;
  if (thought === "" && typeof encrypted === "string") return hiddenThought(encrypted);
  return thinkingBlock(thought, textIn(encrypted));
}

function hiddenThought(data: string | undefined): JsonObject {
  return { ...thinkingBlock("", data), redacted: true };
}

/** Returns thoughts that are beside the content. */
function thoughtsBeside({ reasoning_details: details, reasoning_content: reasoning }: JsonObject): JsonObject[] {
  const thoughts = (Array.isArray(details) ? details.filter(isObject) : []).flatMap((detail) => {
    const { type, text, summary, signature, data } = detail;
    if (type === "reasoning.encrypted") return [hiddenThought(textIn(data))];
    const said = textIn(text) ?? textIn(summary);
    return said === undefined ? [] : [thinkingBlock(said, textIn(signature))];
  });
  if (thoughts.length > 0 || typeof reasoning !== "string" || reasoning === "") return thoughts;
  return [thinkingBlock(reasoning)];
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

/** Whether blocks have more than ours say. Those of other types are kept as they are. */
export function haveMore(blocks: readonly JsonObject[]): boolean {
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

/** Returns the tokens of a message. In both forms, the prompt's count has those that were cached in it. */
export function clineUsage(metrics: unknown): SourceUsage {
  if (!isObject(metrics)) return NO_USAGE;
  const { tokens, inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens } = metrics;
  const cost = countIn(metrics.cost);
  if (isObject(tokens)) {
    const cached = countIn(tokens.cached);
    const input = Math.max(0, countIn(tokens.prompt) - cached);
    return { input, output: countIn(tokens.completion), cacheRead: cached, cost };
  }
  const cacheRead = countIn(cacheReadTokens);
  const cacheWrite = countIn(cacheWriteTokens);
  const input = Math.max(0, countIn(inputTokens) - cacheRead - cacheWrite);
  return { input, output: countIn(outputTokens), cacheRead, cacheWrite, cost };
}

/** APIs of providers that have one of their own. */
const APIS: Readonly<Record<string, string>> = {
  anthropic: "anthropic-messages",
  gemini: "google-generative-ai",
  "openai-native": "openai-responses",
};

/** Returns the model of a message, as far as the message says it. */
export function modelOf(info: unknown, known: string | undefined): { api: string; provider: string; model: string } {
  const { id, modelId, provider, providerId } = isObject(info) ? info : ({} as JsonObject);
  const name = textIn(provider) ?? textIn(providerId) ?? "unknown";
  const api = Object.hasOwn(APIS, name) ? APIS[name] : "unknown";
  return { api, provider: name, model: textIn(id) ?? textIn(modelId) ?? known ?? "unknown" };
}
