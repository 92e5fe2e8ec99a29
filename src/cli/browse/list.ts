/** The list: its requests, their results, and the selected row. One request is under way at a time. */

import type { Key } from "../terminal/keys.ts";
import { arrangeRows } from "./arrange.ts";
import { computeLayout } from "./layout.ts";
import { requestLookup, requestPreview } from "./lookups.ts";
import {
  addEffect,
  type BrowsedSession,
  type BrowseEvent,
  type BrowseState,
  editLine,
  joinSteps,
  type ListQuery,
  type ListRow,
  type ListState,
  moveSelection,
  type Step,
  scrollToSelection,
  toStep,
} from "./state.ts";

/** Sessions that are asked for at a time: normally, and when the end of the list is wanted. */
const PAGE = 200;
const LONG_PAGE = 2000;
/** Most sessions of a list that is loaded as a whole in the background, so that forks find their originals. */
const WHOLE = 1000;

/** Most hits that a search of the texts shows. */
const MAX_HITS = 100;

export function makeEmptyList(query: ListQuery): ListState {
  return {
    query,
    isTyping: false,
    sessions: [],
    total: 0,
    cursor: undefined,
    asked: undefined,
    toEnd: false,
    whole: [],
    found: undefined,
    rows: [],
    selected: 0,
    top: 0,
    wanted: undefined,
    marked: new Map(),
  };
}

export function getSelectedRow({ list }: BrowseState): ListRow | undefined {
  return list.rows[list.selected];
}

/** Returns the state with its selection within the list and on the screen. */
export function showListSelection(state: BrowseState): BrowseState {
  const { list } = state;
  const selected = Math.max(0, Math.min(list.selected, list.rows.length - 1));
  const top = scrollToSelection(list.top, selected, list.rows.length, computeLayout(state).listHeight);
  return { ...state, list: { ...list, selected, top } };
}

function withList(state: BrowseState, change: Partial<ListState>): BrowseState {
  return showListSelection({ ...state, list: { ...state.list, ...change } });
}

/** Returns the state with its rows made anew, and the same session selected in the same line of the screen. */
function rearranged(state: BrowseState, change: Partial<ListState>): BrowseState {
  const before = state.list.rows[state.list.selected]?.session.sessionPath;
  const list = { ...state.list, ...change };
  const rows = arrangeRows(list);
  const wanted = list.wanted ?? before;
  const found = rows.findIndex(({ session }) => session.sessionPath === wanted);
  const selected = found < 0 ? list.selected : found;
  const top = list.top + (selected - state.list.selected);
  return withList(state, { ...change, rows, selected, top: Math.max(0, found < 0 ? list.top : top) });
}

/** Asks for the list from its beginning, or for what follows a cursor. */
export function askForList(state: BrowseState, cursor?: string, least = 0): Step {
  const { query, toEnd } = state.list;
  // The request under way comes first; its outdated result will be recognised.
  if (state.list.asked) return toStep(state);
  const limit = toEnd ? LONG_PAGE : Math.max(PAGE, Math.min(least, LONG_PAGE * 5));
  return request(state, { query, cursor, isQuick: false, isBegun: false }, limit);
}

function request(state: BrowseState, asked: NonNullable<ListState["asked"]>, limit: number): Step {
  const { query, cursor, isQuick } = asked;
  return addEffect(withList(state, { asked }), { do: "list", query, cursor, limit, isQuick });
}

/** Asks for enough rows for the first screen; their arrival starts the request for the whole list. */
export function askForFirst(state: BrowseState): Step {
  const { query } = state.list;
  return request(state, { query, cursor: undefined, isQuick: true, isBegun: false }, state.rows);
}

/** Asks again for all that was loaded, because it may have changed. */
export function reload(state: BrowseState, wanted?: string): Step {
  const path = wanted ?? getSelectedRow(state)?.session.sessionPath;
  return askForList(withList(state, { wanted: path }), undefined, state.list.sessions.length);
}

export function showListed(state: BrowseState, { sessions, total, cursor }: BrowseEvent & { what: "listed" }): Step {
  const { list } = state;
  const { asked } = list;
  if (!asked) return toStep(state);
  // The request changed meanwhile.
  if (asked.query !== list.query) return askForList(withList(state, { asked: undefined }));
  if (asked.isQuick) return begun(state, sessions);
  const isFirst = asked.cursor === undefined;
  if (isFirst && sessions.length === 0 && isEmptyFolder(state)) return elsewhere(state);
  const all = isFirst ? sessions : [...list.sessions, ...sessions];
  const hasWords = list.query.words.trim() !== "";
  const change = {
    asked: undefined,
    sessions: all,
    total,
    cursor,
    whole: hasWords || !isWider(list.query) ? list.whole : all,
    toEnd: list.toEnd && cursor !== undefined,
  };
  // A selection that was moved in the first part of a list stays there.
  const isAnew = isFirst && list.wanted === undefined && !(asked.isBegun && list.selected > 0);
  let next = isAnew ? fresh(state, { ...change, selected: 0, top: 0 }) : rearranged(state, change);
  next = withList(next, { wanted: undefined, ...(list.toEnd ? { selected: next.list.rows.length - 1 } : {}) });
  return requestLookup(followed(more(next)));
}

