/** Messages inside entries: their text, their tool calls. */

import { bytesOf, concat, jsonText } from "../json/json.ts";

/** Returns a stored value as text to show: a string as it is, a missing value as none, anything else as JSON. */
export function shownText(value: unknown): string {
  if (typeof value === "string") return value;
  return value === undefined || value === null ? "" : jsonText(value);
}

/** Returns a stored value that should be a string; anything else counts as an empty one. */
export function stringOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** Returns a stored value that should be a number; anything else counts as 0. */
export function numberOf(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}

/** The largest stored amount that counts: sums of many millions of them stay finite. */
const MAX_AMOUNT = 1e15;

/** Returns a stored value that should be an amount of tokens or money; anything but a usable number counts as 0. */
export function amountOf(value: unknown): number {
  const amount = numberOf(value);
  return amount > 0 && amount <= MAX_AMOUNT ? amount : 0;
}

/** Returns the text of a content with one text block; `text` is the JSON text of a string. */
export function inTextBlock(text: Uint8Array): Uint8Array {
  return concat([bytesOf('[{"type":"text","text":'), text, bytesOf("}]")]);
}

/** Returns the text of a message's content: the string itself, or its text blocks joined. */
export function contentText(value: unknown): string {
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
export function toolCalls(value: unknown): ToolCall[] {
  if (!Array.isArray(value)) return [];
  const calls: ToolCall[] = [];
  for (const part of value) {
    if (typeof part !== "object" || part === null || (part as { type?: unknown }).type !== "toolCall") continue;
    const { id, name, arguments: args } = part as { id?: unknown; name?: unknown; arguments?: unknown };
    calls.push({ id: stringOf(id), name: stringOf(name), arguments: args });
  }
  return calls;
}

/** Arguments that tell what a call does, the most telling first. */
const TELLING = [
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

/** Returns the argument that tells best what a call does, as it was given; empty when none is a text. */
export function mainArgument(args: unknown): string {
  if (typeof args === "string") return args;
  if (typeof args !== "object" || args === null) return "";
  const given = args as Readonly<Record<string, unknown>>;
  for (const name of TELLING) {
    const text = Object.hasOwn(given, name) ? textIn(given[name]) : undefined;
    if (text !== undefined) return text;
  }
  for (const value of Object.values(given)) {
    const text = textIn(value);
    if (text !== undefined) return text;
  }
  return "";
}

/** Returns an argument as a text; undefined for one that is none, or blank. */
function textIn(value: unknown): string | undefined {
  if (typeof value === "string") return value.trim() === "" ? undefined : value;
  // Some agents give commands as the list of their words.
  const isWords = Array.isArray(value) && value.length > 0 && value.every((word) => typeof word === "string");
  return isWords ? value.join(" ") : undefined;
}

/** Returns the text as one line of at most `limit` characters, for lists. */
export function preview(text: string, limit = 100): string {
  const begun = text.slice(0, limit * 4);
  const line = begun.replace(/\s+/g, " ").trim();
  return line.length > limit ? `${line.slice(0, limit - 1)}…` : line;
}
