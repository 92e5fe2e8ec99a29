/** The usage of sessions, for people: a table or a chart that fits the page, and for spreadsheets. */

import { NOTHING_SAID } from "../core/search/listing.ts";
import { formatCsv } from "./csv.ts";
import { getDrawnWidth, type OutputStyle } from "./terminal/page.ts";
import {
  count,
  cutFront,
  cutMiddle,
  cutTo,
  escapeLine,
  formatCost,
  formatMoney,
  getWidth,
  group,
  pad,
  shortenPath,
  show,
} from "./terminal/text.ts";
import type { ResultOf } from "./verb.ts";

/** The names of groups for summing usage, as they are typed. */
export const GROUPS = ["day", "week", "month", "model", "project", "session"] as const;
export type GroupName = (typeof GROUPS)[number];

/** Text between two columns. */
const GAP = "  ";

/** Returns the digits after the point that amounts of this size need: cents, and their parts where all are small. */
function digitsFor(cost: number): number {
  return cost > 0 && cost < 1 ? 4 : 2;
}

type ReportedUsage = ResultOf<"get_usage">;
type ReportedRow = ReportedUsage["rows"][number];
type ReportedSums = Pick<ReportedRow, "messages" | "tokens" | "cost" | "inherited" | "unpricedMessages">;
type TokenKind = keyof ReportedSums["tokens"];
/** The members of a row that name its subject. */
type RowSubject = Omit<ReportedRow, keyof ReportedSums>;
/** A row of a chart, which may be a day or a week without any usage. */
type ChartRow = RowSubject & { readonly cost: number; readonly tokens: Pick<ReportedSums["tokens"], "total"> };

// --- labels ----------------------------------------------------------------------------------------------------------

/** A column that says what its row is about. */
interface RowLabel {
  readonly head: string;
  /** Columns below which it is not cut. */
  readonly least: number;
  readonly of: (row: RowSubject, page: OutputStyle) => string;
  readonly cut?: (text: string, width: number) => string;
}

const LABELS: Readonly<Record<GroupName, readonly RowLabel[]>> = {
  day: [{ head: "DAY", least: 10, of: ({ day }) => day ?? "unknown" }],
  week: [{ head: "WEEK OF", least: 10, of: ({ week }) => week ?? "unknown" }],
  month: [{ head: "MONTH", least: 7, of: ({ month }) => month ?? "unknown" }],
  project: [{ head: "PROJECT", least: 8, of: ({ cwd }, { home }) => shortenPath(cwd ?? "none", home), cut: cutFront }],
  session: [
    { head: "SESSION", least: 8, of: (row) => titleOf(row) },
    { head: "ID", least: 8, of: ({ shortId }) => show`${shortId ?? ""}` },
  ],
  model: [{ head: "MODEL", least: 8, of: (row) => modelOf(row), cut: cutMiddle }],
};

function titleOf({ name, firstMessage }: RowSubject): string {
  return escapeLine(name ?? firstMessage ?? "") || NOTHING_SAID;
}

function modelOf({ provider, model }: RowSubject): string {
  return escapeLine([provider, model].filter((part) => part !== null).join("/")) || "(not named)";
}

function labelsOf(by: readonly GroupName[]): readonly RowLabel[] {
  return by.length === 0 ? [{ head: "", least: 5, of: () => "all" }] : by.flatMap((group) => LABELS[group]);
}

// --- table -----------------------------------------------------------------------------------------------------------

/** Highest rank of columns of numbers that come before readable names, and the width of such names. */
const MATTERS = 1;
const READABLE = 20;

interface NumberColumn {
  readonly head: string;
  readonly of: (sums: ReportedSums) => string;
  /** Those of the lowest are left out last where the page is narrow. */
  readonly rank: number;
}

function numberColumns({ totals }: ReportedUsage): NumberColumn[] {
  const digits = digitsFor(totals.cost);
  const tokens = (kind: TokenKind) => (sums: ReportedSums) => group(sums.tokens[kind]);
  // Many providers know no cache.
  const cached = (kind: TokenKind, head: string): NumberColumn[] =>
    totals.tokens[kind] > 0 ? [{ head, of: tokens(kind), rank: 4 }] : [];
  const all: NumberColumn[] = [
    { head: "ANSWERS", of: ({ messages }) => group(messages), rank: 2 },
    { head: "INPUT", of: tokens("input"), rank: 3 },
    { head: "OUTPUT", of: tokens("output"), rank: 3 },
    ...cached("cacheRead", "CACHE READ"),
    ...cached("cacheWrite", "CACHE WRITE"),
    { head: "TOKENS", of: tokens("total"), rank: 1 },
    { head: "COST", of: ({ tokens, cost }) => formatCost(tokens.total, cost, digits), rank: 0 },
  ];
  if (totals.inherited.tokens.total > 0 || totals.inherited.cost > 0)
    all.push({
      head: "TAKEN OVER",
      of: ({ inherited: { tokens, cost } }) => formatCost(tokens.total, cost, digits),
      rank: 5,
    });
  return all;
}