/** Shows the first part of a list, and asks for the whole of it. */
function begun(state: BrowseState, sessions: readonly BrowsedSession[]): Step {
  const there = fresh(state, { sessions, total: sessions.length, asked: undefined });
  const { query } = there.list;
  const step = sessions.length === 0 ? toStep(there) : followed(toStep(there));
  const asked = { query, cursor: undefined, isQuick: false, isBegun: true };
  return joinSteps(step, request(step.state, asked, PAGE));
}

/** Returns true if the first list, that of the directory, is empty. */
function isEmptyFolder({ list: { query, whole, sessions } }: BrowseState): boolean {
  const { shelf, cwd, words, isNamed } = query;
  return shelf === "sessions" && cwd !== undefined && words === "" && !isNamed && whole.length + sessions.length === 0;
}

function elsewhere(state: BrowseState): Step {
  const query = { ...state.list.query, cwd: undefined };
  const notice = "This folder has no sessions; these are those of all folders.";
  return askForList({ ...withList(state, { query, asked: undefined }), notice });
}

/** Returns true if a list has all sessions that a search may find. */
function isWider({ shelf, isNamed }: ListQuery): boolean {
  return shelf === "sessions" && !isNamed;
}

function fresh(state: BrowseState, change: Partial<ListState>): BrowseState {
  const list = { ...state.list, ...change };
  return withList(state, { ...change, rows: arrangeRows(list) });
}

/** Asks for more of the list when its end comes near, or when little is missing. */
function more(state: BrowseState): Step {
  const { cursor, toEnd, selected, rows, asked, total } = state.list;
  const isNear = toEnd || total <= WHOLE || selected + 2 * computeLayout(state).listHeight >= rows.length;
  return cursor !== undefined && isNear && !asked ? askForList(state, cursor) : toStep(state);
}

function followed(step: Step): Step {
  // The preview is that of the tree's entry.
  if (step.state.tree) return step;
  return joinSteps(step, previewSelected(step.state));
}

/** Previews the selected session, at its hit if it has one. */
export function previewSelected(state: BrowseState): Step {
  const row = getSelectedRow(state);
  if (!row) return requestPreview(state, undefined);
  const { session, hits } = row;
  const path = session.itemPath ?? session.sessionPath;
  const isSame = state.preview.place?.sessionPath === path;
  const hit = isSame ? Math.min(state.preview.hit, Math.max(0, hits.length - 1)) : 0;
  return requestPreview(
    { ...state, preview: { ...state.preview, hit } },
    { sessionPath: path, entryId: hits[hit]?.entryId },
  );
}

/** Shows the next hit in the selected session. */
export function moveToNextHit(state: BrowseState, step: 1 | -1): Step {
  const hits = getSelectedRow(state)?.hits ?? [];
  if (hits.length < 2) return toStep({ ...state, notice: hits.length === 1 ? "There is no other place." : "" });
  const hit = (state.preview.hit + step + hits.length) % hits.length;
  const next = { ...state, preview: { ...state.preview, hit }, notice: `Place ${hit + 1} of ${hits.length}.` };
  return previewSelected(next);
}

export function showHits(state: BrowseState, { words, hits, from, cursor }: BrowseEvent & { what: "found" }): Step {
  const { list } = state;
  if (words !== list.query.words) return toStep(state);
  const before = from !== undefined && list.found?.words === words ? list.found.hits : [];
  const all = [...before, ...hits];
  const next = rearranged(state, { found: { words, hits: all } });
  // An unmoved selection stays at the first row, even if new rows come before it.
  const shown = requestLookup(followed(toStep(list.selected === 0 ? withList(next, { selected: 0, top: 0 }) : next)));
  if (cursor === undefined || all.length >= MAX_HITS) return shown;
  return joinSteps(shown, addEffect(shown.state, { do: "search", words, ...placeOf(list.query), cursor }));
}

/** Returns the state after a search that failed, which therefore has no hits. */
export function clearHits(state: BrowseState): BrowseState {
  return withList(state, { found: state.list.found ?? { words: state.list.query.words, hits: [] } });
}

