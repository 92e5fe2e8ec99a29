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

// --- texts that Claude Code writes in a person's place --------------------------------------------------------------

interface Harness {
  readonly kind: string;
  /** True if a person sees it. */
  readonly isShown: boolean;
  readonly isSeenByModel: boolean;
}

/** Beginnings of texts that no person wrote, and their kinds. */
const BEGINNINGS: readonly (readonly [beginning: string, kind: string, isShown: boolean])[] = [
  ["<local-command-caveat>", "command-caveat", false],
  ["<local-command-stdout>", "command-output", true],
  ["<local-command-stderr>", "command-output", true],
  ["<command-name>", "command", true],
  ["<command-message>", "command", true],
  ["<bash-input>", "bash", true],
  ["<bash-stdout>", "bash-output", true],
  ["<bash-stderr>", "bash-output", true],
  ["<task-notification>", "task-notification", true],
  ["<system-reminder>", "reminder", false],
  ["[Request interrupted by user", "interrupt", true],
];

/** Returns the kind of a user record that is no turn of a person; undefined for a person's. */
export function detectClaudeHarness(record: Readonly<Record<string, unknown>>, text: string): Harness | undefined {
  if (record.isVisibleInTranscriptOnly === true)
    return { kind: "transcript-only", isShown: true, isSeenByModel: false };
  if (record.isMeta === true) return { kind: "meta", isShown: false, isSeenByModel: true };
  const { origin } = record;
  const kind = isObject(origin) ? origin.kind : undefined;
  if (typeof kind === "string" && /^[a-z][a-z-]{0,40}$/.test(kind))
    return kind === "human" ? undefined : { kind, isShown: true, isSeenByModel: true };
  const begun = text.trimStart();
  const known = BEGINNINGS.find(([beginning]) => begun.startsWith(beginning));
  return known && { kind: known[1], isShown: known[2], isSeenByModel: true };
}
