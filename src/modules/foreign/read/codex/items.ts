/** Response items as parts of our messages. */

import {
  isObject,
  type JsonObject,
  makeImageBlock,
  makeOtherBlock,
  makeTextBlock,
  makeThinkingBlock,
  toText,
} from "../../../../core/foreign/messages.ts";
import { parseText } from "../../../../core/json/json.ts";

/** Returns the blocks of a message or of a tool's output: text, or a list of parts. */
export function toCodexBlocks(content: unknown): JsonObject[] {
  if (typeof content === "string") return content === "" ? [] : [makeTextBlock(content)];
  if (!Array.isArray(content))
    return isObject(content) ? toCodexBlocks(content.content ?? JSON.stringify(content)) : [];
  return content.filter(isObject).map((part) => {
    const { text, image_url: url } = part;
    if (typeof text === "string") return makeTextBlock(text);
    const [, mimeType, data] = /^data:([\w/+.-]{1,100});base64,(.*)$/s.exec(toText(url) ?? "") ?? [];
    return makeImageBlock(data, mimeType) ?? makeOtherBlock(part);
  });
}

export function joinPartTexts(content: unknown): string {
  return joinBlockTexts(toCodexBlocks(content));
}

export function joinBlockTexts(blocks: readonly JsonObject[]): string {
  return blocks.map(({ text }) => toText(text) ?? "").join("");
}

/** Returns a thought. With encrypted content it is kept as it is, because only its provider can read that. */
export function toCodexThought(item: JsonObject): JsonObject {
  const parts = [item.summary, item.content].flatMap((list) => (Array.isArray(list) ? list.filter(isObject) : []));
  const text = parts.map((part) => toText(part.text) ?? "").join("\n\n");
  return makeThinkingBlock(text, typeof item.encrypted_content === "string" ? JSON.stringify(item) : undefined);
}

/** A call of a tool, as one of the items that are calls has it. */
interface CodexCall {
  readonly id: string;
  readonly name: string;
  readonly args: unknown;
}

/** Returns the call that an item is; undefined for any other item. */
export function parseCodexCall(item: JsonObject): CodexCall | undefined {
  const { type, name, namespace } = item;
  const id = toText(item.call_id) ?? toText(item.id) ?? "";
  const full = [toText(namespace), toText(name)].filter((part) => part !== undefined && part !== "").join(".");
  if (type === "function_call") return { id, name: full, args: argumentsIn(item.arguments) };
  if (type === "custom_tool_call") return { id, name: full, args: { input: toText(item.input) ?? "" } };
  if (type === "local_shell_call") return { id, name: "local_shell", args: isObject(item.action) ? item.action : {} };
  if (type === "tool_search_call") return { id, name: "tool_search", args: argumentsIn(item.arguments) };
  return undefined;
}

/** Returns the parts of a tool's answer, for an item that is one. */
export function parseCodexOutput(
  item: JsonObject,
): { readonly callId: string; readonly content: JsonObject[] } | undefined {
  const { type } = item;
  if (typeof type !== "string" || !type.endsWith("_output")) return undefined;
  const { output = item.tools } = item;
  const content = Array.isArray(output) || typeof output === "string" ? output : JSON.stringify(output ?? "");
  return { callId: toText(item.call_id) ?? "", content: toCodexBlocks(content) };
}

/** Returns the value of arguments, which are JSON text. A text that is no JSON stays as it is. */
function argumentsIn(text: unknown): unknown {
  if (typeof text !== "string") return text;
  try {
    return parseText(text);
  } catch {
    return text;
  }
}

/** Beginnings of texts in the user's place that no person wrote. */
const BEGINNINGS: readonly (readonly [beginning: string, kind: string])[] = [
  ["<environment_context>", "environment"],
  ["<turn_aborted>", "turn-aborted"],
  ["# AGENTS.md", "instructions"],
  ["<user_instructions>", "instructions"],
  ["<INSTRUCTIONS>", "instructions"],
  ["<permissions instructions>", "permissions"],
  ["<app-context>", "app-context"],
  ["<skill>", "skill"],
  ["<subagent_notification>", "subagent-notification"],
  ["<user_shell_command>", "shell-command"],
];

/** Returns the kind of a message in the user's place that no person wrote. */
export function detectHarnessKind(item: JsonObject, text: string): string | undefined {
  const about = item.internal_chat_message_metadata_passthrough;
  const kinds = isObject(about) ? about.content_item_kinds : undefined;
  const named = Array.isArray(kinds) ? kinds.filter((kind) => typeof kind === "string" && kind.includes(".")) : [];
  if (named.some((kind) => kind.startsWith("user."))) return undefined;
  if (Array.isArray(kinds) && named.length > 0 && named.length === kinds.length)
    return (
      (kinds[0] as string)
        .split(".")[1]
        .replace(/[^a-z]+/gi, "-")
        .slice(0, 40) || "harness"
    );
  const begun = text.trimStart();
  return BEGINNINGS.find(([beginning]) => begun.startsWith(beginning))?.[1];
}
