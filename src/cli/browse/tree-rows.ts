/** Writes the rows of a tree: rails, kind, text, calls and label, in as many columns as there are. */

import type { FlatNode } from "../entries.ts";
import type { Colour, OutputStyle } from "../terminal/page.ts";
import { count, cutTo, escapeLine, formatClock, getWidth, group, highlightWords, pad, show } from "../terminal/text.ts";
import type { Branches } from "./branches.ts";

/** Columns of one indent. */
const LEVEL = 3;
/** Columns that a row's text needs to be worth reading; on a narrower page ids are left out. */
const READABLE = 40;

const KINDS: Readonly<Record<string, string>> = {
  toolResult: "result",
  bashExecution: "bash",
  model_change: "model",
  thinking_level_change: "thinking",
  branch_summary: "summary",
  branchSummary: "summary",
  compactionSummary: "summary",
  session_info: "name",
  custom_message: "custom",
  context_edit: "edit",
};

const COLOURS: Readonly<Record<string, Colour>> = {
  user: "cyan",
  assistant: "green",
  compaction: "magenta",
  summary: "magenta",
  custom: "blue",
};

/** Returns the name of an entry's kind: the role of a message, the type of anything else. */
function kindOf({ type, role }: ShownEntry): string {
  const name = type === "message" && typeof role === "string" ? role : type;
  return Object.hasOwn(KINDS, name) ? KINDS[name] : show`${name}`;
}

/** An entry of a tree, or of one of two branches. */
type ShownEntry = Pick<FlatNode, "type" | "role" | "toolName" | "isError">;

export function getEntryColour(node: ShownEntry): Colour {
  const kind = kindOf(node);
  return node.isError ? "red" : Object.hasOwn(COLOURS, kind) ? COLOURS[kind] : "dim";
}

/** Returns calls as they are shown, `[bash: npm test] [edit: src/store.ts]`. */
export function formatTreeCalls(calls: FlatNode["calls"]): string {
  return (calls ?? [])
    .map(({ name, argument }) => `[${escapeLine(argument === "" ? name : `${name}: ${argument}`)}]`)
    .join(" ");
}

/** Returns the words of an entry: its text, and the calls that it makes. */
export function getEntryWords({ preview, calls, role, type }: FlatNode): string {
  const text = escapeLine(preview ?? "");
  const made = formatTreeCalls(calls);
  const said = made !== "" && text.startsWith("[") ? "" : text;
  const words = [said, made].filter(Boolean).join(" ");
  return type === "bashExecution" || role === "bashExecution" ? `$ ${words}` : words;
}

/** Least characters of a word that may be the beginning of an id. */
const ID_WORD = 4;

/** Returns true if an entry has all the words, which are in lower case, or begins with one as its id. */
export function hasWords(node: FlatNode, words: readonly string[]): boolean {
  const text = `${kindOf(node)} ${getEntryWords(node)} ${node.label ?? ""}`.toLowerCase();
  const id = String(node.id).toLowerCase();
  return words.every((word) => text.includes(word) || (word.length >= ID_WORD && id.startsWith(word)));
}

/** Returns the lines that lead to a row, in at most `width` columns; of deep branches the last, after a count. */
function rails(level: number, isHead: boolean, width: number): string {
  if (level === 0) return "";
  const most = Math.max(1, Math.floor(width / LEVEL));
  const end = isHead ? "├─ " : "│  ";
  if (level <= most) return `${"│  ".repeat(level - 1)}${end}`;
  const mark = `${group(level)}… `;
  const available = Math.max(0, Math.floor((width - getWidth(mark)) / LEVEL) - 1);
  return cutTo(`${mark}${"│  ".repeat(Math.min(available, level - 1))}${end}`, Math.max(LEVEL, width));
}

/** Options of a row besides the page. */
interface RowStyle {
  /** Columns of ids that are alike; longer ones take more. 0: none are shown. */
  readonly idWidth: number;
  /** Columns of times, see {@link getClockWidth}; none are shown without it. */
  readonly clockWidth?: number;
  /** Words to highlight. */
  readonly words?: string;
  /** Names of the heads that stand at a row, by the row. */
  readonly heads?: ReadonlyMap<number, readonly string[]>;
}

/** Returns the names of heads for the end of a row; "" for none. */
export function formatHeads(names: readonly string[] | undefined): string {
  if (names === undefined || names.length === 0) return "";
  return ` (${names.length === 1 ? "head" : "heads"} ${names.map(escapeLine).join(", ")})`;
}

/** Columns of a page with room for times, of a time of this year, and of one with its year. */
const WITH_TIMES = 80;
const THIS_YEAR = 11;
const ANY_YEAR = 16;

/** Returns the columns that the times of a tree take on a page; 0 if it has no room for them. */
export function getClockWidth(nodes: readonly FlatNode[], { width, now }: OutputStyle): number {
  const ends = [nodes[0], nodes[nodes.length - 1]].map((node) => formatClock(node?.timestamp)).filter(Boolean);
  if (width < WITH_TIMES || ends.length === 0) return 0;
  const year = formatClock(now).slice(0, 4);
  return ends.every((clock) => clock.startsWith(year)) ? THIS_YEAR : ANY_YEAR;
}

