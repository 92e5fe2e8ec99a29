/** The blocks of Claude's messages as those of ours. Blocks that have no counterpart stay as they are. */

import { imageBlock, isObject, otherBlock, textBlock, textIn, thinkingBlock, toolCallBlock } from "../messages.ts";

type Block = Readonly<Record<string, unknown>>;

/** Returns the blocks of a message's content; text alone is one block. */
export function blocksOf(content: unknown): readonly Block[] {
  if (typeof content === "string") return content === "" ? [] : [textBlock(content)];
  return Array.isArray(content) ? content.filter(isObject) : [];
}

/** Returns a block of the model's as ours. */
export function answerBlock(block: Block): Block {
  const { type } = block;
  if (type === "text") return textBlock(textIn(block.text) ?? "");
  if (type === "thinking") return thinkingBlock(textIn(block.thinking) ?? "", textIn(block.signature));
  // The provider alone can read it, and wants it back as it is.
  if (type === "redacted_thinking") return { ...thinkingBlock("", textIn(block.data)), redacted: true };
  if (type === "tool_use") return toolCallBlock(textIn(block.id) ?? "", textIn(block.name) ?? "", block.input);
  return typeof type === "string" ? block : { ...block, type: "unknown" };
}

/** Returns a block of a person's or a tool's as ours. */
export function givenBlock(block: Block): Block {
  const { type, source } = block;
  if (type === "text") return textBlock(textIn(block.text) ?? "");
  const picture = type === "image" && isObject(source) ? imageBlock(source.data, source.media_type) : undefined;
  return picture ?? otherBlock(block);
}

/** Returns the text of blocks, for those who want to know how it begins. */
export function textOfBlocks(blocks: readonly Block[]): string {
  return blocks.map((block) => (block.type === "text" ? (textIn(block.text) ?? "") : "")).join("");
}
