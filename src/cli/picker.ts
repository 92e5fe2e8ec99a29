/**
 * The state machine of `browse`, without a terminal and a server: a state, the happenings that change it, and effects to
 * carry out then, whose outcome is a later happening. Of the list, one request is under way at a time.
 */

import { Branches, type FlatNode } from "./branches.ts";
import type { Key } from "./terminal/keys.ts";
import { type OutputStyle, plain } from "./terminal/page.ts";
import { column, cutTo, grouped, inert, oneLine } from "./terminal/text.ts";
import type { Result } from "./verb.ts";
import { columnsFor, sessionRow } from "./verbs/list.ts";

export interface PickerState {
  readonly rows: number;
  readonly columns: number;
  /** Sessions in the order of the list, as far as they have been loaded. */
  readonly sessions: readonly Result[];
  readonly total: number;
  /** The cursor of the rest of the list; undefined when all of it has been loaded. */
  readonly cursor: string | undefined;
  readonly selected: number;
  /** Index of the first session on the screen. */
  readonly top: number;
  readonly filter: string;
  readonly isTyping: boolean;
  /** Filter and cursor of the list request that is under way. */
  readonly asked: { readonly filter: string; readonly cursor: string | undefined } | undefined;
  /** Whether the end of the list is wanted, and has not been loaded yet. */
  readonly toEnd: boolean;
  /** The session whose deletion is to be confirmed. */
  readonly doomed: Result | undefined;
  /** Whether something other than the list is under way; until it is over, the only possible action is to leave. */
  readonly isBusy: boolean;
  readonly tree: TreeState | undefined;
  /** A sentence for the last line. */
  readonly notice: string;
}

export interface TreeState {
  readonly session: Result;
  readonly branches: Branches;
  readonly selected: number;
  readonly top: number;
}

export type Happening =
  | { readonly what: "key"; readonly key: Key }
  | { readonly what: "resized"; readonly rows: number; readonly columns: number }
  | {
      readonly what: "listed";
      readonly sessions: readonly Result[];
      readonly total: number;
      readonly cursor: string | undefined;
    }
  | { readonly what: "opened"; readonly session: Result; readonly nodes: FlatNode[]; readonly leafId: string | null }
  | { readonly what: "moved"; readonly leafId: string | null; readonly isKept: boolean }
  | { readonly what: "deleted"; readonly session: Result; readonly notice: string }
  | { readonly what: "failed"; readonly isList: boolean; readonly message: string };

export type PickerEffect =
  | { readonly do: "list"; readonly query: string; readonly cursor: string | undefined; readonly limit: number }
  | { readonly do: "open"; readonly session: Result }
  | { readonly do: "move"; readonly entryId: string }
  | { readonly do: "close" }
  | { readonly do: "delete"; readonly session: Result }
  | { readonly do: "end"; readonly sessionPath: string | null };

export interface Step {
  readonly state: PickerState;
  readonly effects: readonly PickerEffect[];
}

/** Sessions that are asked for at a time: normally, and when the end of the list is wanted. */
const PAGE = 200;
const LONG_PAGE = 2000;

/** Lines of the screen that are not the list or the tree. */
const AROUND_LIST = 3;
const AROUND_TREE = 2;

export function begin(rows: number, columns: number): Step {
  return askForList(
    {
      rows,
      columns,
      sessions: [],
      total: 0,
      cursor: undefined,
      selected: 0,
      top: 0,
      filter: "",
      isTyping: false,
      asked: undefined,
      toEnd: false,
      doomed: undefined,
      isBusy: false,
      tree: undefined,
      notice: "",
    },
    undefined,
  );
}

