/** Calls of tools with their results, in Markdown. */

import type { LooseMembers } from "../../core/format/loose.ts";
import { type ToolCall, toShownText } from "../../core/format/message.ts";
import { formatSize } from "../amounts.ts";
import { stripAnsi } from "../ansi.ts";
import { type CallResult, type CallView, viewCall, viewCommandRun, viewResult } from "../call-view.ts";
import { findLanguage } from "../code.ts";
import { isDiff } from "../diff.ts";
import { describeLength, isLongText } from "../fold.ts";
import { escapeTextLine, foldCode, makeAnchor, makeCodeSpan, makeFence } from "./escape.ts";

/** Returns a block in a fence, or a fold if it is long; the title names it there. */
export function writeBlock(title: string, text: string, language = ""): string {
  if (text.trim() === "") return "";
  return isLongText(text) ? foldCode(`${title}: ${describeLength(text)}`, text, language) : makeFence(text, language);
}

/** Returns output of a program without its colours; a lone carriage return begins a line. */
function outputBlock(text: string, file?: string): string {
  const lines = stripAnsi(text)
    .replace(/\r+\n/g, "\n")
    .replace(/\r(?=[^\n])/g, "\n");
  return writeBlock("Output", lines, file === undefined ? (isDiff(lines) ? "diff" : "") : findLanguage(file));
}

function resultMarkdown(result: CallResult, call?: CallView): string {
  const said: string[] = result.label === undefined ? [] : [`Label: **${escapeTextLine(result.label)}**`];
  const blocks: string[] = [];
  for (const part of viewResult(result, call)) {
    if ("image" in part) blocks.push(writeImage(part.image));
    else if ("said" in part) said.push(escapeTextLine(part.said));
    else if ("output" in part) blocks.push(outputBlock(part.output, part.file));
    else blocks.push(writeBlock("Diff", part.diff, "diff"));
  }
  if (said.length + blocks.length === 0) said.push("No output.");
  return `${makeAnchor(result.anchor)}${said.join(" ")}\n\n${blocks.join("")}`;
}

/** Returns that a picture was there: GitHub shows none that lies within the document. */
export function writeImage({ mimeType, data }: LooseMembers): string {
  const size = typeof data === "string" && data !== "" ? formatSize((data.length * 3) / 4) : "no data";
  return `*\\[${escapeTextLine(`image ${toShownText(mimeType).slice(0, 100)}`)}, ${size}: not in this document\\]*\n\n`;
}

/** Returns the line of a call, and its blocks; `note` follows the name and the argument. */
function callMarkdown(name: string, call: CallView, state: string, note = ""): string {
  const { subject, range = "", changes, blocks } = call;
  const counts = changes ? `+${changes.added} −${changes.removed}` : "";
  const word = state === "" ? "" : `— **${state}**`;
  const head = [`**${escapeTextLine(name)}**`, makeCodeSpan(subject), range, counts, note, word].filter(Boolean);
  return `${head.join(" ")}\n\n${blocks.map(({ title, text, language }) => writeBlock(title, text, language)).join("")}`;
}

const NOTHING: CallView = { subject: "", blocks: [] };

export function writeCall(call: ToolCall, result: CallResult | undefined): string {
  const view = viewCall(call, result);
  const state = result?.message.isError === true ? "failed" : result ? "" : "no result";
  return callMarkdown(call.name || "call", view, state) + (result ? resultMarkdown(result, view) : "");
}

/** Returns a result whose call is not before it on this branch. */
export function writeLoneResult(result: CallResult): string {
  const name = `Result of ${toShownText(result.message.toolName) || "a call"}`;
  return callMarkdown(name, NOTHING, result.message.isError === true ? "failed" : "") + resultMarkdown(result);
}

export function writeCommandRun(message: LooseMembers): string {
  const { call, output, state, isApart } = viewCommandRun(message);
  return callMarkdown("You ran", call, state, isApart ? "not sent to the model" : "") + outputBlock(output);
}
