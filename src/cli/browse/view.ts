/** Draws the screen of `browse`. Only the rows that are on it are laid out. */

import { NOTHING_SAID } from "../../core/search/listing.ts";
import { AGE, fitColumns, formatListHead, formatSessionLine, type SessionColumns } from "../session-columns.ts";
import { type OutputStyle, plain } from "../terminal/page.ts";
import {
  cutFront,
  cutTo,
  escapeLine,
  formatAge,
  formatClock,
  formatMoney,
  formatSize,
  getWidth,
  group,
  highlightWords,
  pad,
  shortenPath,
  show,
} from "../terminal/text.ts";
import { formatHelpLines, formatKeyLine } from "./help.ts";
import { BETWEEN, computeLayout } from "./layout.ts";
import { getSelectedRow } from "./list.ts";
import { getSortName } from "./list-keys.ts";
import { formatPreview } from "./preview.ts";
import type { BrowsedSession, BrowseState, ListRow, Sort, TreeState } from "./state.ts";
import { formatTreeRow, getClockWidth } from "./tree-rows.ts";

/** Returns the lines of the screen, none wider than it. */
export function renderScreen(state: BrowseState, page: OutputStyle): string[] {
  if (state.help !== undefined) return helpView(state, state.help, page);
  const { listColumns } = computeLayout(state);
  const inner = { ...page, width: listColumns };
  const lines = state.tree ? treeView(state, state.tree, inner) : listView(state, inner);
  return [...withPreview(state, lines, page), lastLine(state, page)];
}

function helpView({ rows, columns, tree }: BrowseState, top: number, page: OutputStyle): string[] {
  const all = formatHelpLines(page, tree !== undefined);
  const height = Math.max(1, rows - 2);
  const shown = all.slice(top, top + height);
  while (shown.length < height) shown.push("");
  const left = all.length - top - height;
  const more = left > 0 ? `  j, PgDn: ${group(left)} more lines` : "";
  return [
    page.paint("bold", cutTo("Keys", columns)),
    ...shown,
    page.paint("dim", cutTo(`Esc goes back${more}`, columns)),
  ];
}

// --- the list ----------------------------------------------------------------------------------------------------

const GAP = 2;
const CURSOR = 2;
const MARKS = 2;
const EXTRA = 8;
const ID = 13;
/** Columns of ids of entries. */
const ENTRY_ID = 8;
/** Columns that a title needs before others get any. */
const TITLE = 24;
/** Columns of a directory at most. */
const CWD = 30;

function columnsOf({ list: { query } }: BrowseState, visible: readonly ListRow[], width: number): SessionColumns {
  const numbers = visible.map(({ session }) => group(session.messageCount ?? 0).length);
  const wanted = {
    age: AGE,
    count: Math.max(4, ...numbers),
    amount: query.sort === "size" || query.sort === "cost" ? EXTRA : 0,
    title: TITLE,
    cwd: query.cwd === undefined ? Math.min(CWD, Math.floor(width * 0.25)) : 0,
    id: width >= 100 ? ID : 0,
  };
  return fitColumns(wanted, width - CURSOR - MARKS);
}

function listView(state: BrowseState, page: OutputStyle): string[] {
  const { list } = state;
  const { rows, top, selected, query } = list;
  const height = computeLayout(state).listHeight;
  const visible = rows.slice(top, top + height);
  const columns = columnsOf(state, visible, page.width);
  const age = query.shelf === "trash" ? "GONE" : "AGE";
  const head = formatListHead(columns, age, query.sort.toUpperCase(), page.width);
  const lines = visible.map((row, i) => {
    const isSelected = top + i === selected;
    const sign = list.marked.has(row.session.sessionPath) ? "+" : " ";
    return marked(isSelected, (paint) => rowLine(state, row, columns, { ...page, paint }), page, sign);
  });
  if (rows.length === 0 && !list.asked) lines.push(cutTo(`  ${emptySentence(state)}`, page.width));
  while (lines.length < height) lines.push("");
  const total =
    query.words.trim() === "" ? Math.max(list.total, rows.length) : rows.length + list.total - list.sessions.length;
  const marks = list.marked.size === 0 ? "" : `${group(list.marked.size)} marked  `;
  const place = rows.length === 0 ? marks : `${marks}${group(selected + 1)} of ${group(total)}`;
  return [
    titleLine(titleOf(state, page), place, page),
    page.paint("dim", cutTo(`${" ".repeat(CURSOR + MARKS)}${head}`, page.width)),
    ...lines,
  ];
}

