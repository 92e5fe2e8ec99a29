/** Calls of tools with their results, in Markdown. */

import { findEdits, findTextMember, type LooseMembers, PATHS, toBlocks, toMembers } from "../../core/format/loose.ts";
import { findMainArgument, type ToolCall, toShownText } from "../../core/format/message.ts";
import { formatSize } from "../amounts.ts";
import { stripAnsi } from "../ansi.ts";
import { toIndentedJson } from "../blocks.ts";
import { type CallResult, formatRange } from "../calls.ts";
import { findLanguage } from "../code.ts";
import { computeDiff, type DiffLine, isDiff, isDrawable } from "../diff.ts";
import { describeLength, isLongText } from "../fold.ts";
import { escapeTextLine, foldCode, makeAnchor, makeCodeSpan, makeFence } from "./escape.ts";

/** A call in words: the part after the name of the tool, and the blocks below. */
interface WrittenCall {
  readonly argument: string;
  readonly below: string;
  /** The language of the file that the result shows. */
  readonly language?: string;
  /** True if the blocks contain the text of a successful result. */
  readonly hidesShortResult?: boolean;
}

/** Returns a block in a fence, or a fold if it is long; the title names it there. */
export function writeBlock(title: string, text: string, language = ""): string {
  if (text.trim() === "") return "";
  return isLongText(text) ? foldCode(`${title}: ${describeLength(text)}`, text, language) : makeFence(text, language);
}

function writtenEdit(given: LooseMembers, path: string, result: CallResult | undefined): WrittenCall | undefined {
  const made = toMembers(result?.message.details).diff;
  if (typeof made === "string" && made.trim() !== "")
    return { argument: makeCodeSpan(path), below: writeBlock("Diff", made, "diff"), hidesShortResult: true };
  const edits = findEdits(given);
  if (edits.length === 0 || !edits.every(({ before, after }) => isDrawable(before, after))) return undefined;
  const parts: DiffLine[][] = edits.map(({ before, after }) => computeDiff(before, after));
  const count = (sign: string): number => parts.flat().filter((line) => line.sign === sign).length;
  const below = parts.map((lines) => writeBlock("Diff", lines.map(({ sign, text }) => sign + text).join("\n"), "diff"));
  return {
    argument: `${makeCodeSpan(path)} +${count("+")} −${count("-")}`,
    below: below.join(""),
    hidesShortResult: true,
  };
}

function writtenCommand(command: string): WrittenCall {
  if (command.length > 200 || command.includes("\n"))
    return { argument: "", below: writeBlock("Command", command, "bash") };
  return { argument: makeCodeSpan(command), below: "" };
}

function markdownToolCall({ name, arguments: args }: ToolCall, result: CallResult | undefined): WrittenCall {
  const given = toMembers(args);
  const kind = name.toLowerCase();
  const path = findTextMember(given, ...PATHS);
  const command = findTextMember(given, "command", "cmd");
  if ((kind === "bash" || kind === "shell") && command !== undefined) return writtenCommand(command);
  const edit = kind.includes("edit") || kind.includes("replace") ? writtenEdit(given, path ?? "", result) : undefined;
  if (edit) return edit;
  const content = findTextMember(given, "content");
  if (path !== undefined && kind === "write" && content !== undefined)
    return {
      argument: makeCodeSpan(path),
      below: writeBlock("File", content, findLanguage(path)),
      hidesShortResult: true,
    };
  if (path !== undefined && kind === "read")
    return {
      argument: `${makeCodeSpan(path)} ${formatRange(given)}`.trimEnd(),
      below: "",
      language: findLanguage(path),
    };
  const main = findMainArgument(args);
  const isAll = Object.keys(given).length <= 1 && main.length <= 300 && !main.includes("\n");
  const json = isAll || args === undefined || args === null ? "" : toIndentedJson(args);
  return { argument: makeCodeSpan(main), below: writeBlock("Arguments", json, "json") };
}

/** Returns output of a program without its colours; a lone carriage return begins a line. */
function outputBlock(text: string, language?: string): string {
  const lines = stripAnsi(text)
    .replace(/\r+\n/g, "\n")
    .replace(/\r(?=[^\n])/g, "\n");
  return writeBlock("Output", lines, language ?? (isDiff(lines) ? "diff" : ""));
}

function resultMarkdown({ message, anchor, label }: CallResult, call: WrittenCall, failed: boolean): string {
  const said: string[] = label === undefined ? [] : [`Label: **${escapeTextLine(label)}**`];
  const blocks: string[] = [];
  for (const { type, text, ...rest } of toBlocks(message.content)) {
    if (type === "image") blocks.push(writeImage(rest));
    if (type !== "text" || typeof text !== "string" || text.trim() === "") continue;
    if (call.hidesShortResult && !failed && text.length < 300) said.push(escapeTextLine(text));
    else blocks.push(outputBlock(text, failed ? "" : call.language));
  }
  const { diff } = toMembers(message.details);
  if (typeof diff === "string" && !call.hidesShortResult) blocks.push(writeBlock("Diff", diff, "diff"));
  if (said.length + blocks.length === 0) said.push("No output.");
  return `${makeAnchor(anchor)}${said.join(" ")}\n\n${blocks.join("")}`;
}

/** Returns that a picture was there: GitHub shows none that lies within the document. */
export function writeImage({ mimeType, data }: LooseMembers): string {
  const size = typeof data === "string" && data !== "" ? formatSize((data.length * 3) / 4) : "no data";
  return `*\\[${escapeTextLine(`image ${toShownText(mimeType).slice(0, 100)}`)}, ${size}: not in this document\\]*\n\n`;
}

function headOf(name: string, argument: string, state: string): string {
  const word = state === "" ? "" : ` — **${state}**`;
  return `**${escapeTextLine(name)}**${argument === "" ? "" : ` ${argument}`}${word}\n\n`;
}

export function writeCall(call: ToolCall, result: CallResult | undefined): string {
  const written = markdownToolCall(call, result);
  const failed = result?.message.isError === true;
  const head = headOf(call.name || "call", written.argument, failed ? "failed" : result ? "" : "no result");
  return head + written.below + (result ? resultMarkdown(result, written, failed) : "");
}

/** Returns a result whose call is not before it on this branch. */
export function writeLoneResult(result: CallResult): string {
  const failed = result.message.isError === true;
  const name = `Result of ${toShownText(result.message.toolName) || "a call"}`;
  return headOf(name, "", failed ? "failed" : "") + resultMarkdown(result, { argument: "", below: "" }, failed);
}

export function writeCommandRun({ command, output, exitCode, cancelled, excludeFromContext }: LooseMembers): string {
  const { argument, below } = writtenCommand(toShownText(command));
  const failed = typeof exitCode === "number" && exitCode !== 0 ? `failed, exit ${exitCode}` : "";
  const apart = excludeFromContext === true ? " not sent to the model" : "";
  const head = headOf("You ran", argument + apart, cancelled === true ? "cancelled" : failed);
  return head + below + outputBlock(toShownText(output));
}
