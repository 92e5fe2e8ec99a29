/** Prints two branches side by side, or one under the other where a page is narrow. */

import { getEntryColour, getEntryHead } from "./browse/tree-rows.ts";
import type { Colour, OutputStyle } from "./terminal/page.ts";
import {
  count,
  cutFront,
  cutTo,
  escapeLine,
  formatCost,
  formatSpan,
  getWidth,
  group,
  pad,
  show,
  wrap,
} from "./terminal/text.ts";
import type { ResultOf } from "./verb.ts";

/** Least columns for two readable branches next to each other. */
const WIDE = 100;
/** The line between them. */
const RULE = " │ ";
/** Lines of one text, and items of one list, that are printed. */
const MOST_LINES = 4;
const MOST_ITEMS = 8;

type Comparison = ResultOf<"compare_branches">;
type ComparedBranch = Comparison["a"];
type SaidEntry = ComparedBranch["entries"][number];

/** A line of a side before it is coloured, because colours have no width. */
interface ColumnLine {
  readonly text: string;
  readonly colour: Colour;
}

/** A column: its facts, which are aligned with those of the other, and its conversation. */
interface ColumnText {
  readonly facts: readonly ColumnLine[];
  readonly said: readonly ColumnLine[];
}

const EMPTY: ColumnLine = { text: "", colour: "plain" };

/** Yields the lines of a comparison. For programs and screen readers, one side is under the other, in whole lines. */
export function* formatComparison(result: Comparison, page: OutputStyle): Generator<string> {
  const { commonShownId, commonEntryCount, a, b } = result;
  const { paint } = page;
  const isDrawn = page.isTerminal && page.isPlain !== true;
  const pageWidth = isDrawn ? page.width : Number.POSITIVE_INFINITY;
  const painted = ({ text, colour }: ColumnLine): string => paint(colour, text);
  const head =
    commonEntryCount === 0
      ? "They have no entry in common."
      : `They have ${count(commonEntryCount, "entry", "entries")} in common${commonShownId === null ? "" : show`, up to ${commonShownId}`}.`;
  const both = a.files.modifiedFiles.filter((file: string) => b.files.modifiedFiles.includes(file));
  for (const line of [...wrapped(head, "plain", pageWidth), ...filesText("both changed", both, pageWidth), EMPTY])
    yield painted(line);
  const isWide = isDrawn && pageWidth >= WIDE;
  const width = isWide ? Math.floor((pageWidth - RULE.length) / 2) : pageWidth;
  const namesSession = a.sessionId !== b.sessionId || a.sessionPath !== b.sessionPath;
  const left = formatColumn("A", a, width, namesSession);
  const right = formatColumn("B", b, width, namesSession);
  if (!isWide) for (const line of [...under(left), EMPTY, ...under(right)]) yield painted(line);
  else
    for (const [one, other] of [
      ...pairLines(left.facts, right.facts),
      [EMPTY, EMPTY],
      ...pairLines(left.said, right.said),
    ])
      yield `${paint(one.colour, pad(one.text, width))}${paint("dim", RULE)}${painted(other)}`.trimEnd();
}

function under({ facts, said }: ColumnText): ColumnLine[] {
  return said.length === 0 ? [...facts] : [...facts, EMPTY, ...said];
}

function pairLines(left: readonly ColumnLine[], right: readonly ColumnLine[]): [ColumnLine, ColumnLine][] {
  const rows = Math.max(left.length, right.length);
  return Array.from({ length: rows }, (_, i) => [left[i] ?? EMPTY, right[i] ?? EMPTY]);
}

function formatColumn(name: string, branch: ComparedBranch, width: number, namesSession: boolean): ColumnText {
  const { shownId, entryCount, entries, nextCursor, lastAnswer } = branch;
  const facts = [
    ...wrapped(`${name}  ${shownId === null ? "before the first message" : show`${shownId}`}`, "bold", width),
    ...(namesSession ? wrapped(show`session ${branch.sessionId}${nameText(branch)}`, "dim", width) : []),
    ...(entryCount === 0 ? wrapped("Nothing was added on this side.", "plain", width) : factLines(branch, width)),
  ];
  const said: ColumnLine[] = entries.flatMap((entry) => saidLines(entry, width));
  if (nextCursor !== undefined) said.push(...wrapped("(there is more; --limit shows more of it)", "dim", width));
  const isShown = entries.some((entry) => entry.entryId === lastAnswer?.entryId);
  if (lastAnswer !== undefined && !isShown) said.push(...saidLines(lastAnswer, width));
  return { facts, said };
}