/** Yields a table of usage, no line wider than the page, and what there is to know about its figures. */
export function* tabulate(result: ReportedUsage, by: readonly GroupName[], page: OutputStyle): Generator<string> {
  const { rows, totals } = result;
  if (rows.length > 0) {
    const labels = labelsFor(result, by, page.width);
    const texts = rows.map((row) => labels.map(({ of }) => of(row, page)));
    const natural = labels.map(({ head }, i) =>
      texts.reduce((most: number, row: string[]) => Math.max(most, getWidth(row[i])), getWidth(head)),
    );
    const numbers = fittingNumbers(result, labels, natural, page.width);
    const widths = labelWidths(labels, natural, numbers, page.width);
    const line = (cells: readonly string[], sums: ReportedSums | undefined): string =>
      [
        ...cells.map((text, i) => pad((labels[i].cut ?? cutTo)(text, widths[i]), widths[i])),
        ...numbers.map(({ head, of, width }) => pad(sums === undefined ? head : of(sums), width, "right")),
      ].join(GAP);
    yield page.paint(
      "dim",
      fitted(
        line(
          labels.map(({ head }) => head),
          undefined,
        ),
        page,
      ),
    );
    for (const [i, row] of rows.entries()) yield fitted(line(texts[i], row), page);
    if (rows.length > 1 || result.total > 1) {
      const first = ["total", ...labels.slice(1).map(() => "")];
      yield page.paint("bold", fitted(line(first, totals), page));
    }
  }
  yield* notes(result, page);
}

/** Returns the columns that name rows; on a page where they leave no room for the cost, one with all of them. */
function labelsFor({ totals }: ReportedUsage, by: readonly GroupName[], pageWidth: number): readonly RowLabel[] {
  const labels = labelsOf(by);
  const least = labels.reduce((sum, { least }) => sum + least + GAP.length, 0);
  const cost = formatCost(totals.tokens.total, totals.cost, digitsFor(totals.cost));
  if (least + cost.length <= pageWidth) return labels;
  const joined = (texts: readonly string[]): string => texts.join(GAP);
  const head = joined(labels.map(({ head }) => head));
  return [{ head, least: 1, of: (row, page) => joined(labels.map(({ of }) => of(row, page))) }];
}

function fitted(line: string, { width }: OutputStyle): string {
  return cutTo(line.trimEnd(), width);
}

/** Returns the columns of numbers that fit next to the labels, with their widths. */
function fittingNumbers(
  result: ReportedUsage,
  labels: readonly RowLabel[],
  natural: readonly number[],
  pageWidth: number,
): (NumberColumn & { readonly width: number })[] {
  const columns = numberColumns(result).map((column) => {
    const cells = [...result.rows, result.totals].map(column.of);
    return { ...column, width: cells.reduce((most, cell) => Math.max(most, cell.length), column.head.length) };
  });
  const widthWith = (most: number): number =>
    labels.reduce((sum, { least }, i) => sum + Math.min(natural[i], Math.max(least, most)) + GAP.length, 0);
  const fitting = new Set<string>();
  let taken = 0;
  for (const { head, width, rank } of [...columns].sort((a, b) => a.rank - b.rank)) {
    taken += width + GAP.length;
    // Names are only cut short for what matters most.
    if (taken + widthWith(rank <= MATTERS ? 0 : READABLE) > pageWidth + GAP.length) break;
    fitting.add(head);
  }
  return columns.filter(({ head }) => fitting.has(head));
}

