/**
 * A session as a Markdown document for GitHub and Obsidian: its head as a table, the path to the leaf, and folded what
 * compactions replaced and every other branch.
 */

import type { PageHead } from "../../core/export/head.ts";
import type { ExportPage, PageBranch } from "../../core/export/page.ts";
import { toPreview as shortened } from "../../core/format/message.ts";
import { formatAmount, formatCost, formatCount } from "../amounts.ts";
import { FOLD_END, writeBranch, writeFoldStart } from "./entries.ts";
import { escapeCell, escapeTextLine, makeAnchor, makeCodeSpan } from "./escape.ts";

/** Forks that the head names; of more it has the number. */
const MOST_FORKS = 20;

/** Yields the document in pieces, so that a long session need not be in memory twice. */
export function* writeMarkdown(page: ExportPage): Generator<string> {
  const head = yield* page.head();
  // A session without a name is known by its first question.
  yield `# ${escapeTextLine((!page.isNamed && head.turns[0]?.preview) || page.title)}\n\n`;
  yield `| Session | ${escapeCell(makeCodeSpan(head.id))} |\n| --- | --- |\n`;
  for (const [name, value] of factsOf(head)) if (value !== "") yield `| ${name} | ${escapeCell(value)} |\n`;
  const [path, ...others] = page.branches;
  yield "\n## Conversation\n\n";
  const { before = 0 } = page;
  if (before > 0) yield `${formatCount(before, "entry", "entries")} before these are not in this document.\n\n`;
  yield* writeBranch(page, path);
  if (others.length > 0) yield "## Other branches\n\n";
  for (const branch of others) yield* otherMarkdown(page, branch);
  if (page.apart.length === 0) return;
  yield writeFoldStart(`${formatCount(page.apart.length, "entry", "entries")} of no branch`);
  yield* writeBranch(page, { entries: page.apart.entries, folds: () => [] });
  yield FOLD_END;
}

function* otherMarkdown(page: ExportPage, branch: PageBranch): Generator<string> {
  const { number, preview, length, from } = branch;
  // A link into a fold does not open it everywhere.
  yield `${makeAnchor(`branch.${number}`)}\n\n`;
  yield writeFoldStart(`${preview() || `Branch ${number}`} (${formatCount(length, "entry", "entries")})`);
  if (from !== undefined) yield `It leaves [this entry](#${page.anchorOf(from)}).\n\n`;
  yield* writeBranch(page, branch);
  yield FOLD_END;
}

/** Yields pairs of name and value, the value as Markdown. */
function* factsOf(head: PageHead): Generator<readonly [string, string]> {
  const { stats, models } = head;
  const { tokens, own, inherited } = stats;
  yield ["Directory", makeCodeSpan(head.cwd)];
  yield ["Dates", datesOf(head)];
  yield [models.length > 1 ? "Models" : "Model", models.map(escapeTextLine).join(", ")];
  yield ["Messages", messagesOf(stats)];
  if (tokens.total > 0) {
    const cache = `${formatAmount(tokens.cacheRead)} read from the cache, ${formatAmount(tokens.cacheWrite)} written to it`;
    const split = `${formatAmount(tokens.input)} in, ${formatAmount(tokens.output)} out`;
    yield [
      "Tokens",
      `${formatAmount(tokens.total)}: ${split}${tokens.cacheRead + tokens.cacheWrite > 0 ? `, ${cache}` : ""}`,
    ];
  }
  const wasPaid = inherited.cost > 0 ? ` and \\${formatCost(inherited.cost)} inherited` : "";
  if (stats.cost > 0) yield ["Cost", `\\${formatCost(own.cost)}${wasPaid}`];
  const { parent, children = [] } = head.family ?? {};
  yield ["Forked from", parent ? relativeOf(parent) : makeCodeSpan(head.parent ?? "")];
  const more = children.length > MOST_FORKS ? [`${children.length - MOST_FORKS} more`] : [];
  yield [
    children.length === 1 ? "Fork" : "Forks",
    [...children.slice(0, MOST_FORKS).map(relativeOf), ...more].join(", "),
  ];
}

function relativeOf({ id, name }: { readonly id: string; readonly name: string | null }): string {
  return name === null ? makeCodeSpan(id) : `${escapeTextLine(shortened(name, 80))} ${makeCodeSpan(id)}`;
}

function messagesOf({ totalMessages, userMessages, assistantMessages, toolCalls, path }: PageHead["stats"]): string {
  const calls = toolCalls > 0 ? `, ${formatCount(toolCalls, "call")}` : "";
  const shown = path.totalMessages < totalMessages ? `; ${path.totalMessages} on the path to the leaf` : "";
  return `${totalMessages}: ${formatCount(userMessages, "question")}, ${formatCount(assistantMessages, "answer")}${calls}${shown}`;
}

function datesOf({ begun, last }: PageHead): string {
  const shown = (time: string): string =>
    Number.isNaN(Date.parse(time))
      ? escapeTextLine(time.slice(0, 40))
      : new Date(time).toISOString().slice(0, 16).replace("T", " ");
  const [from, to] = [shown(begun || last), shown(last || begun)];
  return from === to ? from : `${from} to ${to} UTC`;
}