export function formatTreeRow(branches: Branches, row: number, page: OutputStyle, style: RowStyle): string {
  const { paint, width } = page;
  const node = branches.node(row);
  const isLeaf = branches.hasLeaf(row);
  const own = show`${node.id}`;
  const hasId = style.idWidth > 0 && width >= READABLE;
  const id = hasId ? `${pad(own, Math.min(Math.max(style.idWidth, getWidth(own)), Math.floor(width / 2)))}  ` : "";
  const clock = formatClock(node.timestamp).slice(-(style.clockWidth ?? 0));
  const time = style.clockWidth ? `${clock.padEnd(style.clockWidth)}  ` : "";
  const space = Math.max(0, width - 2 - getWidth(id) - time.length);
  const lines = rails(branches.level(row), branches.isHead(row), Math.floor(space / 2));
  const left = space - getWidth(lines);
  const text =
    branches.lineLength(row) > 0
      ? lineText(branches, row, page, left, style)
      : rowText(branches, row, page, left, style);
  return `${paint("green", isLeaf ? "*" : " ")} ${paint("dim", `${id}${time}${lines}`)}${text}`;
}

/** Returns the text of a row that stands for a line of entries. */
function lineText(branches: Branches, row: number, { paint }: OutputStyle, width: number, { heads }: RowStyle): string {
  const headNames = cutTo(formatHeads(heads?.get(row)), Math.floor(width / 2));
  const facts = cutTo(`… ${lineFacts(branches, row)}`, Math.max(0, width - getWidth(headNames)));
  return `${paint("dim", facts)}${paint("green", headNames)}`;
}

/** Returns the figures of a folded line: entries, calls, failures. */
function lineFacts(branches: Branches, row: number): string {
  let calls = 0;
  let failed = 0;
  for (const entry of branches.entries(row)) {
    calls += entry.calls?.length ?? 0;
    if (entry.isError) failed++;
  }
  const facts = [count(branches.lineLength(row), "entry", "entries")];
  if (calls > 0) facts.push(count(calls, "call", "calls"));
  if (failed > 0) facts.push(`${group(failed)} failed`);
  return facts.join(", ");
}

function rowText(branches: Branches, row: number, page: OutputStyle, width: number, style: RowStyle): string {
  const { paint } = page;
  const { words = "" } = style;
  const node = branches.node(row);
  const hidden = branches.hiddenBehind(row);
  const more = hidden > 0 ? ` (+${group(hidden)})` : "";
  const headNames = cutTo(formatHeads(style.heads?.get(row)), Math.floor(width * 0.4));
  const label = labelText(node, Number.isFinite(width) ? Math.min(34, Math.floor(width * 0.45)) : width);
  const head = getEntryHead(node).filter(Boolean).join(" ");
  const said = getEntryWords(node);
  const available = Math.max(0, width - getWidth(label) - getWidth(headNames) - more.length);
  const line = cutTo(said === "" ? head : `${head}: ${said}`, available);
  const colour = getEntryColour(node);
  const base = branches.isActive(row) ? "bold" : "plain";
  const tail = `${paint("dim", more)}${paint("yellow", label)}${paint("green", headNames)}`;
  if (!line.startsWith(`${head}:`)) return `${paint(colour, line)}${tail}`;
  const rest = line.slice(head.length + 1);
  return `${paint(colour, `${head}:`)}${highlightWords(rest, words, page, base)}${tail}`;
}

/** Returns the kind of an entry as its row begins, and the tool that a result is of. */
export function getEntryHead(node: ShownEntry): [string, string] {
  const kind = kindOf(node);
  const tool = kind === "result" && typeof node.toolName === "string" ? escapeLine(node.toolName) : "";
  return [node.isError ? "failed" : kind, node.isError && tool === "" ? kind : tool];
}

function labelText({ label }: FlatNode, width: number): string {
  const text = label === undefined ? "" : cutTo(escapeLine(label), width - 3);
  return text === "" ? "" : ` [${text}]`;
}

/** Returns a row in words alone, for readers of screens. */
export function formatPlainRow(branches: Branches, row: number, page: OutputStyle, style: RowStyle): string {
  const node = branches.node(row);
  const parts = [style.idWidth > 0 ? show`${node.id} ` : ""];
  if (branches.hasLeaf(row)) parts.push("(leaf) ");
  if (branches.isHead(row)) parts.push(show`branch of ${node.parentId ?? "nothing"}: `);
  if (branches.lineLength(row) > 0) parts.push(lineFacts(branches, row));
  else {
    const said = getEntryWords(node);
    parts.push(getEntryHead(node).filter(Boolean).join(" "), said === "" ? "" : `: ${said}`);
  }
  if (node.label !== undefined) parts.push(`, label ${escapeLine(node.label)}`);
  parts.push(formatHeads(style.heads?.get(row)));
  return cutTo(parts.join(""), page.width);
}