/** Returns the widths of labels: all of the page that the numbers leave, as far as the labels need it. */
function labelWidths(
  labels: readonly RowLabel[],
  natural: readonly number[],
  numbers: readonly { readonly width: number }[],
  pageWidth: number,
): number[] {
  const widths = labels.map(({ least }, i) => Math.min(least, natural[i]));
  const taken = [...widths, ...numbers.map(({ width }) => width)].reduce((sum, width) => sum + width + GAP.length, 0);
  let spare = pageWidth + GAP.length - taken;
  // The short ones first, so that the long ones share the rest.
  const order = labels.map((_, i) => i).sort((a, b) => natural[a] - natural[b]);
  for (const [n, i] of order.entries()) {
    const more = Math.max(0, Math.min(natural[i] - widths[i], Math.floor(spare / (order.length - n))));
    widths[i] += more;
    spare -= more;
  }
  return widths;
}

// --- notes -----------------------------------------------------------------------------------------------------------

/** Models and sessions that a note names at most. */
const NAMED = 5;

function named(names: readonly string[], total: number): string {
  const more = total - Math.min(names.length, NAMED);
  return [...names.slice(0, NAMED), ...(more > 0 ? [`${group(more)} more`] : [])].join(", ");
}

/** Yields sentences about the parts that the figures leave out. */
function* notes(result: ReportedUsage, page: OutputStyle): Generator<string> {
  const { totals, total, rows, unpricedModels, incomplete, incompleteCount, archivedLeftOut } = result;
  const sentences: string[] = [];
  if (rows.length === 0) sentences.push("Nothing was spent in these sessions.");
  if (total > rows.length) sentences.push(`${count(total - rows.length, "more row", "more rows")}: --all shows them.`);
  const { inherited } = totals;
  if (inherited.tokens.total > 0 || inherited.cost > 0)
    sentences.push(
      `Forks took over ${group(inherited.tokens.total)} tokens (${formatMoney(inherited.cost, digitsFor(inherited.cost))}). ` +
        "They count in the sessions where they were spent.",
    );
  if (totals.unpricedMessages > 0) {
    const models = unpricedModels.map((model) => `${modelOf(model)} (${group(model.messages)})`);
    const messages = count(totals.unpricedMessages, "message is", "messages is");
    sentences.push(`The cost of ${messages} not known and counts as $0: ${named(models, models.length)}.`);
  }
  if (incompleteCount > 0) {
    const sessions = incomplete.map(({ sessionPath, shortId, name, damagedLines }) => {
      const what = name ? escapeLine(name) : show`${shortId ?? sessionPath}`;
      return `${what} (${damagedLines === undefined ? "cannot be read" : count(damagedLines, "bad line", "bad lines")})`;
    });
    const which = count(incompleteCount, "session is", "sessions are");
    sentences.push(`${which} damaged, and may have spent more: ${named(sessions, incompleteCount)}. See verify.`);
  }
  if (archivedLeftOut > 0) {
    const which = count(archivedLeftOut, "archived session is", "archived sessions are");
    sentences.push(`${which} left out; --archived counts them, too.`);
  }
  for (const sentence of sentences) yield page.paint("dim", sentence);
}

// --- chart -----------------------------------------------------------------------------------------------------------

/** Parts of a full block, from an eighth on. */
const PARTS = "▏▎▍▌▋▊▉█";
/** Most days or weeks of a chart that also shows those without usage. */
const MOST_TIMES = 400;
const DAY = 86_400_000;

/** Yields a chart with a bar for each row, no line wider than the page. On a plain page, bars are of `#`. */
export function* drawChart(result: ReportedUsage, by: readonly GroupName[], page: OutputStyle): Generator<string> {
  const { totals } = result;
  const isMoney = totals.cost > 0;
  const digits = digitsFor(totals.cost);
  const rows = withAllTimes(result.rows, by.join());
  const amountIn = (row: ChartRow): number => (isMoney ? row.cost : row.tokens.total);
  const textOf = ({ cost, tokens: { total } }: Pick<ChartRow, "cost" | "tokens">): string =>
    isMoney ? formatCost(total, cost, digits) : group(total);
  if (rows.length > 0) {
    const labels = labelsOf(by).filter(({ head }) => head !== "ID");
    const texts = rows.map((row) => labels.map(({ of }) => of(row, page)).join(" "));
    const most = rows.reduce((sum, row) => Math.max(sum, amountIn(row)), 0);
    const valueWidth = rows.reduce((width, row) => Math.max(width, textOf(row).length), 0);
    const widest = texts.reduce((width, text) => Math.max(width, getWidth(text)), 0);
    const labelWidth = Math.min(widest, Math.max(10, Math.floor(page.width * 0.4)));
    const rest = getDrawnWidth(page) - labelWidth - valueWidth - 2 * GAP.length;
    const space = Math.max(1, rest);
    yield page.paint("dim", cutTo(`${isMoney ? "COST" : "TOKENS"} BY ${by.join(", ").toUpperCase()}`, page.width));
    for (const [i, row] of rows.entries()) {
      const value = amountIn(row);
      const bar = page.paint("cyan", pad(barOf(most === 0 ? 0 : value / most, space, page.isPlain === true), space));
      const [label, figure] = [pad(texts[i], labelWidth), pad(textOf(row), valueWidth, "right")];
      yield page.width < labelWidth + valueWidth + 1 + 2 * GAP.length
        ? cutTo(`${label}${GAP}${figure}`, page.width)
        : [label, bar, figure].join(GAP);
    }
    const sum = `total ${textOf(totals)}`;
    yield page.paint("bold", cutTo(sum, page.width));
  }
  yield* notes(result, page);
}

