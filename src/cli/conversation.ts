/** Prints a conversation as lines for a person: messages of the context, or the entries of a path. */

import { getContentText, getToolCalls } from "../core/format/message.ts";
import { toJsonText } from "../core/json/json.ts";
import { type Colour, getDrawnWidth, type OutputStyle } from "./terminal/page.ts";
import { count, cutTo, escapeLine, escapeLines, fill, formatClock, pad, show, wrapOn } from "./terminal/text.ts";
import type { AnyResult } from "./verb.ts";

/** Lines of a tool's output that are shown unless the whole is wanted. */
const RESULT_LINES = 12;

const COLOURS: Readonly<Record<string, Colour>> = { user: "cyan", assistant: "green", toolResult: "blue" };

/** A sentence about a session that was gone back to its beginning. */
export const BEFORE_ALL = "There is no entry before this place. tree shows the later ones.";

/** Yields the lines of a message, or of an entry if its id is given. With `isWhole`, long outputs are not cut. */
export function* formatMessage(
  message: AnyResult,
  page: OutputStyle,
  isWhole: boolean,
  entryId?: string,
): Generator<string> {
  const { role, content, timestamp } = message ?? {};
  const [name, detail] = headOf(message ?? {});
  yield heading(name, detail, formatClock(timestamp), page, COLOURS[role] ?? "magenta", entryId);
  if (role === "assistant") return yield* assistantLines(message, page);
  if (role === "bashExecution") {
    yield* escapeLines(`$ ${message.command}`);
    return yield* shortened(message.output ?? "", page, isWhole);
  }
  const text = typeof message?.summary === "string" ? message.summary : getContentText(content);
  if (role === "toolResult") yield* shortened(text, page, isWhole);
  else if (text !== "") yield* textLines(text, page);
  yield* imageLines(content, page);
}

/** Returns the name of the speaker, and a detail that is worth showing next to it. */
function headOf({ role, provider, model, toolName, isError, customType }: AnyResult): [string, string] {
  const heads: Readonly<Record<string, [string, string]>> = {
    assistant: ["assistant", [provider, model].filter(Boolean).join("/")],
    toolResult: [isError === true ? "error" : "result", toolName ?? ""],
    bashExecution: ["command", ""],
    compactionSummary: ["summary", "of what came before"],
    branchSummary: ["summary", "of another branch"],
    custom: ["custom", customType ?? ""],
  };
  return Object.hasOwn(heads, role) ? heads[role] : [String(role ?? "message"), ""];
}

function* assistantLines({ content, errorMessage }: AnyResult, page: OutputStyle): Generator<string> {
  if (typeof content === "string") yield* textLines(content, page);
  for (const block of Array.isArray(content) ? content : []) {
    if (block?.type === "text") yield* textLines(block.text, page);
    else if (block?.type === "thinking" && block.thinking)
      for (const line of escapeLines(block.thinking)) yield page.paint("dim", `  ${line}`);
    else if (block?.type === "toolCall") {
      const [{ name, arguments: args }] = getToolCalls([block]);
      const given = escapeLine(toJsonText(args));
      const call = `${page.isPlain ? "calls" : ">"} ${escapeLine(name)} ${given}`;
      yield page.paint("yellow", page.isPlain ? call : cutTo(call, page.width));
    }
  }
  if (typeof errorMessage === "string") for (const line of escapeLines(errorMessage)) yield page.paint("red", line);
  yield* imageLines(content, page);
}

/** Returns the lines of a text: broken between words for a person, as they were written for a program. */
function textLines(text: unknown, page: OutputStyle): string[] {
  return escapeLines(text).flatMap((line) => wrapOn(page, line));
}

function* imageLines(content: unknown, { paint }: OutputStyle): Generator<string> {
  for (const block of Array.isArray(content) ? content : [])
    if (block?.type === "image") yield paint("dim", show`(image, ${block.mimeType ?? "of unknown kind"})`);
}

function* shortened(text: unknown, page: OutputStyle, isWhole: boolean): Generator<string> {
  const lines = escapeLines(String(text).replace(/\s+$/, ""));
  // Leaving out a single line would save nothing, because the note about it takes one.
  const shown = isWhole || lines.length <= RESULT_LINES + 1 ? lines : lines.slice(0, RESULT_LINES);
  for (const line of shown) yield isWhole || page.isPlain ? line : cutTo(line, page.width);
  const left = lines.length - shown.length;
  if (left > 0) yield page.paint("dim", `(${count(left, "line", "lines")} more; --full shows them)`);
}

export function* formatEntry(entry: AnyResult, page: OutputStyle, isWhole: boolean): Generator<string> {
  const { type, id, timestamp } = entry;
  if (type === "message") {
    const message = { timestamp, ...entry.message };
    return yield* formatMessage(message, page, isWhole, id);
  }
  const note = (detail: unknown): string =>
    heading(String(type).replaceAll("_", " "), escapeLine(detail ?? ""), formatClock(timestamp), page, "dim", id);
  switch (type) {
    case "compaction":
    case "branch_summary":
      yield note("");
      return yield* textLines(entry.summary ?? "", page);
    case "custom_message":
      yield note(entry.customType);
      return yield* textLines(getContentText(entry.content), page);
    case "model_change":
      return yield note(`${entry.provider}/${entry.modelId}`);
    case "thinking_level_change":
      return yield note(entry.thinkingLevel);
    case "session_info":
      return yield note(entry.name);
    case "label":
      return yield note(entry.label === undefined ? `none for ${entry.targetId}` : `${entry.label}: ${entry.targetId}`);
    default:
      return yield note(entry.customType ?? entry.targetId);
  }
}

function heading(
  name: string,
  detail: string,
  time: string,
  page: OutputStyle,
  colour: Colour,
  entryId?: string,
): string {
  const { paint, width, isPlain } = page;
  if (isPlain) {
    const parts = [[name, detail].filter(Boolean).join(" "), entryId && `entry ${entryId}`, time];
    return parts.filter(Boolean).map(escapeLine).join(", ");
  }
  const right = [entryId === undefined ? "" : show`${entryId}`, time].filter(Boolean).join("  ");
  const left = `${escapeLine(name)}${detail === "" ? "" : ` ${escapeLine(detail)}`}`;
  if (right === "") return paint(colour, cutTo(left, width));
  const fitted = Number.isFinite(width) ? pad : fill;
  const begun = fitted(left, Math.max(0, getDrawnWidth({ width }) - right.length - 2));
  return `${paint(colour, begun)}  ${paint("dim", right)}`;
}
