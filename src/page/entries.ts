/** The entries of a branch, one after the other, each with its name and a link to itself. */

import type { PageFold } from "../core/export/head.ts";
import type { ExportPage, PageBranch, PageEntry } from "../core/export/page.ts";
import { type LooseMembers, toBlocks, toMembers } from "../core/format/loose.ts";
import {
  getContentText,
  getToolCalls,
  type ToolCall,
  toAmount,
  toPreview,
  toShownText,
  toStored,
} from "../core/format/message.ts";
import { formatAmount, formatCount } from "./amounts.ts";
import { describeUsage, renderImage, toIndentedJson } from "./blocks.ts";
import { renderCall, renderCommandRun, renderLoneResult, renderThinking, toCallResult } from "./calls.ts";
import { renderCode } from "./code.ts";
import { escapeHtml } from "./escape.ts";
import { renderFold, renderLines } from "./fold.ts";
import { groupEntries } from "./groups.ts";
import { renderProse } from "./prose.ts";
import type { RowTuple } from "./row.ts";
import { renderRows, toRow } from "./rows.ts";
import { renderBranchLink } from "./top.ts";

/** The state after drawing the earlier entries of the same branch. */
export interface Drawn {
  turns: number;
  model: string;
  /** True if the last drawn entry was the assistant's. */
  answering: boolean;
}

/** A part of a branch: entries that are drawn together, with their rows, or markup between them that is open or shut. */
export type BranchPart = { readonly html: string; readonly rows: RowTuple[] } | { readonly between: string };

type DrawnBranch = Pick<PageBranch, "folds" | "entries">;

/** Returns how a branch stands before anything was drawn of it. */
export function startDrawing(): Drawn {
  return { turns: 0, model: "", answering: false };
}

/**
 * Yields a branch in parts; entries replaced by compactions are folded. `drawn` is the state before it; `states` has
 * those at the beginnings of other branches, by their numbers, and gets those that begin in this one.
 */
export function* renderBranchParts(
  page: ExportPage,
  branch: DrawnBranch,
  drawn: Drawn = startDrawing(),
  states: Map<number, Drawn> = new Map(),
): Generator<BranchPart> {
  const folds = branch.folds();
  const starts = new Map(folds.map((fold) => [fold.start, fold]));
  const ends = new Set(folds.map(({ end }) => end));
  const cuts = new Set([...starts.keys(), ...ends]);
  for (const { index, entry, results } of groupEntries(branch.entries(), cuts)) {
    if (ends.has(index)) {
      ends.delete(index);
      yield { between: "</details>\n" };
    }
    const fold = starts.get(index);
    if (fold) {
      starts.delete(index);
      yield { between: foldedHtml(page, fold) };
    }
    const all = [entry, ...results.values()].filter(({ number }) => number >= 0);
    const html = entryHtml(page, entry, results, drawn) + all.map((one) => leftHere(page, one)).join("");
    for (const { branchesHere } of all) for (const number of branchesHere) states.set(number, { ...drawn });
    yield { html, rows: all.map(toRow) };
  }
  if (ends.size > 0) yield { between: "</details>\n" };
}

/** Yields entries that come after the page was made, each stretch with its rows; `drawn` is the state before them. */
export function* renderBranch(page: ExportPage, branch: DrawnBranch, drawn: Drawn = startDrawing()): Generator<string> {
  for (const part of renderBranchParts(page, branch, drawn))
    yield "html" in part ? part.html + renderRows(part.rows) : part.between;
}

function foldedHtml(page: ExportPage, { start, end, by }: PageFold): string {
  const link = `<a href="#${page.anchorOf(by)}">Read the summary</a>`;
  const what = formatCount(end - start, "entry", "entries");
  return (
    `<p class="replaced">What follows was compacted. ${link}</p>` +
    `<details class="past" data-by="${page.anchorOf(by)}"><summary>${what} that a compaction replaced</summary>\n`
  );
}

function leftHere({ branches }: ExportPage, { anchor, branchesHere }: PageEntry): string {
  if (branchesHere.length === 0) return "";
  const links = branchesHere.map((number) => `<li>${renderBranchLink(branches[number - 1])}</li>`);
  return `<div class="left" data-at="${anchor}"><p>Another way was taken here, too:</p><ul>${links.join("")}</ul></div>\n`;
}