/** Returns a bar over a part of the room; whatever is not nothing has one that can be seen. */
function barOf(part: number, space: number, plain: boolean): string {
  if (!(part > 0)) return "";
  if (plain) return "#".repeat(Math.max(1, Math.round(part * space)));
  const eighths = Math.max(1, Math.round(part * space * 8));
  const rest = eighths % 8;
  return "█".repeat(Math.floor(eighths / 8)) + (rest === 0 ? "" : PARTS[rest - 1]);
}

/** Returns rows of days or weeks, the latest first, including those without usage; other rows as they are. */
function withAllTimes(rows: readonly ReportedRow[], by: string): readonly ChartRow[] {
  if (by !== "day" && by !== "week") return rows;
  const step = by === "day" ? DAY : 7 * DAY;
  const byTime = new Map(rows.map((row) => [row[by] ?? null, row]));
  const times = rows.map((row) => Date.parse(row[by] ?? "")).filter((moment) => !Number.isNaN(moment));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const length = (last - first) / step + 1;
  if (!(length <= MOST_TIMES)) return rows;
  const all = Array.from({ length }, (_, n) => new Date(last - n * step).toISOString().slice(0, 10));
  const empty = { tokens: { total: 0 }, cost: 0 };
  const filled = all.map((time) => byTime.get(time) ?? { ...empty, [by]: time });
  const unknown = byTime.get(null);
  return unknown ? [...filled, unknown] : filled;
}

// --- spreadsheets ----------------------------------------------------------------------------------------------------

const CSV_LABELS: Readonly<
  Record<GroupName, readonly [head: string, of: (row: RowSubject) => string | null | undefined][]>
> = {
  day: [["day", ({ day }) => day]],
  week: [["week", ({ week }) => week]],
  month: [["month", ({ month }) => month]],
  project: [["project", ({ cwd }) => cwd]],
  session: [
    ["session", ({ sessionId }) => sessionId],
    ["name", ({ name }) => name],
    ["path", ({ sessionPath }) => sessionPath],
  ],
  model: [
    ["provider", ({ provider }) => provider],
    ["model", ({ model }) => model],
  ],
};

const CSV_NUMBERS: readonly [head: string, of: (row: ReportedSums) => string | number][] = [
  ["messages", ({ messages }) => messages],
  ["input_tokens", ({ tokens }) => tokens.input],
  ["output_tokens", ({ tokens }) => tokens.output],
  ["cache_read_tokens", ({ tokens }) => tokens.cacheRead],
  ["cache_write_tokens", ({ tokens }) => tokens.cacheWrite],
  ["tokens", ({ tokens }) => tokens.total],
  ["cost", ({ cost }) => cost.toFixed(6)],
  ["inherited_tokens", ({ inherited }) => inherited.tokens.total],
  ["inherited_cost", ({ inherited }) => inherited.cost.toFixed(6)],
  ["messages_without_cost", ({ unpricedMessages }) => unpricedMessages],
];

/** Returns usage as comma-separated values. On a terminal, texts are inert. */
export function formatUsageCsv({ rows }: ReportedUsage, by: readonly GroupName[], isTerminal: boolean): string {
  const labels = by.flatMap((group) => CSV_LABELS[group]);
  const textOf = (text: string | null | undefined): string => (isTerminal ? show`${text ?? ""}` : (text ?? ""));
  return formatCsv([
    [...labels, ...CSV_NUMBERS].map(([head]) => head),
    ...rows.map((row) => [...labels.map(([, of]) => textOf(of(row))), ...CSV_NUMBERS.map(([, of]) => of(row))]),
  ]);
}
