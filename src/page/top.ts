/** The head of the page: the session, its figures, and its links. */

import type { PageHead } from "../core/export/head.ts";
import type { ExportPage, PageBranch } from "../core/export/page.ts";
import { toPreview } from "../core/format/message.ts";
import { formatAmount, formatCost, formatCount } from "./amounts.ts";
import { renderChart } from "./chart.ts";
import { escapeHtml } from "./escape.ts";
import { renderFold } from "./fold.ts";

/** Forks that the head names; of more it has the number. */
const MOST_FORKS = 20;

/** Yields the head; the title is HTML. */
export function* renderTop(page: ExportPage, head: PageHead, title: string): Generator<string> {
  yield `<header class="top"><h1>${title}</h1>\n<dl class="facts">`;
  for (const [name, value] of factsOf(head)) if (value !== "") yield `<div><dt>${name}</dt><dd>${value}</dd></div>\n`;
  yield "</dl>\n";
  yield renderChart(head.turns, page.anchorOf);
  yield "</header>\n";
  yield* turnsHtml(page, head);
}

/** Yields pairs of name and value, both as HTML. */
function* factsOf(head: PageHead): Generator<readonly [string, string]> {
  const { stats, models } = head;
  const { tokens, own, inherited } = stats;
  yield ["Directory", escapeHtml(head.cwd)];
  yield ["Dates", datesOf(head)];
  yield [models.length > 1 ? "Models" : "Model", models.map(escapeHtml).join(", ")];
  yield ["Messages", messagesOf(stats)];
  if (tokens.total > 0) {
    const cached = tokens.cacheRead + tokens.cacheWrite;
    const split = [
      `${formatAmount(tokens.input)} in`,
      `${formatAmount(tokens.output)} out`,
      ...(cached > 0 ? [`${formatAmount(tokens.cacheRead)} read from the cache`] : []),
      ...(tokens.cacheWrite > 0 ? [`${formatAmount(tokens.cacheWrite)} written to it`] : []),
    ];
    yield ["Tokens", `${formatAmount(tokens.total)} <span class="dim">${split.join(", ")}</span>`];
  }
  const wasPaid = inherited.cost > 0 ? ` <span class="dim">and ${formatCost(inherited.cost)} inherited</span>` : "";
  if (stats.cost > 0) yield ["Cost", `${formatCost(own.cost)}${wasPaid}`];
  yield ["Forked from", parentOf(head)];
  const forks = (head.family?.children ?? []).map(relativeHtml);
  const more = forks.length > MOST_FORKS ? [`${forks.length - MOST_FORKS} more`] : [];
  yield [forks.length === 1 ? "Fork" : "Forks", [...forks.slice(0, MOST_FORKS), ...more].join(", ")];
  yield ["Session", `<code>${escapeHtml(head.id)}</code>`];
}

/** Returns the session that this one was forked from: its known facts, or else its path. */
function parentOf({ family, parent }: PageHead): string {
  return family?.parent ? relativeHtml(family.parent) : escapeHtml(parent ?? "");
}

function relativeHtml({ id, name }: { readonly id: string; readonly name: string | null }): string {
  const code = `<code>${escapeHtml(id)}</code>`;
  return name === null ? code : `${escapeHtml(toPreview(name, 80))} ${code}`;
}

function messagesOf({ totalMessages, userMessages, assistantMessages, toolCalls, path }: PageHead["stats"]): string {
  const parts = [
    formatCount(userMessages, "question"),
    formatCount(assistantMessages, "answer"),
    ...(toolCalls > 0 ? [formatCount(toolCalls, "call")] : []),
    ...(path.totalMessages < totalMessages ? [`${path.totalMessages.toLocaleString("en-US")} on the shown path`] : []),
  ];
  return `${totalMessages.toLocaleString("en-US")} <span class="dim">${parts.join(", ")}</span>`;
}

function datesOf({ begun, last }: PageHead): string {
  const shown = (time: string): string => {
    const iso = Number.isNaN(Date.parse(time)) ? "" : new Date(time).toISOString();
    return iso === ""
      ? escapeHtml(time.slice(0, 40))
      : `<time datetime="${iso}">${iso.slice(0, 16).replace("T", " ")}</time>`;
  };
  if (begun === "" || last === "" || begun.slice(0, 16) === last.slice(0, 16)) return shown(begun || last);
  return `${shown(begun)} to ${shown(last)} <span class="dim">UTC</span>`;
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