function titleOf({ list: { query, isTyping }, cwd }: BrowseState, { home }: OutputStyle): string {
  const filter = isTyping || query.words !== "" ? show`Filter: ${query.words}${isTyping ? "_" : ""}  ` : "";
  const shelf = query.shelf === "archive" ? "Archive" : query.shelf === "trash" ? "Trash" : "Sessions";
  const where =
    query.shelf === "trash" ? "" : query.cwd === undefined ? " of all folders" : ` of ${shortenPath(cwd, home)}`;
  const sort = query.shelf === "trash" || query.sort === "modified" ? "" : `, ${getSortName(query.sort)}`;
  const whose = query.agents && query.shelf !== "trash" ? " and those of other agents" : "";
  return `${filter}${shelf}${where}${whose}${query.isNamed ? ", named" : ""}${sort}`;
}

function emptySentence({ list: { query } }: BrowseState): string {
  if (query.words !== "") return "No session matches.";
  if (query.shelf === "trash") return "The trash is empty.";
  const kind = query.shelf === "archive" ? "archived sessions" : query.isNamed ? "sessions with a name" : "sessions";
  return query.cwd === undefined ? `There are no ${kind}.` : `There are no ${kind} of this folder. Tab shows all.`;
}

/** Returns the marks of a session: its state, and its store. */
function marksOf(state: BrowseState, { sessionPath, store }: BrowsedSession): string {
  const facts = state.facts.get(sessionPath);
  const mark = facts?.lockedBy ? "*" : facts && facts.damageCount > 0 ? "!" : facts?.readOnly !== undefined ? "#" : " ";
  const isV2 = (store ?? facts?.store) === "v2" || String(sessionPath).endsWith(".v2");
  return `${mark}${isV2 ? "2" : " "}`;
}

function rowLine(state: BrowseState, row: ListRow, columns: SessionColumns, page: OutputStyle): string {
  const { session } = row;
  const { paint, now, home } = page;
  const { sort } = state.list.query;
  const time = sort === "created" ? session.created : session.modified;
  const marks = marksOf(state, session);
  const cells = {
    age: typeof time === "string" ? formatAge(now - Date.parse(time)) : "",
    count: session.messageCount === undefined ? "" : group(session.messageCount),
    amount: extraText(session, sort),
    title: titleCell(state, row, columns.title, page),
    cwd: shortenPath(session.cwd ?? "", home),
    id: show`${session.shortId ?? String(session.sessionId).slice(0, ID)}`,
  };
  return `${paint(marks[0] === "!" ? "red" : "yellow", marks)}${formatSessionLine(columns, cells, paint)}`;
}

function extraText({ sizeBytes, cost }: BrowsedSession, sort: Sort): string {
  if (sort === "size") return typeof sizeBytes === "number" ? formatSize(sizeBytes) : "";
  return typeof cost === "number" ? formatMoney(cost, 2) : "";
}

/** Returns the title in its column: rails of a fork, the name, and where the words of the filter were said. */
function titleCell({ list }: BrowseState, { session, depth, hits }: ListRow, width: number, page: OutputStyle): string {
  const { paint } = page;
  const { words } = list.query;
  const { name, firstMessage, forkedFrom, agent } = session;
  const rail = depth === 0 ? "" : cutTo(`${"  ".repeat(Math.min(depth - 1, 4))}└ `, width);
  const said = escapeLine(name ?? firstMessage ?? "");
  const own = agent === undefined ? said : `${agent}: ${said === "" ? NOTHING_SAID : said}`;
  const origin =
    depth === 0 && forkedFrom
      ? ` (fork of ${escapeLine(forkedFrom.name ?? String(forkedFrom.sessionId).slice(0, 8))})`
      : "";
  const available = Math.max(0, width - getWidth(rail));
  const text = cutTo(
    own === "" ? NOTHING_SAID : own,
    hits.length > 0 ? Math.max(8, Math.floor(available * 0.45)) : available,
  );
  const more = hits.length > 0 ? `  ${escapeLine(hits[0].line ?? hits[0].snippet ?? "")}` : origin;
  const rest = cutTo(more, Math.max(0, available - getWidth(text)));
  const space = " ".repeat(Math.max(0, available - getWidth(text) - getWidth(rest)));
  const base = own === "" ? "dim" : name ? "bold" : "plain";
  const shown = highlightWords(cutTo(text, available), words, page, base);
  return `${paint("dim", rail)}${shown}${highlightWords(rest, words, page, "dim")}${space}`;
}

// --- the tree ----------------------------------------------------------------------------------------------------

