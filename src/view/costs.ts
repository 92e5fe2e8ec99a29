/** The page of costs: by day as a chart, by model, project and session as tables. */

import { formatAmount, formatCost, formatCount, group } from "../page/amounts.ts";
import { escapeHtml } from "../page/escape.ts";
import type { ViewAnswer, ViewHost } from "./answer.ts";
import { makeHref, makeSessionHref, PLACES, parseDirectory, renderFramed, toTildePath } from "./frame.ts";
import { getSessionTitle, type ShownSession } from "./list.ts";

/** Days that can be chosen, with their words; none stands for all. */
const SPANS: readonly (readonly [string, string])[] = [
  ["7", "7 days"],
  ["30", "30 days"],
  ["90", "90 days"],
  ["365", "A year"],
  ["all", "All"],
];
const USUAL = "30";
const DAY = 86_400_000;
/** Rows of each table. */
const ROWS = 50;

interface SpentSums {
  readonly messages: number;
  readonly cost: number;
  readonly tokens: { readonly input: number; readonly output: number; readonly total: number };
}

interface SpentRow
  extends SpentSums,
    Partial<Pick<ShownSession, "sessionPath" | "sessionId" | "name" | "firstMessage">> {
  readonly day?: string | null;
  readonly provider?: string | null;
  readonly model?: string | null;
  readonly cwd?: string | null;
}

export async function renderCostsPage(host: ViewHost, query: URLSearchParams): Promise<ViewAnswer> {
  const span = SPANS.find(([days]) => days === query.get("days"))?.[0] ?? USUAL;
  const cwd = parseDirectory(query, host);
  const wanted = {
    since: span === "all" ? undefined : new Date(host.now() - Number(span) * DAY).toISOString(),
    cwd: cwd === "" ? undefined : cwd,
    archived: query.has("archived") ? true : undefined,
  };
  const ask = (by: string, limit?: number) => host.ask("get_usage", { ...wanted, groupBy: [by], limit });
  const [days, models, projects, sessions] = [
    await ask("day"),
    await ask("model", ROWS),
    await ask("cwd", ROWS),
    await ask("session", ROWS),
  ];
  const place = ({ cwd }: SpentRow): string =>
    cwd === null || cwd === undefined
      ? "none"
      : `<a href="${makeHref(PLACES.list, { cwd })}">${escapeHtml(toTildePath(cwd, host))}</a>`;
  const inside = [
    formHtml(span, toTildePath(cwd, host), query.has("archived")),
    totalsHtml(days),
    daysChart(days.rows),
    tableHtml("By model", "Model", models, modelOf),
    tableHtml("By project", "Directory", projects, place),
    tableHtml("By session", "Session", sessions, sessionOf),
    tableHtml("By day", "Day", days, ({ day }) => escapeHtml(day ?? "unknown")),
    notesHtml(days),
  ];
  return renderFramed("Costs", "costs", inside.join(""));
}

function modelOf({ provider, model }: SpentRow): string {
  return escapeHtml([provider, model].filter(Boolean).join("/") || "(not named)");
}

function sessionOf(row: SpentRow): string {
  const { sessionPath = "", sessionId = "", name = null, firstMessage = null } = row;
  return `<a href="${makeSessionHref(sessionPath, sessionId)}">${escapeHtml(getSessionTitle({ name, firstMessage }))}</a>`;
}

function formHtml(span: string, cwd: string, archived: boolean): string {
  const options = SPANS.map(
    ([days, word]) => `<option value="${days}"${days === span ? " selected" : ""}>${word}</option>`,
  );
  return `<form class="ask" action="${PLACES.costs}">
<label>Time<select name="days">${options.join("")}</select></label>
<label class="wide">Directory<input type="text" name="cwd" value="${escapeHtml(cwd)}" placeholder="all"></label>
<label class="tick"><input type="checkbox" name="archived" value="1"${archived ? " checked" : ""}>Archived too</label>
<button>Show</button></form>
`;
}

// biome-ignore lint/suspicious/noExplicitAny: the result as it came from the wire
function totalsHtml({ totals }: any): string {
  const { cost, tokens, messages, sessions, unpricedMessages, inherited } = totals;
  const facts = [
    ["Cost", formatCost(cost)],
    [
      "Tokens",
      `${formatAmount(tokens.total)} <span class="dim">${formatAmount(tokens.input)} in, ${formatAmount(tokens.output)} out</span>`,
    ],
    ["Answers", group(messages)],
    ["Sessions", group(sessions)],
    [
      "Inherited",
      inherited.cost > 0 ? `${formatCost(inherited.cost)} <span class="dim">counted where it was spent</span>` : "",
    ],
    ["No price", unpricedMessages > 0 ? formatCount(unpricedMessages, "answer") : ""],
  ];
  const shown = facts.filter(([, value]) => value !== "");
  return `<dl class="facts">${shown.map(([name, value]) => `<div><dt>${name}</dt><dd>${value}</dd></div>`).join("\n")}</dl>\n`;
}