function nameText({ sessionName }: ComparedBranch): string {
  return sessionName === null ? "" : `, ${escapeLine(sessionName)}`;
}

function factLines(branch: ComparedBranch, width: number): ColumnLine[] {
  const { entryCount, userMessages, assistantMessages, toolCalls, failedCalls, tokens, files } = branch;
  const failed = failedCalls === 0 ? "" : ` (${group(failedCalls)} failed)`;
  const models = branch.models.map(({ provider, id, messages }) => `${provider}/${id} ${messages}`);
  const facts = [
    `${count(entryCount, "entry", "entries")} in ${formatSpan(branch.durationMs)}`,
    `${group(userMessages)} from the user, ${group(assistantMessages)} from the assistant`,
    `${count(toolCalls, "tool call", "tool calls")}${failed}`,
    `${count(tokens.total, "token", "tokens")}, ${formatSpent(branch)}`,
    ...listed("models", models),
    ...listed("tools", branch.tools.map(toolText)),
  ];
  return [
    ...facts.flatMap((fact) => wrapped(fact, "plain", width)),
    ...filesText("changed", files.modifiedFiles, width),
    ...filesText("read", files.readFiles, width),
  ];
}

/** Returns what messages cost, as a part of a line. */
export function formatSpent({ tokens, cost }: Pick<ComparedBranch, "tokens" | "cost">): string {
  return formatCost(tokens.total, cost, cost < 1 ? 4 : 2, "cost unknown");
}

/** Returns names as one text; of many, only the first. */
function listed(name: string, items: readonly string[]): string[] {
  if (items.length === 0) return [];
  const more = items.length > MOST_ITEMS ? ` and ${group(items.length - MOST_ITEMS)} more` : "";
  return [`${name}: ${items.slice(0, MOST_ITEMS).map(escapeLine).join(", ")}${more}`];
}

function toolText({ name, count, failures }: ComparedBranch["tools"][number]): string {
  return `${name} ${count}${failures === 0 ? "" : ` (${failures} failed)`}`;
}

/** Returns files under their heading, each with its end; of many, only the first. */
function filesText(name: string, files: readonly string[], width: number): ColumnLine[] {
  if (files.length === 0) return [];
  const shown = files.slice(0, MOST_ITEMS).map((file) => `  ${cutFront(escapeLine(file), Math.max(1, width - 2))}`);
  const more = files.length > MOST_ITEMS ? [`  and ${group(files.length - MOST_ITEMS)} more`] : [];
  return [`${name}:`, ...shown, ...more].map((text) => ({ text: cutTo(text, width), colour: "plain" }));
}

function saidLines(entry: SaidEntry, width: number): ColumnLine[] {
  const { text, calls = [] } = entry;
  const head = getEntryHead(entry).filter(Boolean).join(" ");
  const spoken =
    text === "" && calls.length > 0 ? [] : wrapped(`${head}: ${escapeLine(text)}`, getEntryColour(entry), width);
  return [...spoken, ...calls.map((call): ColumnLine => ({ text: callText(call, width), colour: "yellow" }))];
}

/** Returns a call on one line: of a path its end counts, of anything else its beginning. */
function callText({ name, argument }: NonNullable<SaidEntry["calls"]>[number], width: number): string {
  const head = `  ${escapeLine(name)}: `;
  const given = escapeLine(argument);
  const isPath = /^[^\s]*[/\\][^\s]*$/.test(given);
  return cutTo(isPath ? `${head}${cutFront(given, Math.max(1, width - getWidth(head)))}` : `${head}${given}`, width);
}

/** Returns an inert text as a few lines at most; the last one shows whether there is more. */
function wrapped(text: string, colour: Colour, width: number): ColumnLine[] {
  const lines = wrap(text, width);
  const shown = lines.slice(0, MOST_LINES);
  if (lines.length > MOST_LINES) shown[MOST_LINES - 1] = cutTo(`${shown[MOST_LINES - 1]}…`, width);
  return shown.map((text) => ({ text, colour }));
}
