/** Translates the blocks of Claude's messages. Blocks without a counterpart stay as they are. */

import {
  isObject,
  makeImageBlock,
  makeOtherBlock,
  makeTextBlock,
  makeThinkingBlock,
  makeToolCallBlock,
  toText,
} from "../../../../core/foreign/messages.ts";

type Block = Readonly<Record<string, unknown>>;

/** Returns the blocks of a message's content; text alone is one block. */
export function getClaudeBlocks(content: unknown): readonly Block[] {
  if (typeof content === "string") return content === "" ? [] : [makeTextBlock(content)];
  return Array.isArray(content) ? content.filter(isObject) : [];
}

export function translateAnswerBlock(block: Block): Block {
  const { type } = block;
  if (type === "text") return makeTextBlock(toText(block.text) ?? "");
  if (type === "thinking") return makeThinkingBlock(toText(block.thinking) ?? "", toText(block.signature));
  // The provider alone can read it, and wants it back as it is.
  if (type === "redacted_thinking") return { ...makeThinkingBlock("", toText(block.data)), redacted: true };
  if (type === "tool_use") return makeToolCallBlock(toText(block.id) ?? "", toText(block.name) ?? "", block.input);
  return typeof type === "string" ? block : { ...block, type: "unknown" };
}

/** Returns a block of a person's or a tool's as ours. */
export function translateUserBlock(block: Block): Block {
  const { type, source } = block;
  if (type === "text") return makeTextBlock(toText(block.text) ?? "");
  const picture = type === "image" && isObject(source) ? makeImageBlock(source.data, source.media_type) : undefined;
  return picture ?? makeOtherBlock(block);
}

/** Returns the text of blocks, for callers that check how it begins. */
export function joinTextBlocks(blocks: readonly Block[]): string {
  return blocks.map((block) => (block.type === "text" ? (toText(block.text) ?? "") : "")).join("");
}