/** Returns the scope of a search. */
function placeOf({ cwd, agents }: ListQuery): Pick<ListQuery, "cwd" | "agents"> {
  return { cwd, ...(agents ? { agents } : {}) };
}

export function moveInList(state: BrowseState, key: Key): Step | undefined {
  const { selected, rows, cursor } = state.list;
  const to = moveSelection(selected, rows.length, computeLayout(state).listHeight, key);
  if (to === undefined) return undefined;
  const isEnd = key.name === "end" || key.text === "G";
  const toEnd = isEnd && to === rows.length - 1 && cursor !== undefined;
  return requestLookup(followed(more(withList(state, { selected: to, toEnd }))));
}

/** Returns true if the rows on the screen are out of date, so that no key may act on them. */
export function isAwaited({ list }: BrowseState): boolean {
  const { asked, query, rows, found } = list;
  if (asked && asked.query !== query) return true;
  // The first part of the first list is shown before the whole of it, and more of a list below the rows that are there.
  if (asked && asked.cursor === undefined && !asked.isQuick && !asked.isBegun) return true;
  return rows.length === 0 && isSearched(query) && found?.words !== query.words;
}

/** Returns true if a list includes a search of the texts. */
function isSearched({ shelf, words }: ListQuery): boolean {
  return shelf === "sessions" && words.trim().length >= 2;
}

/** Changes what the list is of, and asks for it. */
export function requery(state: BrowseState, change: Partial<ListQuery>): Step {
  const query = { ...state.list.query, ...change };
  const isSame = Object.entries(change).every(([name, value]) => state.list.query[name as keyof ListQuery] === value);
  if (isSame) return toStep(state);
  // The possible changes depend on the shelf, so sessions of another shelf do not stay on the screen.
  const emptied =
    query.shelf === state.list.query.shelf
      ? {}
      : { sessions: [], rows: [], total: 0, cursor: undefined, marked: new Map() };
  const isOther = (["words", "cwd", "shelf", "agents"] as const).some((name) => query[name] !== state.list.query[name]);
  const found = isOther ? undefined : state.list.found;
  const step = askForList(withList(state, { query, toEnd: false, wanted: undefined, found, ...emptied }));
  return isOther && isSearched(query)
    ? joinSteps(step, addEffect(step.state, { do: "search", words: query.words, ...placeOf(query) }))
    : step;
}

/** A key while the filter is typed; undefined for those that mean the same as otherwise. */
export function typeFilter(state: BrowseState, key: Key): Step | undefined {
  const { words } = state.list.query;
  if (key.name === "escape") return requery(withList(state, { isTyping: false }), { words: "" });
  const to = editLine(words, key);
  if (to !== undefined) return requery(state, { words: to });
  // Moving ends the typing of the filter; from then on letters are keys again.
  return moveInList(withList(state, { isTyping: false }), key);
}

export function beginTyping(state: BrowseState): Step {
  return toStep(withList(state, { isTyping: true }));
}

/** Marks the selected session, or takes its mark away, and goes to the next one. */
export function markSession(state: BrowseState, session: BrowsedSession): Step {
  const marked = new Map(state.list.marked);
  if (!marked.delete(session.sessionPath)) marked.set(session.sessionPath, session);
  const next = withList(state, { marked });
  return moveInList(next, { name: "down" }) ?? toStep(next);
}

/** Takes all marks away. */
export function unmarkAll(state: BrowseState): Step {
  return toStep(withList(state, { marked: new Map() }));
}

/** Takes sessions out of the list, which are somewhere else now. */
export function removeSessions(state: BrowseState, paths: readonly string[]): Step {
  const { list } = state;
  const gone = new Set(paths);
  const isKept = ({ sessionPath }: { readonly sessionPath: string }): boolean => !gone.has(sessionPath);
  const sessions = list.sessions.filter(isKept);
  const hits = list.found?.hits.filter(isKept);
  const next = rearranged(state, {
    sessions,
    total: list.total - (list.sessions.length - sessions.length),
    whole: list.whole.filter(isKept),
    found: hits && list.found && { ...list.found, hits },
    marked: new Map([...list.marked].filter(([, session]) => isKept(session))),
  });
  return requestLookup(followed(more(next)));
}

export function amendSession(state: BrowseState, sessionPath: string, change: Partial<BrowsedSession>): BrowseState {
  const amend = (session: BrowsedSession): BrowsedSession =>
    session.sessionPath === sessionPath ? { ...session, ...change } : session;
  return rearranged(state, { sessions: state.list.sessions.map(amend), whole: state.list.whole.map(amend) });
}