export function step(state: PickerState, happening: Happening): Step {
  switch (happening.what) {
    case "key":
      return press(state, happening.key);
    case "resized":
      return more(shown({ ...state, rows: happening.rows, columns: happening.columns }));
    case "listed":
      return listed(state, happening);
    case "opened": {
      const { session, nodes, leafId } = happening;
      const branches = new Branches(nodes, leafId);
      const selected = Math.max(0, branches.leafRow);
      const top = selected - Math.floor(treeHeight(state) / 2);
      return still(shown({ ...state, isBusy: false, tree: { session, branches, selected, top } }));
    }
    case "moved": {
      if (!state.tree) return still({ ...state, isBusy: false });
      const branches = new Branches(state.tree.branches.nodes, happening.leafId);
      const notice = happening.isKept
        ? "The conversation goes on from here."
        : "The move is not saved: another process is writing to the session, or it is read-only.";
      return still({ ...state, isBusy: false, tree: { ...state.tree, branches }, notice });
    }
    case "deleted": {
      const sessions = state.sessions.filter(({ sessionPath }) => sessionPath !== happening.session.sessionPath);
      const total = state.total - (state.sessions.length - sessions.length);
      return more(shown({ ...state, isBusy: false, sessions, total, notice: happening.notice }));
    }
    case "failed":
      return still({
        ...state,
        notice: happening.message,
        ...(happening.isList ? { asked: undefined, toEnd: false } : { isBusy: false }),
      });
  }
}

// --- the list ----------------------------------------------------------------------------------------------------

function listed(state: PickerState, { sessions, total, cursor }: Happening & { what: "listed" }): Step {
  const { asked } = state;
  if (!asked) return still(state);
  // The filter changed meanwhile.
  if (asked.filter !== state.filter) return askForList({ ...state, asked: undefined }, undefined);
  const isFirst = asked.cursor === undefined;
  const all = isFirst ? sessions : [...state.sessions, ...sessions];
  const selected = isFirst ? 0 : state.toEnd ? all.length - 1 : state.selected;
  const toEnd = state.toEnd && cursor !== undefined;
  return more(shown({ ...state, asked: undefined, sessions: all, total, cursor, selected, toEnd }));
}

function askForList(state: PickerState, cursor: string | undefined): Step {
  const { filter, toEnd } = state;
  // The request under way comes first; its outdated result will be recognised.
  if (state.asked) return still(state);
  const limit = toEnd ? LONG_PAGE : PAGE;
  return {
    state: { ...state, asked: { filter, cursor } },
    effects: [{ do: "list", query: filter, cursor, limit }],
  };
}

/** Asks for more of the list when its end comes near. */
function more(state: PickerState): Step {
  const { cursor, toEnd, selected, sessions, asked } = state;
  const isNear = toEnd || selected + 2 * listHeight(state) >= sessions.length;
  return cursor !== undefined && isNear && !asked ? askForList(state, cursor) : still(state);
}

function filterBy(state: PickerState, filter: string): Step {
  const next = { ...state, filter, toEnd: false };
  return filter === state.filter ? still(next) : askForList(next, undefined);
}

// --- keys --------------------------------------------------------------------------------------------------------

function press(before: PickerState, key: Key): Step {
  const state = before.notice === "" ? before : { ...before, notice: "" };
  const { name, text } = key;
  if (name === "ctrl+c") return end(state, null);
  if (state.isBusy) return text === "q" ? end(state, null) : still(state);
  if (state.doomed) {
    const isYes = text === "y" || text === "Y";
    if (!isYes && text !== "n" && text !== "N" && name !== "escape") return still(state);
    const next = { ...state, doomed: undefined, isBusy: isYes };
    return isYes ? { state: next, effects: [{ do: "delete", session: state.doomed }] } : still(next);
  }
  if (state.tree) return pressInTree(state, state.tree, key);
  if (state.isTyping && text !== undefined) return filterBy(state, state.filter + text);
  return pressInList(state, key);
}

