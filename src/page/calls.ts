/** Calls of tools with their results, each as the tool's users know it. */

import type { PageEntry } from "../core/export/page.ts";
import { findEdits, findTextMember, type LooseMembers, PATHS, toBlocks, toMembers } from "../core/format/loose.ts";
import { findMainArgument, type ToolCall, toShownText } from "../core/format/message.ts";
import { renderAnsi, stripAnsi } from "./ansi.ts";
import { renderImage, toIndentedJson } from "./blocks.ts";
import { findLanguage, renderCode } from "./code.ts";
import { computeDiff, type DiffLine, isDiff, isDrawable, parseDiff, renderChangeCounts, renderDiff } from "./diff.ts";
import { escapeHtml } from "./escape.ts";
import { renderFold, renderLines } from "./fold.ts";

/** The drawing of a call: its head, and the part below. */
interface DrawnCall {
  /** HTML. */
  readonly head: string;
  readonly body: string;
  /** The file that the result shows. */
  readonly file?: string;
  /** True if the body already contains the text of a successful result. */
  readonly hidesShortResult?: boolean;
}

/** A result as the call's block needs it: the message, and the entry's own name on the page. */
export interface CallResult {
  readonly message: LooseMembers;
  readonly anchor: string;
  readonly label?: string;
}

/** Returns the result that an entry is, if the page has it. */
export function toCallResult(entry: PageEntry | undefined): CallResult | undefined {
  if (!entry || entry.anchor === "") return undefined;
  return { message: toMembers(entry.body.message), anchor: entry.anchor, label: entry.label };
}

function codeText(text: string): string {
  const line = text.length > 300 ? `${text.slice(0, 300)}…` : text;
  return `<code>${escapeHtml(line.replace(/\s+/g, " ").trim())}</code>`;
}

function drawnEdit(given: LooseMembers, result: CallResult | undefined): DrawnCall | undefined {
  const path = findTextMember(given, ...PATHS) ?? "";
  const made = toMembers(result?.message.details).diff;
  const edits = findEdits(given);
  const isMade = typeof made === "string" && made.trim() !== "" && isDrawable(made);
  if (!isMade && (edits.length === 0 || !edits.every(({ before, after }) => isDrawable(before, after))))
    return undefined;
  const parts: DiffLine[][] = isMade ? [parseDiff(made)] : edits.map(({ before, after }) => computeDiff(before, after));
  const all = parts.flat();
  const body = parts
    .map((lines) => renderLines(lines.map(({ sign, text }) => sign + text).join("\n"), renderDiff(lines), "diff"))
    .join("");
  return { head: `${codeText(path)} ${renderChangeCounts(all)}`, body, hidesShortResult: true };
}

/** Returns a command after the name of its tool if it is one line, else below it. */
function drawnCommand(command: string): DrawnCall {
  const html = renderCode(command, "bash");
  if (command.length > 200 || command.includes("\n")) return { head: "", body: renderLines(command, html, "cmd") };
  return { head: `<code class="cmd">${html}</code>`, body: "" };
}

/** Returns the lines that a call reads, if it names some. */
export function formatRange({ offset, limit }: LooseMembers): string {
  if (typeof offset !== "number" && typeof limit !== "number") return "";
  const from = typeof offset === "number" ? offset : 1;
  return `lines ${from}–${typeof limit === "number" ? from + limit - 1 : ""}`;
}

function htmlToolCall({ name, arguments: args }: ToolCall, result: CallResult | undefined): DrawnCall {
  const given = toMembers(args);
  const kind = name.toLowerCase();
  const path = findTextMember(given, ...PATHS);
  const command = findTextMember(given, "command", "cmd");
  if ((kind === "bash" || kind === "shell") && command !== undefined) return drawnCommand(command);
  const edit = kind.includes("edit") || kind.includes("replace") ? drawnEdit(given, result) : undefined;
  if (edit) return edit;
  const content = findTextMember(given, "content");
  if (kind === "write" && path !== undefined && content !== undefined)
    return {
      head: codeText(path),
      body: renderLines(content, renderCode(content, findLanguage(path)), "code"),
      hidesShortResult: true,
    };
  if (kind === "read" && path !== undefined) {
    const range = formatRange(given);
    const rangeHtml = range === "" ? "" : ` <span class="dim">${range}</span>`;
    return { head: codeText(path) + rangeHtml, body: "", file: path };
  }
  return drawnOther(args);
}