const WIDTH = 720;
const HEIGHT = 160;
/** Columns at most; of more days, several share one. */
const COLUMNS = 120;
/** Days at least: one alone would be a picture of one colour. */
const LEAST = 14;

/** Returns the cost of each day as a bar, days without any included. */
function daysChart(rows: readonly SpentRow[]): string {
  const spent = rows.filter(({ day, cost }) => typeof day === "string" && cost > 0);
  if (spent.length === 0) return "";
  const byDay = new Map(spent.map((row) => [numberOf(row.day as string), row]));
  const [earliest, last] = [Math.min(...byDay.keys()), Math.max(...byDay.keys())];
  const first = Math.min(earliest, last - LEAST + 1);
  const each = Math.ceil((last - first + 1) / COLUMNS);
  const columns: { readonly from: number; readonly to: number; cost: number }[] = [];
  for (let from = first; from <= last; from += each) {
    const column = { from, to: Math.min(last, from + each - 1), cost: 0 };
    for (let day = from; day <= column.to; day++) column.cost += byDay.get(day)?.cost ?? 0;
    columns.push(column);
  }
  const most = Math.max(...columns.map(({ cost }) => cost));
  const step = WIDTH / columns.length;
  const gap = Math.min(2, step / 4);
  const bars = columns.map(({ from, to, cost }, index) => {
    const height = (cost / most) * HEIGHT;
    const when = from === to ? dayOf(from) : `${dayOf(from)} to ${dayOf(to)}`;
    const place = `x="${(index * step).toFixed(1)}" width="${Math.max(0.5, step - gap).toFixed(1)}"`;
    return `<g><title>${when}: ${formatCost(cost)}</title><rect class="hit" ${place} y="0" height="${HEIGHT}"/><rect class="bar" ${place} y="${(HEIGHT - height).toFixed(1)}" height="${height.toFixed(1)}"/></g>`;
  });
  const what = each === 1 ? "a day" : `${each} days`;
  const says = `Cost from ${dayOf(first)} to ${dayOf(last)}: at most ${formatCost(most)} in ${what}.`;
  return `<figure class="chart"><svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label="${says}">${bars.join("")}</svg><figcaption><span class="key bars">${dayOf(first)} to ${dayOf(last)}, at most ${formatCost(most)} in ${what}</span></figcaption></figure>\n`;
}

/** Returns the number of a day, and from that the day again. */
function numberOf(day: string): number {
  return Math.round(Date.parse(`${day}T00:00:00Z`) / DAY);
}
function dayOf(number: number): string {
  return new Date(number * DAY).toISOString().slice(0, 10);
}

function tableHtml(
  title: string,
  head: string,
  // biome-ignore lint/suspicious/noExplicitAny: the result as it came from the wire
  { rows, total }: any,
  nameOf: (row: SpentRow) => string,
): string {
  if (rows.length === 0) return "";
  const shown: SpentRow[] = rows.slice(0, ROWS);
  const lines = shown.map(
    (row) =>
      `<tr><td>${nameOf(row)}</td><td>${formatCost(row.cost)}</td><td>${formatAmount(row.tokens.total)}</td><td>${formatAmount(row.tokens.output)}</td><td>${group(row.messages)}</td></tr>`,
  );
  const rest = total - shown.length;
  const more =
    rest > 0 ? `<p class="dim">and ${formatCount(rest, "more row", "more rows")}; the verb stats prints all.</p>` : "";
  return `<h2>${title}</h2>
<div class="scroll" role="region" aria-label="${title}" tabindex="0"><table class="sums"><thead><tr><th scope="col">${head}</th><th scope="col">Cost</th><th scope="col">Tokens</th><th scope="col">Output</th><th scope="col">Answers</th></tr></thead><tbody>
${lines.join("\n")}
</tbody></table></div>${more}
`;
}

// biome-ignore lint/suspicious/noExplicitAny: the result as it came from the wire
function notesHtml({ totals, unpricedModels, incompleteCount, archivedLeftOut }: any): string {
  const notes: string[] = [];
  if (totals.messages === 0) notes.push("Nothing was spent in this time.");
  if (unpricedModels.length > 0)
    notes.push(`No price is known for ${unpricedModels.slice(0, 20).map(modelOf).join(", ")}; these count as free.`);
  if (incompleteCount > 0) notes.push(`${formatCount(incompleteCount, "session")} could not be read whole.`);
  if (archivedLeftOut > 0) notes.push(`${formatCount(archivedLeftOut, "archived session")} left out.`);
  return notes.map((note) => `<p class="dim">${note}</p>\n`).join("");
}
