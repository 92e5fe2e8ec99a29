/** The head of the page: the session, its figures, and its links. */

import type { PageHead } from "../core/export/head.ts";
import type { ExportPage, PageBranch } from "../core/export/page.ts";
import { formatCount } from "./amounts.ts";
import { renderChart } from "./chart.ts";
import { escapeHtml } from "./escape.ts";
import { renderFold } from "./fold.ts";
import { type FactWriter, writeFacts } from "./head-facts.ts";

const HTML: FactWriter = {
  text: escapeHtml,
  code: (text) => `<code>${escapeHtml(text)}</code>`,
  place: escapeHtml,
  time(time) {
    const iso = Number.isNaN(Date.parse(time)) ? "" : new Date(time).toISOString();
    if (iso === "") return escapeHtml(time.slice(0, 40));
    return `<time datetime="${iso}">${iso.slice(0, 16).replace("T", " ")}</time>`;
  },
  cost: (cost) => cost,
  suffix: (words) => ` <span class="dim">${words}</span>`,
  parts: (words) => ` <span class="dim">${words}</span>`,
};

/** Yields the head; the title is HTML. */
export function* renderTop(page: ExportPage, head: PageHead, title: string): Generator<string> {
  yield `<header class="top"><h1>${title}</h1>\n<dl class="facts">`;
  const facts = [...writeFacts(head, HTML), ["Session", HTML.code(head.id)]];
  for (const [name, value] of facts) if (value !== "") yield `<div><dt>${name}</dt><dd>${value}</dd></div>\n`;
  yield "</dl>\n";
  yield renderChart(head.turns, page.anchorOf);
  yield "</header>\n";
  yield* turnsHtml(page, head);
}

/** Yields the questions of the shown path and the other branches, as links. */
function* turnsHtml({ branches, anchorOf }: ExportPage, { turns }: PageHead): Generator<string> {
  const isShort = turns.length < 3 && branches.length < 2;
  if (isShort) return;
  const items = turns.map(
    ({ position, preview }) => `<li><a href="#${anchorOf(position)}">${escapeHtml(preview || "(no text)")}</a></li>\n`,
  );
  yield '<nav class="contents" aria-label="Contents">';
  yield renderFold("turns", formatCount(turns.length, "question"), `<ol>${items.join("")}</ol>`);
  const others = branches.filter(({ active }) => !active);
  if (others.length > 0) {
    const title = formatCount(others.length, "other branch", "other branches");
    yield `<details class="turns branches"><summary>${title}</summary><ul>`;
    for (const branch of others) yield `<li>${renderBranchLink(branch)}</li>\n`;
    yield "</ul></details>";
  }
  yield "</nav>\n";
}

export function renderBranchLink({ number, preview, length }: PageBranch): string {
  const said = preview() || `Branch ${number}`;
  return `<a href="#branch.${number}">${escapeHtml(said)}</a> <span class="dim">${formatCount(length, "entry", "entries")}</span>`;
}