function pressInList(state: PickerState, key: Key): Step {
  const { name, text } = key;
  const { sessions, selected, filter } = state;
  const session = sessions[selected];
  switch (name) {
    case "enter":
      return session ? end(state, session.sessionPath) : still(state);
    case "tab":
      return session ? { state: { ...state, isBusy: true }, effects: [{ do: "open", session }] } : still(state);
    case "ctrl+d":
      return still({ ...state, doomed: session });
    case "escape":
      return filterBy({ ...state, isTyping: false }, "");
    case "backspace":
      return state.isTyping ? filterBy(state, Array.from(filter).slice(0, -1).join("")) : still(state);
    case "ctrl+u":
      return state.isTyping ? filterBy(state, "") : still(state);
  }
  if (text === "q") return end(state, null);
  if (text === "/") return still({ ...state, isTyping: true });
  const to = moved(selected, sessions.length, listHeight(state), key);
  if (to === undefined) return still(state);
  const toEnd = to === sessions.length - 1 && isEnd(key) && state.cursor !== undefined;
  return more(shown({ ...state, selected: to, toEnd }));
}

function pressInTree(state: PickerState, tree: TreeState, key: Key): Step {
  const { name, text } = key;
  const { branches, selected } = tree;
  if (text === "q") return end(state, null);
  if (name === "escape" || name === "tab") return { state: { ...state, tree: undefined }, effects: [{ do: "close" }] };
  if (name === "enter") {
    if (branches.rows === 0 || selected === branches.leafRow) return still(state);
    const entryId = branches.node(selected).id;
    return { state: { ...state, isBusy: true }, effects: [{ do: "move", entryId }] };
  }
  const to = moved(selected, branches.rows, treeHeight(state), key);
  return still(to === undefined ? state : shown({ ...state, tree: { ...tree, selected: to } }));
}

/** Returns the new position of the selection; undefined for keys that do not move it. */
function moved(from: number, length: number, height: number, key: Key): number | undefined {
  const { name, text } = key;
  const within = (to: number): number => Math.max(0, Math.min(length - 1, to));
  if (name === "up" || text === "k") return within(from - 1);
  if (name === "down" || text === "j") return within(from + 1);
  if (name === "pageUp") return within(from - height);
  if (name === "pageDown") return within(from + height);
  if (name === "home" || text === "g") return 0;
  if (isEnd(key)) return within(length - 1);
  return undefined;
}

function isEnd({ name, text }: Key): boolean {
  return name === "end" || text === "G";
}

function end(state: PickerState, sessionPath: string | null): Step {
  return { state, effects: [{ do: "end", sessionPath }] };
}

function still(state: PickerState): Step {
  return { state, effects: [] };
}

// --- drawing -----------------------------------------------------------------------------------------------------

function listHeight({ rows }: PickerState): number {
  return Math.max(1, rows - AROUND_LIST);
}

function treeHeight({ rows }: PickerState): number {
  return Math.max(1, rows - AROUND_TREE);
}

/** Returns the state with the selections within their lists and on the screen. */
function shown(state: PickerState): PickerState {
  const { sessions, tree } = state;
  const selected = Math.max(0, Math.min(state.selected, sessions.length - 1));
  return {
    ...state,
    selected,
    top: scrolled(state.top, selected, sessions.length, listHeight(state)),
    tree: tree && { ...tree, top: scrolled(tree.top, tree.selected, tree.branches.rows, treeHeight(state)) },
  };
}

/** Returns the first line of a screen of `height` lines that shows `selected`, with as few empty lines as possible. */
function scrolled(top: number, selected: number, length: number, height: number): number {
  const least = Math.max(0, Math.min(top, length - height));
  return Math.max(selected - height + 1, Math.min(least, selected));
}

/** Returns the lines of the screen, none wider than it. */
export function view(state: PickerState, page: OutputStyle): string[] {
  const lines = state.tree ? treeView(state, state.tree, page) : listView(state, page);
  return [...lines, lastLine(state, page)];
}