/** Returns a call of an unknown tool: its main argument, and all of them as JSON. */
function drawnOther(args: unknown): DrawnCall {
  const main = findMainArgument(args);
  const given = typeof args === "object" && args !== null ? Object.keys(args).length : 0;
  const isAll = given <= 1 && main.length <= 300 && !main.includes("\n");
  const json = toIndentedJson(args);
  const isNothing = args === undefined || args === null || given === 0;
  const body = isAll || isNothing ? "" : renderLines(json, renderCode(json, "json"), "code");
  return { head: main === "" ? "" : codeText(main), body };
}

/** Returns the texts and pictures of a result. */
function resultHtml({ message, label }: CallResult, drawn: DrawnCall, failed: boolean): string {
  let html = label === undefined ? "" : `<mark>${escapeHtml(label)}</mark>`;
  for (const block of toBlocks(message.content)) {
    if (block.type === "image") html += renderImage(block);
    if (block.type !== "text" || typeof block.text !== "string") continue;
    const { text } = block;
    if (drawn.hidesShortResult && !failed && text.length < 300) html += `<p class="dim">${escapeHtml(text)}</p>`;
    else html += outputHtml(text, failed ? undefined : drawn.file);
  }
  const { diff } = toMembers(message.details);
  if (typeof diff === "string" && !drawn.hidesShortResult && diff.trim() !== "")
    html += isDrawable(diff)
      ? renderLines(diff, renderDiff(parseDiff(diff)), "diff")
      : renderLines(diff, escapeHtml(diff), "out");
  return html;
}

/** Returns the output of a program, or the file that was read. */
function outputHtml(text: string, file?: string): string {
  if (file !== undefined) return renderLines(text, renderCode(text, findLanguage(file)), "code");
  if (isDiff(text)) return renderLines(text, renderDiff(parseDiff(text)), "diff");
  return renderLines(stripAnsi(text), renderAnsi(text), "out", "last");
}

function frame(name: string, head: string, state: string, inside: string): string {
  const failed = state === "" ? "" : " failed";
  const word = state === "" ? "" : ` <b class="bad">${escapeHtml(state)}</b>`;
  return `<div class="call${failed}"><p class="what"><b>${escapeHtml(name)}</b> ${head}${word}</p>${inside}</div>\n`;
}

export function renderCall(call: ToolCall, result: CallResult | undefined): string {
  const drawn = htmlToolCall(call, result);
  const failed = result?.message.isError === true;
  const answer = result
    ? `<div class="result" id="${result.anchor}">${resultHtml(result, drawn, failed)}</div>`
    : '<p class="dim">No result.</p>';
  return frame(call.name || "call", drawn.head, failed ? "failed" : "", drawn.body + answer);
}

/** Returns a result whose call is not before it on this branch. */
export function renderLoneResult(result: CallResult): string {
  const { message } = result;
  const failed = message.isError === true;
  const inside = resultHtml(result, { head: "", body: "" }, failed);
  return frame(`Result of ${toShownText(message.toolName) || "a call"}`, "", failed ? "failed" : "", inside);
}

export function renderCommandRun({ command, output, exitCode, cancelled, excludeFromContext }: LooseMembers): string {
  const ran = toShownText(command);
  const code = typeof exitCode === "number" && exitCode !== 0 ? `failed, exit ${exitCode}` : "";
  const state = cancelled === true ? "cancelled" : code;
  const apart = excludeFromContext === true ? '<span class="dim">not sent to the model</span>' : "";
  const { head, body } = drawnCommand(ran);
  return frame("You ran", `${head} ${apart}`, state, body + outputHtml(toShownText(output)));
}

export function renderThinking(text: string): string {
  return text.trim() === "" ? "" : renderFold("thinking", "Thinking", `<div class="plain">${escapeHtml(text)}</div>`);
}
