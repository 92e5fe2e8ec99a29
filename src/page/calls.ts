/** Calls of tools with their results, as HTML. */

import type { LooseMembers } from "../core/format/loose.ts";
import { type ToolCall, toShownText } from "../core/format/message.ts";
import { renderAnsi, stripAnsi } from "./ansi.ts";
import { renderImage } from "./blocks.ts";
import {
  type CallBlock,
  type CallResult,
  type CallView,
  type ResultPart,
  viewCall,
  viewCommandRun,
  viewResult,
} from "./call-view.ts";
import { findLanguage, renderCode } from "./code.ts";
import { isDiff, isDrawable, parseDiff, renderDiff } from "./diff.ts";
import { escapeHtml } from "./escape.ts";
import { renderFold, renderLines } from "./fold.ts";

function codeHtml(text: string): string {
  const line = text.length > 300 ? `${text.slice(0, 300)}…` : text;
  return `<code>${escapeHtml(line.replace(/\s+/g, " ").trim())}</code>`;
}

function headHtml({ subject, isCommand, range = "", changes }: CallView): string {
  const code = isCommand ? `<code class="cmd">${renderCode(subject, "bash")}</code>` : codeHtml(subject);
  const parts = [
    subject === "" ? "" : code,
    range === "" ? "" : `<span class="dim">${range}</span>`,
    changes ? `<span class="plus">+${changes.added}</span> <span class="minus">−${changes.removed}</span>` : "",
  ];
  return parts.filter(Boolean).join(" ");
}

function blockHtml({ title, text, language, lines }: CallBlock): string {
  if (lines) return renderLines(text, renderDiff(lines), "diff");
  return renderLines(text, renderCode(text, language), title === "Command" ? "cmd" : "code");
}

function partHtml(part: ResultPart): string {
  if ("image" in part) return renderImage(part.image);
  if ("said" in part) return `<p class="dim">${escapeHtml(part.said)}</p>`;
  if ("output" in part) return outputHtml(part.output, part.file);
  const { diff } = part;
  return isDrawable(diff)
    ? renderLines(diff, renderDiff(parseDiff(diff)), "diff")
    : renderLines(diff, escapeHtml(diff), "out");
}

function resultHtml(result: CallResult, call?: CallView): string {
  const label = result.label === undefined ? "" : `<mark>${escapeHtml(result.label)}</mark>`;
  return label + viewResult(result, call).map(partHtml).join("");
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

const stateOf = (result: CallResult | undefined): string => (result?.message.isError === true ? "failed" : "");

export function renderCall(call: ToolCall, result: CallResult | undefined): string {
  const view = viewCall(call, result);
  const answer = result
    ? `<div class="result" id="${result.anchor}">${resultHtml(result, view)}</div>`
    : '<p class="dim">No result.</p>';
  const inside = view.blocks.map(blockHtml).join("") + answer;
  return frame(call.name || "call", headHtml(view), stateOf(result), inside);
}

/** Returns a result whose call is not before it on this branch. */
export function renderLoneResult(result: CallResult): string {
  const name = `Result of ${toShownText(result.message.toolName) || "a call"}`;
  return frame(name, "", stateOf(result), resultHtml(result));
}

export function renderCommandRun(message: LooseMembers): string {
  const { call, output, state, isApart } = viewCommandRun(message);
  const apart = isApart ? '<span class="dim">not sent to the model</span>' : "";
  return frame(
    "You ran",
    `${headHtml(call)} ${apart}`,
    state,
    call.blocks.map(blockHtml).join("") + outputHtml(output),
  );
}

export function renderThinking(text: string): string {
  return text.trim() === "" ? "" : renderFold("thinking", "Thinking", `<div class="plain">${escapeHtml(text)}</div>`);
}
