/** The entries of a branch as HTML, one after the other, each with its name and a link to itself. */

import type { PageFold } from "../core/export/head.ts";
import type { ExportPage, PageEntry } from "../core/export/page.ts";
import { getContentText, type ToolCall, toPreview } from "../core/format/message.ts";
import { formatAmount, formatCount } from "./amounts.ts";
import { renderImage } from "./blocks.ts";
import { renderCall, renderCommandRun, renderLoneResult, renderThinking } from "./calls.ts";
import { renderCode } from "./code.ts";
import {
  type BlockWriter,
  type Drawn,
  type DrawnBranch,
  type EntryView,
  startDrawing,
  TOO_LONG,
  viewEntry,
  walkBranch,
  writeBlocks,
} from "./entry-view.ts";
import { escapeHtml } from "./escape.ts";
import { renderFold, renderLines } from "./fold.ts";
import { renderProse } from "./prose.ts";
import type { RowTuple } from "./row.ts";
import { renderRows, toRow } from "./rows.ts";
import { renderBranchLink } from "./top.ts";

const BLOCKS: BlockWriter = { text: renderProse, thinking: renderThinking, image: renderImage, call: renderCall };

/** A part of a branch: entries that are drawn together, with their rows, or markup between them that is open or shut. */
export type BranchPart = { readonly html: string; readonly rows: RowTuple[] } | { readonly between: string };

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
  for (const step of walkBranch(branch)) {
    if (step.is === "end") yield { between: "</details>\n" };
    else if (step.is === "fold") yield { between: foldedHtml(page, step.fold) };
    else {
      const { entry, results } = step;
      const all = [entry, ...results.values()].filter(({ number }) => number >= 0);
      const view = viewEntry(page, entry, drawn);
      const html = entryHtml(page, entry, view, results) + all.map((one) => leftHere(page, one)).join("");
      for (const { branchesHere } of all) for (const number of branchesHere) states.set(number, { ...drawn });
      yield { html, rows: all.map(toRow) };
    }
  }
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
    `<p class="replaced">${TOO_LONG}. ${link}</p>` +
    `<details class="past" data-by="${page.anchorOf(by)}"><summary>Read the ${what} that the summary replaced</summary>\n`
  );
}

function leftHere({ branches }: ExportPage, { anchor, branchesHere }: PageEntry): string {
  if (branchesHere.length === 0) return "";
  const links = branchesHere.map((number) => `<li>${renderBranchLink(branches[number - 1])}</li>`);
  return `<div class="left" data-at="${anchor}"><p>Other branches from here:</p><ul>${links.join("")}</ul></div>\n`;
}

function entryHtml(
  page: ExportPage,
  entry: PageEntry,
  view: EntryView,
  results: ReadonlyMap<ToolCall, PageEntry>,
): string {
  switch (view.is) {
    case "question": {
      const said = escapeHtml(toPreview(getContentText(view.content), 60));
      const heading = `<h3>You <span class="number">${view.turn}</span><span class="vh">: ${said}</span></h3>`;
      return `<article id="${entry.anchor}" class="user"><header>${heading}${aboutHtml(entry, true)}</header>${writeBlocks(view.content, BLOCKS)}</article>\n`;
    }
    case "answer": {
      const { message, model, usage, stop, isContinued } = view;
      const detail = [
        model === "" ? "" : `<span class="model">${escapeHtml(model)}</span>`,
        usage.length === 0 ? "" : `<span class="usage">${usage.join(" · ")}</span>`,
      ];
      const end = stop ? `<p class="stop"><b class="bad">${stop.word}</b> ${escapeHtml(stop.said)}</p>` : "";
      const style = isContinued ? "assistant on" : "assistant";
      const inside = writeBlocks(message.content, BLOCKS, results) + end;
      return article(entry, style, "Assistant", inside, detail.filter(Boolean).join(" "));
    }
    case "summary": {
      const { title, text, tokens, from } = view;
      const link = from < 0 ? "" : `<a href="#${page.anchorOf(from)}">Go to the left branch</a>`;
      const detail = tokens === 0 ? link : `<span class="dim">of ${formatAmount(tokens)} tokens</span>`;
      return article(entry, "summary", title, summaryHtml(text), detail);
    }
    case "custom": {
      const { title, content, details, isHidden } = view;
      const inside =
        writeBlocks(content, BLOCKS) + (details === "" ? "" : renderFold("more", "Details", jsonHtml(details)));
      const hidden = "A message to the model that the agent hides";
      return article(entry, "custom", title, isHidden ? renderFold("more", hidden, inside) : inside);
    }
    case "result":
      return bare(entry, renderLoneResult({ message: view.message, anchor: entry.anchor }));
    case "command":
      return bare(entry, renderCommandRun(view.message));
    default:
      return `<div class="note" id="${entry.anchor}">${noteHtml(page, view)}${aboutHtml(entry)}</div>\n`;
  }
}

/** Returns an entry that is no message as one line. */
function noteHtml(page: ExportPage, view: Extract<EntryView, { is: "fact" | "label" | "data" }>): string {
  if (view.is === "fact") return `<p>${view.name} <b>${escapeHtml(view.value)}</b></p>`;
  if (view.is === "label") {
    const target = view.target < 0 ? "an entry" : `<a href="#${page.anchorOf(view.target)}">an entry</a>`;
    const label = escapeHtml(view.label);
    return `<p>${label === "" ? `Label removed from ${target}` : `Label <mark>${label}</mark> on ${target}`}</p>`;
  }
  const title = escapeHtml(view.title);
  return view.json.length <= 2 ? title : renderFold("more", title, jsonHtml(view.json));
}

function jsonHtml(json: string): string {
  return renderLines(json, renderCode(json, "json"), "code");
}

function summaryHtml(text: string): string {
  const html = renderProse(text);
  return text.length < 1500 && text.split("\n").length <= 15
    ? html
    : renderFold("more", escapeHtml(toPreview(text.slice(0, 1000).replace(/^#+ /gm, ""), 140)), html);
}

/** Returns the entry as an article with a heading; `detail` is HTML that follows the title. */
function article(entry: PageEntry, style: string, title: string, inside: string, detail = ""): string {
  const heading = `<h4>${escapeHtml(title)}</h4>`;
  return `<article id="${entry.anchor}" class="${style}"><header>${heading}${detail === "" ? "" : ` ${detail}`}${aboutHtml(entry)}</header>${inside}</article>\n`;
}

/** Returns an entry that needs no heading. */
function bare(entry: PageEntry, inside: string): string {
  return `<article id="${entry.anchor}" class="tool"><header>${aboutHtml(entry)}</header>${inside}</article>\n`;
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
