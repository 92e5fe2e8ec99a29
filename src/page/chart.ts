/** Size of the context and cost, turn by turn, as a picture. */

import type { PageTurn } from "../core/export/head.ts";
import { formatAmount, formatCost, formatCount } from "./amounts.ts";
import { escapeHtml } from "./escape.ts";

const WIDTH = 720;
const HEIGHT = 96;

/** Columns at most; of more turns, several share one. */
const MOST_COLUMNS = 180;

interface ChartColumn {
  readonly first: number;
  readonly last: number;
  readonly position: number;
  readonly contextTokens: number;
  readonly cost: number;
}

function columnsOf(turns: readonly PageTurn[]): ChartColumn[] {
  const each = Math.ceil(turns.length / MOST_COLUMNS);
  const columns: ChartColumn[] = [];
  for (let from = 0; from < turns.length; from += each) {
    const some = turns.slice(from, from + each);
    columns.push({
      first: from + 1,
      last: from + some.length,
      position: some[0].position,
      contextTokens: Math.max(...some.map(({ contextTokens }) => contextTokens)),
      cost: some.reduce((sum, { cost }) => sum + cost, 0),
    });
  }
  return columns;
}

/** Returns the chart; nothing if fewer than two turns have figures. Its bars are the context, its line the cost. */
export function renderChart(turns: readonly PageTurn[], anchorOf: (position: number) => string): string {
  const columns = columnsOf(turns);
  const mostTokens = Math.max(0, ...columns.map(({ contextTokens }) => contextTokens));
  const mostCost = Math.max(0, ...columns.map(({ cost }) => cost));
  if (columns.length < 2 || mostTokens === 0) return "";
  const step = WIDTH / columns.length;
  const gap = Math.min(2, step / 4);
  const bars = columns.map(({ first, last, position, contextTokens, cost }, index) => {
    const height = (contextTokens / mostTokens) * HEIGHT;
    const turn = first === last ? `Turn ${first}` : `Turns ${first} to ${last}`;
    const title = `${turn}: ${formatAmount(contextTokens)} tokens, ${formatCost(cost)}`;
    const [x, y] = [(index * step).toFixed(1), (HEIGHT - height).toFixed(1)];
    return `<a href="#${escapeHtml(anchorOf(position))}" tabindex="-1"><title>${title}</title><rect class="hit" x="${x}" y="0" width="${step.toFixed(1)}" height="${HEIGHT}"/><rect class="bar" x="${x}" y="${y}" width="${(step - gap).toFixed(1)}" height="${height.toFixed(1)}"/></a>`;
  });
  const points = columns.map(
    ({ cost }, index) =>
      `${((index + 0.5) * step).toFixed(1)},${(HEIGHT - 2 - (cost / mostCost) * (HEIGHT - 6)).toFixed(1)}`,
  );
  const line = mostCost === 0 ? "" : `<polyline class="line" points="${points.join(" ")}"/>`;
  const says = `Size of the context and cost in ${formatCount(turns.length, "turn")}: at most ${formatAmount(mostTokens)} tokens and ${formatCost(mostCost)} in one.`;
  const key =
    `<span class="key bars">context, at most ${formatAmount(mostTokens)} tokens</span>` +
    (mostCost === 0 ? "" : ` <span class="key costs">cost, at most ${formatCost(mostCost)} a turn</span>`);
  return `<figure class="chart"><svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="group" aria-label="${says}">${bars.join("")}${line}</svg><figcaption>${key}</figcaption></figure>\n`;
}
