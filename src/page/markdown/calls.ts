/** Calls of tools with their results, in Markdown. */

import { blocksOf, editsIn, type LooseMembers, membersOf, PATHS, textMember } from "../../core/format/loose.ts";
import { mainArgument, shownText, type ToolCall } from "../../core/format/message.ts";
import { sizeText } from "../amounts.ts";
import { withoutAnsi } from "../ansi.ts";
import { jsonOf } from "../blocks.ts";
import { type CallResult, rangeText } from "../calls.ts";
import { languageOf } from "../code.ts";
import { type DiffLine, diffOf, isDiff, isDrawable } from "../diff.ts";
import { isLong, lengthOf } from "../fold.ts";
import { anchorAt, codeSpan, fence, foldedCode, plainLine } from "./inert.ts";

/** A call in words: what stands beside the name of the tool, and the blocks below. */
interface WrittenCall {
  readonly beside: string;
  readonly below: string;
  /** The language of the file that the result shows. */
  readonly language?: string;
  /** Whether the blocks tell what the result says when all went well. */
  readonly tells?: boolean;
}

/** Returns a block in a fence, or a fold if it is long; the title names it there. */
export function block(title: string, text: string, language = ""): string {
  if (text.trim() === "") return "";
  return isLong(text) ? foldedCode(`${title}: ${lengthOf(text)}`, text, language) : fence(text, language);
}

function writtenEdit(given: LooseMembers, path: string, result: CallResult | undefined): WrittenCall | undefined {
  const made = membersOf(result?.message.details).diff;
  if (typeof made === "string" && made.trim() !== "")
    return { beside: codeSpan(path), below: block("Diff", made, "diff"), tells: true };
  const edits = editsIn(given);
  if (edits.length === 0 || !edits.every(({ before, after }) => isDrawable(before, after))) return undefined;
  const parts: DiffLine[][] = edits.map(({ before, after }) => diffOf(before, after));
  const count = (sign: string): number => parts.flat().filter((line) => line.sign === sign).length;
  const below = parts.map((lines) => block("Diff", lines.map(({ sign, text }) => sign + text).join("\n"), "diff"));
  return { beside: `${codeSpan(path)} +${count("+")} −${count("-")}`, below: below.join(""), tells: true };
}

function writtenCommand(command: string): WrittenCall {
  if (command.length > 200 || command.includes("\n")) return { beside: "", below: block("Command", command, "bash") };
  return { beside: codeSpan(command), below: "" };
}

function writtenCall({ name, arguments: args }: ToolCall, result: CallResult | undefined): WrittenCall {
  const given = membersOf(args);
  const kind = name.toLowerCase();
  const path = textMember(given, ...PATHS);
  const command = textMember(given, "command", "cmd");
  if ((kind === "bash" || kind === "shell") && command !== undefined) return writtenCommand(command);
  const edit = kind.includes("edit") || kind.includes("replace") ? writtenEdit(given, path ?? "", result) : undefined;
  if (edit) return edit;
  const content = textMember(given, "content");
  if (path !== undefined && kind === "write" && content !== undefined)
    return { beside: codeSpan(path), below: block("File", content, languageOf(path)), tells: true };
  if (path !== undefined && kind === "read")
    return { beside: `${codeSpan(path)} ${rangeText(given)}`.trimEnd(), below: "", language: languageOf(path) };
  const main = mainArgument(args);
  const isAll = Object.keys(given).length <= 1 && main.length <= 300 && !main.includes("\n");
  const json = isAll || args === undefined || args === null ? "" : jsonOf(args);
  return { beside: codeSpan(main), below: block("Arguments", json, "json") };
}

/** Returns output of a program without its colours; a lone carriage return begins a line. */
function outputBlock(text: string, language?: string): string {
  const lines = withoutAnsi(text)
    .replace(/\r+\n/g, "\n")
    .replace(/\r(?=[^\n])/g, "\n");
  return block("Output", lines, language ?? (isDiff(lines) ? "diff" : ""));
}

function resultMarkdown({ message, anchor, label }: CallResult, call: WrittenCall, failed: boolean): string {
  const said: string[] = label === undefined ? [] : [`Label: **${plainLine(label)}**`];
  const blocks: string[] = [];
  for (const { type, text, ...rest } of blocksOf(message.content)) {
    if (type === "image") blocks.push(imageMarkdown(rest));
    if (type !== "text" || typeof text !== "string" || text.trim() === "") continue;
    if (call.tells && !failed && text.length < 300) said.push(plainLine(text));
    else blocks.push(outputBlock(text, failed ? "" : call.language));
  }
  const { diff } = membersOf(message.details);
  if (typeof diff === "string" && !call.tells) blocks.push(block("Diff", diff, "diff"));
  if (said.length + blocks.length === 0) said.push("No output.");
  return `${anchorAt(anchor)}${said.join(" ")}\n\n${blocks.join("")}`;
}

/** Returns that a picture was there: GitHub shows none that lies within the document. */
export function imageMarkdown({ mimeType, data }: LooseMembers): string {
  const size = typeof data === "string" && data !== "" ? sizeText((data.length * 3) / 4) : "no data";
  return `*\\[${plainLine(`image ${shownText(mimeType).slice(0, 100)}`)}, ${size}: not in this document\\]*\n\n`;
}

function headOf(name: string, beside: string, state: string): string {
  const word = state === "" ? "" : ` — **${state}**`;
  return `**${plainLine(name)}**${beside === "" ? "" : ` ${beside}`}${word}\n\n`;
}

/** Returns a call and its result. */
export function callMarkdown(call: ToolCall, result: CallResult | undefined): string {
  const written = writtenCall(call, result);
  const failed = result?.message.isError === true;
  const head = headOf(call.name || "call", written.beside, failed ? "failed" : result ? "" : "no result");
  return head + written.below + (result ? resultMarkdown(result, written, failed) : "");
}

/** Returns a result whose call is not before it on this branch. */
export function loneResultMarkdown(result: CallResult): string {
  const failed = result.message.isError === true;
  const name = `Result of ${shownText(result.message.toolName) || "a call"}`;
  return headOf(name, "", failed ? "failed" : "") + resultMarkdown(result, { beside: "", below: "" }, failed);
}

/** Returns a command that the person ran. */
export function ranMarkdown({ command, output, exitCode, cancelled, excludeFromContext }: LooseMembers): string {
  const { beside, below } = writtenCommand(shownText(command));
  const failed = typeof exitCode === "number" && exitCode !== 0 ? `failed, exit ${exitCode}` : "";
  const apart = excludeFromContext === true ? " not told to the model" : "";
  const head = headOf("You ran", beside + apart, cancelled === true ? "cancelled" : failed);
  return head + below + outputBlock(shownText(output));
}