function listView(state: PickerState, page: OutputStyle): string[] {
  const { sessions, total, filter, isTyping, top, selected, asked } = state;
  const height = listHeight(state);
  const title = isTyping || filter !== "" ? `Filter: ${inert(filter)}${isTyping ? "_" : ""}` : "Sessions";
  const place = total === 0 ? "" : `${grouped(selected + 1)} of ${grouped(total)}`;
  const inner = { ...page, width: Math.max(1, state.columns - 2) };
  const { columns, head } = columnsOf(sessions, inner);
  const rows = sessions.slice(top, top + height).map((session, i) => {
    const isSelected = top + i === selected;
    return marked(isSelected, (at) => sessionRow(session, columns, { ...inner, paint: at }), page, state.columns);
  });
  if (sessions.length === 0 && !asked)
    rows.push(cutTo(filter === "" ? "  There are no sessions." : "  No session matches.", state.columns));
  while (rows.length < height) rows.push("");
  return [titleLine(title, place, state, page), page.paint("dim", cutTo(`  ${head}`, state.columns)), ...rows];
}

function treeView(state: PickerState, { session, branches, top, selected }: TreeState, page: OutputStyle): string[] {
  const height = treeHeight(state);
  const inner = { ...page, width: Math.max(1, state.columns - 2) };
  const rows: string[] = [];
  for (let row = top; row < Math.min(top + height, branches.rows); row++)
    rows.push(marked(row === selected, (at) => branches.text(row, { ...inner, paint: at }), page, state.columns));
  if (branches.rows === 0) rows.push(cutTo("  There are no entries yet.", state.columns));
  while (rows.length < height) rows.push("");
  const place = branches.rows === 0 ? "" : `${grouped(selected + 1)} of ${grouped(branches.rows)}`;
  return [titleLine(oneLine(session.name ?? session.firstMessage ?? session.sessionId), place, state, page), ...rows];
}

function titleLine(title: string, place: string, { columns }: PickerState, { paint }: OutputStyle): string {
  const room = columns - place.length - 2;
  if (room < 8) return paint("bold", cutTo(title, columns));
  return `${paint("bold", column(title, room))}  ${paint("dim", place)}`;
}

/** Returns a line of the screen. The selected one is marked for people who see no colours, too. */
function marked(
  isSelected: boolean,
  text: (paint: OutputStyle["paint"]) => string,
  { paint }: OutputStyle,
  columns: number,
): string {
  if (!isSelected) return `  ${text(paint)}`;
  return paint("inverse", column(`> ${text(plain)}`, columns));
}

function lastLine(state: PickerState, { paint }: OutputStyle): string {
  const { doomed, notice, tree, isTyping, isBusy, columns, asked } = state;
  if (doomed) {
    const name = oneLine(doomed.name ?? doomed.firstMessage ?? doomed.sessionId);
    return paint("red", `${cutTo(`Delete "${name}"?`, Math.max(1, columns - " y/n".length))} y/n`);
  }
  if (notice !== "") return paint("yellow", cutTo(oneLine(notice), columns));
  if (isBusy) return cutTo("One moment…", columns);
  const help = tree
    ? "arrows move  Enter continues from there  Esc back  q quit"
    : isTyping
      ? "type to filter  Enter opens  Esc clears"
      : "arrows move  Enter opens  Tab tree  / filter  Ctrl+D delete  q quit";
  return paint("dim", cutTo(asked && state.sessions.length === 0 ? "Reading the sessions…" : help, columns));
}

/** Columns of each list of sessions, so that ids and widths are measured once for each state of the list. */
const measured = new WeakMap<readonly Result[], ReturnType<typeof columnsFor> & { readonly width: number }>();

function columnsOf(sessions: readonly Result[], page: OutputStyle): ReturnType<typeof columnsFor> {
  const known = measured.get(sessions);
  if (known?.width === page.width) return known;
  const found = { width: page.width, ...columnsFor(sessions, page) };
  measured.set(sessions, found);
  return found;
}

export function deletedNotice({ trash, movedTo }: Result): string {
  if (trash === "own") return `It is in the trash: ${movedTo}`;
  return trash === "desktop" ? "It is in the desktop's trash." : "It is deleted.";
}
