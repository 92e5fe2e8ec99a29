/** The facts at the head of a page or document, written as HTML or Markdown. */

import type { PageHead } from "../core/export/head.ts";
import { toPreview } from "../core/format/message.ts";
import { formatAmount, formatCost, formatCount, group } from "./amounts.ts";

/** Forks that the head names; of more it has the number. */
const MOST_FORKS = 20;

/** The writers of texts of a session, and of the words around them. */
export interface FactWriter {
  text(text: string): string;
  code(text: string): string;
  place(path: string): string;
  time(time: string): string;
  cost(cost: string): string;
  /** Words behind a value, and the parts that it has. */
  suffix(words: string): string;
  parts(words: string): string;
}

/** Yields pairs of name and value; an empty value is no fact. */
export function* writeFacts(head: PageHead, to: FactWriter): Generator<readonly [string, string]> {
  const { stats, models, family } = head;
  const { tokens, own, inherited, totalMessages, path } = stats;
  yield ["Directory", to.place(head.cwd)];
  yield ["Dates", datesOf(head, to)];
  yield [models.length > 1 ? "Models" : "Model", models.map(to.text).join(", ")];
  const messages = [
    formatCount(stats.userMessages, "question"),
    formatCount(stats.assistantMessages, "answer"),
    ...(stats.toolCalls > 0 ? [formatCount(stats.toolCalls, "call")] : []),
    ...(path.totalMessages < totalMessages ? [`${group(path.totalMessages)} on the shown path`] : []),
  ];
  yield ["Messages", `${group(totalMessages)}${to.parts(messages.join(", "))}`];
  const used = [
    `${formatAmount(tokens.input)} in`,
    `${formatAmount(tokens.output)} out`,
    ...(tokens.cacheRead + tokens.cacheWrite > 0 ? [`${formatAmount(tokens.cacheRead)} read from the cache`] : []),
    ...(tokens.cacheWrite > 0 ? [`${formatAmount(tokens.cacheWrite)} written to it`] : []),
  ];
  if (tokens.total > 0) yield ["Tokens", `${formatAmount(tokens.total)}${to.parts(used.join(", "))}`];
  const paid = inherited.cost > 0 ? to.suffix(`and ${to.cost(formatCost(inherited.cost))} inherited`) : "";
  if (stats.cost > 0) yield ["Cost", `${to.cost(formatCost(own.cost))}${paid}`];
  const relative = ({ id, name }: { readonly id: string; readonly name: string | null }): string =>
    name === null ? to.code(id) : `${to.text(toPreview(name, 80))} ${to.code(id)}`;
  yield ["Forked from", family?.parent ? relative(family.parent) : to.place(head.parent ?? "")];
  const forks = family?.children ?? [];
  const more = forks.length > MOST_FORKS ? [`${forks.length - MOST_FORKS} more`] : [];
  yield [forks.length === 1 ? "Fork" : "Forks", [...forks.slice(0, MOST_FORKS).map(relative), ...more].join(", ")];
}

function datesOf({ begun, last }: PageHead, to: FactWriter): string {
  const [from, until] = [to.time(begun || last), to.time(last || begun)];
  return begun.slice(0, 16) === last.slice(0, 16) || from === until ? from : `${from} to ${until}${to.suffix("UTC")}`;
}