function treeView(state: BrowseState, tree: TreeState, page: OutputStyle): string[] {
  const { branches, selected, top, filter, words, isTyping, session } = tree;
  const height = computeLayout(state).treeHeight;
  const inner = { ...page, width: Math.max(1, page.width - CURSOR) };
  const lines: string[] = [];
  const style = {
    idWidth: page.width >= 100 ? ENTRY_ID : 0,
    clockWidth: page.width >= 100 ? getClockWidth(branches.nodes, page) : 0,
    words,
  };
  for (let row = top; row < Math.min(top + height, branches.rows); row++)
    lines.push(marked(row === selected, (paint) => formatTreeRow(branches, row, { ...inner, paint }, style), page));
  if (branches.rows === 0)
    lines.push(
      cutTo(
        branches.nodes.length === 0 ? "  There are no entries yet." : "  No entry passes the filter; 5 shows all.",
        page.width,
      ),
    );
  while (lines.length < height) lines.push("");
  const search = isTyping || words !== "" ? show`Search: ${words}${isTyping ? "_" : ""}  ` : "";
  const title = `${search}${escapeLine(session.name ?? session.firstMessage ?? session.sessionId)}`;
  const time = branches.rows === 0 ? "" : formatClock(branches.node(selected).timestamp);
  const at = branches.rows === 0 ? "" : `${group(selected + 1)} of ${group(branches.rows)}`;
  const place = [time, filter, at].filter(Boolean).join("  ");
  return [titleLine(title, place, page), ...lines];
}

// --- lines -------------------------------------------------------------------------------------------------------

function titleLine(title: string, place: string, { width, paint }: OutputStyle): string {
  const available = width - getWidth(place) - GAP;
  if (available < 8) return paint("bold", cutTo(title, width));
  return `${paint("bold", pad(title, available))}  ${paint("dim", place)}`;
}

/** Returns a line of the screen. The selected one begins with `>` for people who see no colours; `sign` follows. */
function marked(
  isSelected: boolean,
  text: (paint: OutputStyle["paint"]) => string,
  { paint, width }: OutputStyle,
  sign = " ",
): string {
  if (!isSelected) return cutWhole(` ${sign}${text(paint)}`, ` ${sign}${text(plain)}`, width);
  return paint("inverse", pad(`>${sign}${text(plain)}`, width));
}

/** Returns a painted line if it fits, else the same without paint, cut: only screens of a few columns need that. */
function cutWhole(line: string, bare: string, width: number): string {
  return getWidth(bare) <= width ? line : cutTo(bare, width);
}

/** Puts the preview to the right of the lines, or below them. */
function withPreview(state: BrowseState, lines: string[], page: OutputStyle): string[] {
  const { hasPreview, isWide: isBeside, previewColumns, previewHeight, listColumns } = computeLayout(state);
  if (!hasPreview) return lines;
  const { tree, list, preview } = state;
  const session = tree ? tree.session : getSelectedRow(state)?.session;
  const words = tree ? tree.words : list.query.words;
  const pane = formatPreview(preview, session, words, { ...page, width: previewColumns }, previewHeight);
  if (!isBeside) {
    const rule = page.paint("dim", "─".repeat(page.width));
    while (pane.length < previewHeight) pane.push("");
    return [...lines, rule, ...pane];
  }
  const line = page.paint("dim", ` ${"│".padEnd(BETWEEN - 1)}`);
  return lines.map((text, i) => {
    const paneText = pane[i] ?? "";
    return `${padded(text, listColumns)}${line}${paneText}`;
  });
}

function padded(line: string, width: number): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: removes the colours
  const bare = line.replace(/\u001b\[\d+m/g, "");
  return `${line}${" ".repeat(Math.max(0, width - getWidth(bare)))}`;
}

function lastLine(state: BrowseState, { paint }: OutputStyle): string {
  const { prompt, notice, isBusy, columns, list, waiting } = state;
  if (prompt?.ask === "yes") {
    const ending = " y/n";
    return paint(
      "red",
      `${cutTo(escapeLine(prompt.question), Math.max(1, columns - ending.length))}${columns > 8 ? ending : ""}`,
    );
  }
  if (prompt?.ask === "line") return cutTo(promptLine(prompt.label, prompt.text, columns), columns);
  if (notice !== "") return paint("yellow", cutTo(escapeLine(notice), columns));
  if (isBusy) return cutTo("One moment…", columns);
  return paint(
    "dim",
    cutTo(
      waiting.length > 0 || (list.asked && list.rows.length === 0 && !state.tree)
        ? "Reading the sessions…"
        : formatKeyLine(state, columns),
      columns,
    ),
  );
}

/** Returns a line that is typed: its end stays in view. */
function promptLine(label: string, text: string, columns: number): string {
  const available = columns - getWidth(label) - 1;
  return available < 8
    ? `${cutFront(show`${text}`, Math.max(1, columns - 1))}_`
    : `${label}${cutFront(show`${text}`, available)}_`;
}
