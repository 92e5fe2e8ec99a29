/** Messages inside entries: their text, their tool calls. */

import { concat, toBytes, toJsonText } from "../json/json.ts";

/** Returns a stored value as text to show: a string as it is, nothing for a missing value, JSON for any other. */
export function toShownText(value: unknown): string {
  if (typeof value === "string") return value;
  return value === undefined || value === null ? "" : toJsonText(value);
}

/** Returns a stored value that should be a string; anything else counts as an empty one. */
export function toStored(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** Returns a stored value that should be a number; anything else counts as 0. */
export function toNumber(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}

/** The largest stored amount that counts: sums of many millions of them stay finite. */
const MAX_AMOUNT = 1e15;

/** Returns a stored value that should be an amount of tokens or money; anything but a usable number counts as 0. */
export function toAmount(value: unknown): number {
  const amount = toNumber(value);
  return amount > 0 && amount <= MAX_AMOUNT ? amount : 0;
}

/** Returns the text of a content with one text block; `text` is the JSON text of a string. */
export function wrapInTextBlock(text: Uint8Array): Uint8Array {
  return concat([toBytes('[{"type":"text","text":'), text, toBytes("}]")]);
}

/** Returns the text of a message's content: the string itself, or its text blocks joined. */
export function getContentText(value: unknown): string {
  if (typeof value === "string") return value;
  if (!Array.isArray(value)) return "";
  let text = "";
  for (const part of value) {
    if (typeof part !== "object" || part === null) continue;
    const { type, text: own } = part as { type?: unknown; text?: unknown };
    if (type === "text" && typeof own === "string") text += own;
  }
  return text;
}

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: unknown;
}

/** Returns the tool calls of an assistant message's content, in order. */
export function getToolCalls(value: unknown): ToolCall[] {
  if (!Array.isArray(value)) return [];
  const calls: ToolCall[] = [];
  for (const part of value) {
    if (typeof part !== "object" || part === null || (part as { type?: unknown }).type !== "toolCall") continue;
    const { id, name, arguments: args } = part as { id?: unknown; name?: unknown; arguments?: unknown };
    calls.push({ id: toStored(id), name: toStored(name), arguments: args });
  }
  return calls;
}

/** Arguments that show best what a call does, the best first. */
const MAIN_ARGUMENTS = [
  "command",
  "cmd",
  "path",
  "file_path",
  "filePath",
  "file",
  "pattern",
  "query",
  "url",
  "name",
  "prompt",
];

/** Returns the argument that shows best what a call does, unchanged; empty when none is a text. */
export function findMainArgument(args: unknown): string {
  if (typeof args === "string") return args;
  if (typeof args !== "object" || args === null) return "";
  const given = args as Readonly<Record<string, unknown>>;
  for (const name of MAIN_ARGUMENTS) {
    const text = Object.hasOwn(given, name) ? textIn(given[name]) : undefined;
    if (text !== undefined) return text;
  }
  for (const value of Object.values(given)) {
    const text = textIn(value);
    if (text !== undefined) return text;
  }
  return "";
}

/** Returns an argument as a text; undefined if it is not a text, or blank. */
function textIn(value: unknown): string | undefined {
  if (typeof value === "string") return value.trim() === "" ? undefined : value;
  // Some agents give commands as the list of their words.
  const isWords = Array.isArray(value) && value.length > 0 && value.every((word) => typeof word === "string");
  return isWords ? value.join(" ") : undefined;
}

/** Returns the text as one line of at most `limit` characters, for lists. */
export function toPreview(text: string, limit = 100): string {
  const begun = text.slice(0, limit * 4);
  const line = begun.replace(/\s+/g, " ").trim();
  return line.length > limit ? `${line.slice(0, limit - 1)}…` : line;
}
