/** The blocks of our messages as Claude's, and texts of the program in the user's place. */

import { getOriginal, isObject, type JsonObject, toText } from "../../../../core/foreign/messages.ts";
import type { Losses, OutgoingCall } from "../format.ts";

/** Blocks of the provider's own that are in no message of ours but of an import, as they were. */
const OWN_BLOCKS = new Set([
  "document",
  "search_result",
  "tool_reference",
  "container_upload",
  "server_tool_use",
  "web_search_tool_result",
  "web_fetch_tool_result",
  "code_execution_tool_result",
  "bash_code_execution_tool_result",
  "text_editor_code_execution_tool_result",
  "tool_search_tool_result",
  "mcp_tool_use",
  "mcp_tool_result",
]);

/** Returns the blocks of a person's message or a result. Blocks without text are left out: the provider refuses them. */
export function toClaudeUserBlocks(content: unknown, losses: Losses): JsonObject[] {
  if (typeof content === "string") return content.trim() === "" ? [] : [{ type: "text", text: content }];
  if (!Array.isArray(content)) return [];
  return content.filter(isObject).flatMap((block): JsonObject[] => {
    const { type, text, data, mimeType } = block;
    const original = getOriginal(block);
    if (original && OWN_BLOCKS.has(String(original.type))) return [original];
    if (type === "text") return typeof text === "string" && text.trim() !== "" ? [{ type, text }] : [];
    if (type === "image" && typeof data === "string") {
      const source = { type: "base64", media_type: toText(mimeType) ?? "image/png", data };
      return [{ type, source }];
    }
    if (typeof type === "string" && OWN_BLOCKS.has(type)) return [block];
    losses.note(`A block of the type ${named(type)} is left out.`);
    return [];
  });
}

/** Returns the blocks of an answer; `calls` are its calls, in their order. */
export function toClaudeBlocks(message: JsonObject, calls: readonly OutgoingCall[], losses: Losses): JsonObject[] {
  const { content } = message;
  if (typeof content === "string") return toClaudeUserBlocks(content, losses);
  if (!Array.isArray(content)) return [];
  const isOwn = message.provider === "anthropic" && message.api === "anthropic-messages";
  let call = 0;
  return content.filter(isObject).flatMap((block): JsonObject[] => {
    const { type } = block;
    if (type === "toolCall") return [callBlock(calls[call++], losses)];
    if (type === "thinking") return thoughtBlock(block, isOwn, losses);
    if (type === "text") return toClaudeUserBlocks([block], losses);
    if (typeof type === "string" && OWN_BLOCKS.has(type) && isOwn) return [block];
    losses.note(`A block of the type ${named(type)} is left out.`);
    return [];
  });
}

function callBlock({ id, name, arguments: args }: OutgoingCall, losses: Losses): JsonObject {
  return { type: "tool_use", id, name: toToolName(name, losses), input: toCallArguments(args, losses) };
}

/** Returns the arguments of a call, which must be an object. */
export function toCallArguments(args: unknown, losses: Losses): JsonObject {
  if (isObject(args)) return args;
  losses.note();
  return args === undefined || args === null ? {} : { input: args };
}

/** Returns a tool's name with the characters that providers take. */
export function toToolName(name: string, losses: Losses): string {
  const taken = name.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 64) || "unknown";
  if (taken !== name) losses.note("The name of a tool is changed: providers take at most 64 letters, digits, _ and -.");
  return taken;
}

/** Returns a thought that its provider knows as its own; any other is left out. */
function thoughtBlock(block: JsonObject, isOwn: boolean, losses: Losses): JsonObject[] {
  const { thinking, thinkingSignature: signature, redacted } = block;
  const isSigned = isOwn && typeof signature === "string" && signature !== "";
  if (isSigned && redacted === true) return [{ type: "redacted_thinking", data: signature }];
  if (isSigned) return [{ type: "thinking", thinking: toText(thinking) ?? "", signature }];
  losses.note("A thought is left out, because it has no signature of the same provider.");
  return [];
}

function named(type: unknown): string {
  return typeof type === "string" ? type.slice(0, 40) : "unknown";
}

/** Types of program messages whose records are recognised by the beginning of their text. */
const BY_BEGINNING: readonly (readonly [customType: string, beginning: RegExp])[] = [
  ["claude:command-caveat", /^\s*<local-command-caveat>/],
  ["claude:command-output", /^\s*<local-command-std(?:out|err)>/],
  ["claude:command", /^\s*<command-(?:name|message)>/],
  ["claude:bash", /^\s*<bash-input>/],
  ["claude:bash-output", /^\s*<bash-std(?:out|err)>/],
  ["claude:task-notification", /^\s*<task-notification>/],
  ["claude:reminder", /^\s*<system-reminder>/],
  ["claude:interrupt", /^\s*\[Request interrupted by user/],
];
/** Whom Claude Code names as the origin of a message that no person wrote. */
const ORIGINS = new Set(["task-notification", "coordinator", "peer"]);

/** Returns the members that mark a custom message as no person's turn; `isKnown`: whether they also give its type. */
export function getHarnessMembers(customType: string, text: string): { members: JsonObject; isKnown: boolean } {
  if (BY_BEGINNING.some(([type, beginning]) => type === customType && beginning.test(text)))
    return { members: {}, isKnown: true };
  const kind = customType.replace(/^claude:/, "");
  if (kind !== customType && ORIGINS.has(kind)) return { members: { origin: { kind } }, isKnown: true };
  return { members: { isMeta: true }, isKnown: customType === "claude:meta" };
}

/** Types of Claude Code's records that are part of the conversation and do not refer to other records. */
const KEPT = new Set(["attachment", "system"]);

/** Returns whether a value is a record of Claude Code that can be written again. */
export function isFromClaude(value: unknown): value is JsonObject & { readonly type: string } {
  if (!isObject(value) || typeof value.uuid !== "string" || typeof value.type !== "string") return false;
  return KEPT.has(value.type) && value.subtype !== "compact_boundary";
}