function entryHtml(
  page: ExportPage,
  entry: PageEntry,
  results: ReadonlyMap<ToolCall, PageEntry>,
  drawn: Drawn,
): string {
  const { body } = entry;
  const wasAnswering = drawn.answering;
  drawn.answering = false;
  switch (body.type) {
    case "message":
      drawn.answering = wasAnswering;
      return messageHtml(entry, toMembers(body.message), results, drawn);
    case "custom_message":
      return customHtml(entry);
    case "compaction":
      return article(entry, "summary", "Compaction", summaryHtml(body), tokensBefore(body));
    case "branch_summary":
      return article(entry, "summary", "Summary of a branch", summaryHtml(body), fromLink(page, body.fromId));
    default:
      drawn.answering = wasAnswering;
      return noteHtml(page, entry, drawn);
  }
}

function tokensBefore({ tokensBefore }: LooseMembers): string {
  const tokens = toAmount(tokensBefore);
  return tokens === 0 ? "" : `<span class="dim">of ${formatAmount(tokens)} tokens</span>`;
}

function fromLink(page: ExportPage, fromId: unknown): string {
  const position = page.find(toStored(fromId));
  return position < 0 ? "" : `<a href="#${page.anchorOf(position)}">Go to the left branch</a>`;
}

function summaryHtml({ summary }: LooseMembers): string {
  const text = toShownText(summary);
  const html = renderProse(text);
  return text.length < 1500 && text.split("\n").length <= 15
    ? html
    : renderFold("more", escapeHtml(toPreview(text.slice(0, 1000).replace(/^#+ /gm, ""), 140)), html);
}

function customHtml(entry: PageEntry): string {
  const { customType, content, display, details } = entry.body;
  const title = toShownText(customType) || "Extension";
  const text = blocksHtml(content, new Map());
  const json = details === undefined ? "" : toIndentedJson(details);
  const more = json === "" ? "" : renderFold("more", "Details", renderLines(json, renderCode(json, "json"), "code"));
  // The agent's screen leaves these out; the model reads them.
  if (display === false)
    return article(entry, "custom", title, renderFold("more", "A message to the model that is not shown", text + more));
  return article(entry, "custom", title, text + more);
}

/** Returns the entry as an article with a heading; `detail` is HTML that follows the title. */
function article(entry: PageEntry, style: string, title: string, inside: string, detail = ""): string {
  const heading = `<h4>${escapeHtml(title)}</h4>`;
  return `<article id="${entry.anchor}" class="${style}"><header>${heading}${detail === "" ? "" : ` ${detail}`}${aboutHtml(entry)}</header>${inside}</article>\n`;
}

/** Returns the label of an entry, its time, and the link to it. */
function aboutHtml({ anchor, label, body }: PageEntry, withDay = false): string {
  const mark = label === undefined ? "" : `<mark>${escapeHtml(label)}</mark> `;
  const time = typeof body.timestamp === "string" ? timeHtml(body.timestamp, withDay) : "";
  return `<span class="about">${mark}${time}<a class="self" href="#${anchor}" aria-label="Link">#</a></span>`;
}

function timeHtml(timestamp: string, withDay: boolean): string {
  const found = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(?::\d\d)?/.exec(timestamp);
  if (!found || Number.isNaN(Date.parse(timestamp)))
    return `<span class="time">${escapeHtml(timestamp.slice(0, 40))}</span> `;
  const iso = escapeHtml(timestamp.replace(/\.000Z$/, "Z"));
  return `<time datetime="${iso}">${withDay ? `${found[1]} ` : ""}${found[2]}</time> `;
}

function messageHtml(
  entry: PageEntry,
  message: LooseMembers,
  results: ReadonlyMap<ToolCall, PageEntry>,
  drawn: Drawn,
): string {
  const { role, content } = message;
  const wasAnswering = drawn.answering;
  drawn.answering = role === "assistant" || (role === "toolResult" && wasAnswering);
  if (role === "user") {
    drawn.turns++;
    const said = toPreview(getContentText(content), 60);
    const heading = `<h3>You <span class="number">${drawn.turns}</span><span class="vh">: ${escapeHtml(said)}</span></h3>`;
    return `<article id="${entry.anchor}" class="user"><header>${heading}${aboutHtml(entry, true)}</header>${blocksHtml(content, new Map())}</article>\n`;
  }
  if (role === "assistant") return answerHtml(entry, message, results, drawn, wasAnswering);
  if (role === "toolResult") return bare(entry, renderLoneResult({ message, anchor: entry.anchor }));
  if (role === "bashExecution") return bare(entry, renderCommandRun(message));
  return article(entry, "custom", toShownText(role) || "Message", blocksHtml(content, new Map()));
}

/** Returns an entry that needs no heading. */
function bare(entry: PageEntry, inside: string): string {
  return `<article id="${entry.anchor}" class="tool"><header>${aboutHtml(entry)}</header>${inside}</article>\n`;
}

function answerHtml(
  entry: PageEntry,
  message: LooseMembers,
  results: ReadonlyMap<ToolCall, PageEntry>,
  drawn: Drawn,
  isContinued: boolean,
): string {
  const model = toStored(message.model);
  const isNew = model !== "" && model !== drawn.model;
  if (isNew) drawn.model = model;
  const detail = [isNew ? `<span class="model">${escapeHtml(model)}</span>` : "", usageHtml(message.usage)];
  const inside = blocksHtml(message.content, results) + stopHtml(message);
  const style = isContinued && !isNew ? "assistant on" : "assistant";
  return article(entry, style, "Assistant", inside, detail.filter(Boolean).join(" "));
}

function usageHtml(usage: unknown): string {
  const words = describeUsage(usage);
  return words.length === 0 ? "" : `<span class="usage">${words.join(" · ")}</span>`;
}

function stopHtml({ stopReason, errorMessage }: LooseMembers): string {
  if (stopReason !== "error" && stopReason !== "aborted") return "";
  const word = stopReason === "error" ? "Failed" : "Aborted";
  const said = toShownText(errorMessage);
  return `<p class="stop"><b class="bad">${word}</b> ${escapeHtml(said)}</p>`;
}

function blocksHtml(content: unknown, results: ReadonlyMap<ToolCall, PageEntry>): string {
  let html = "";
  const calls = results.size > 0 ? results.keys() : getToolCalls(content).values();
  for (const block of toBlocks(content)) {
    if (block.type === "text") html += renderProse(toStored(block.text));
    else if (block.type === "thinking") html += renderThinking(toStored(block.thinking));
    else if (block.type === "image") html += renderImage(block);
    else if (block.type === "toolCall") {
      const call = calls.next().value as ToolCall;
      html += renderCall(call, toCallResult(results.get(call)));
    }
  }
  return html;
}

/** Returns an entry that is no message as one line. */
function noteHtml(page: ExportPage, entry: PageEntry, drawn: Drawn): string {
  const { type, id: _id, parentId: _parent, timestamp: _time, ...rest } = entry.body;
  const line = (html: string): string =>
    `<div class="note" id="${entry.anchor}"><p>${html}</p>${aboutHtml(entry)}</div>\n`;
  switch (type) {
    case "model_change": {
      const model = toStored(rest.modelId);
      drawn.model = model;
      return line(`Model: <b>${escapeHtml([toShownText(rest.provider), model].filter(Boolean).join("/"))}</b>`);
    }
    case "thinking_level_change":
      return line(`Thinking: <b>${escapeHtml(toShownText(rest.thinkingLevel))}</b>`);
    case "session_info":
      return line(`Named <b>${escapeHtml(toShownText(rest.name))}</b>`);
    case "label": {
      const position = page.find(toStored(rest.targetId));
      const target = position < 0 ? "an entry" : `<a href="#${page.anchorOf(position)}">an entry</a>`;
      const label = toShownText(rest.label);
      return line(label === "" ? `Label taken from ${target}` : `Label <mark>${escapeHtml(label)}</mark> on ${target}`);
    }
    default: {
      const json = toIndentedJson(rest);
      const title = escapeHtml(toPreview([toShownText(type), toShownText(rest.customType)].filter(Boolean).join(": ")));
      const inside =
        json.length <= 2 ? title : renderFold("more", title, renderLines(json, renderCode(json, "json"), "code"));
      return `<div class="note" id="${entry.anchor}">${inside}${aboutHtml(entry)}</div>\n`;
    }
  }
}
