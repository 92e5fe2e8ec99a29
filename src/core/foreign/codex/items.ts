/** Response items as parts of our messages. */

import { parseText } from "../../json/json.ts";
import { imageBlock, isObject, type JsonObject, otherBlock, textBlock, textIn, thinkingBlock } from "../messages.ts";

/** Returns the blocks of a message or of a tool's output: text, or a list of parts. */
export function blocksIn(content: unknown): JsonObject[] {
  if (typeof content === "string") return content === "" ? [] : [textBlock(content)];
  if (!Array.isArray(content)) return isObject(content) ? blocksIn(content.content ?? JSON.stringify(content)) : [];
  return content.filter(isObject).map((part) => {
    const { text, image_url: url } = part;
    if (typeof text === "string") return textBlock(text);
    const [, mimeType, data] = /^data:([\w/+.-]{1,100});base64,(.*)$/s.exec(textIn(url) ?? "") ?? [];
    return imageBlock(data, mimeType) ?? otherBlock(part);
  });
}

export function textOfParts(content: unknown): string {
  return textOf(blocksIn(content));
}

export function textOf(blocks: readonly JsonObject[]): string {
  return blocks.map(({ text }) => textIn(text) ?? "").join("");
}

/** Returns a thought. With encrypted content it is kept as it is, because only its provider can read that. */
export function thoughtIn(item: JsonObject): JsonObject {
  const parts = [item.summary, item.content].flatMap((list) => (Array.isArray(list) ? list.filter(isObject) : []));
  const text = parts.map((part) => textIn(part.text) ?? "").join("\n\n");
  return thinkingBlock(text, typeof item.encrypted_content === "string" ? JSON.stringify(item) : undefined);
}

/** A call of a tool, as one of the items that are calls has it. */
interface CodexCall {
  readonly id: string;
  readonly name: string;
  readonly args: unknown;
}

/** Returns the call that an item is; undefined for any other item. */
export function callIn(item: JsonObject): CodexCall | undefined {
  const { type, name, namespace } = item;
  const id = textIn(item.call_id) ?? textIn(item.id) ?? "";
  const full = [textIn(namespace), textIn(name)].filter((part) => part !== undefined && part !== "").join(".");
  if (type === "function_call") return { id, name: full, args: argumentsIn(item.arguments) };
  if (type === "custom_tool_call") return { id, name: full, args: { input: textIn(item.input) ?? "" } };
  if (type === "local_shell_call") return { id, name: "local_shell", args: isObject(item.action) ? item.action : {} };
  if (type === "tool_search_call") return { id, name: "tool_search", args: argumentsIn(item.arguments) };
  return undefined;
}

/** Returns the parts of a tool's answer, for an item that is one. */
export function outputIn(item: JsonObject): { readonly callId: string; readonly content: JsonObject[] } | undefined {
  const { type } = item;
  if (typeof type !== "string" || !type.endsWith("_output")) return undefined;
  const { output = item.tools } = item;
  const content = Array.isArray(output) || typeof output === "string" ? output : JSON.stringify(output ?? "");
  return { callId: textIn(item.call_id) ?? "", content: blocksIn(content) };
}

/** Returns the value of arguments, which are the text of JSON. What is none stays the text that it is. */
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

/** Returns what a message in the user's place is if no person wrote it. */
export function harnessKind(item: JsonObject, text: string): string | undefined {
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
