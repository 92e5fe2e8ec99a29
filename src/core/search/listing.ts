/** Lists of sessions: filters, order and cursors, and the parents of forks. */

import { Failure } from "../failure.ts";
import { decodeText, toBytes } from "../json/json.ts";
import { addTo } from "../lists.ts";
import type { Keyed, Listed, ListRequest, Order, Ordering, Relative } from "../ports/catalog.ts";
import { fold } from "./query.ts";

// --- the list ----------------------------------------------------------------------------------------------------

/** Returns the sort key of a session. Never NaN: a session without a time sorts after all that have one. */
export function getSortKey(listed: Listed, order: Order): number | string {
  if (order === "name") return fold(listed.name ?? "\uffff");
  return listed[order === "size" ? "sizeBytes" : order] ?? Number.NEGATIVE_INFINITY;
}

/** The order of lists, unless a source has another: equal sessions by their path. */
export const BY_PATH: Ordering = {
  mark: [],
  getKey: getSortKey,
  getTie: ({ path }) => path,
  compareTexts: (a, b) => (a < b ? -1 : a > b ? 1 : 0),
};

/** Compares sessions by what was made of them before. */
export function compareKeyed(a: Keyed, b: Keyed, { compareTexts }: Ordering): number {
  const inTexts = typeof a.key === "string" && typeof b.key === "string" ? compareTexts(a.key, b.key) : undefined;
  const inKeys = inTexts ?? (a.key === b.key ? 0 : (b.key as number) - (a.key as number) < 0 ? -1 : 1);
  return inKeys || compareTexts(b.tie, a.tie);
}

export function toKeyed(listed: Listed, order: Order, { getKey, getTie }: Ordering): Keyed {
  return { key: getKey(listed, order), tie: getTie(listed) };
}

/** Returns a comparison: newest, largest or dearest first, or names from A on; equal ones by their ties. */
export function makeComparison(order: Order, ordering = BY_PATH): (a: Listed, b: Listed) => number {
  return (a, b) => compareKeyed(toKeyed(a, order, ordering), toKeyed(b, order, ordering), ordering);
}

/** Returns the part of an ordered list after a cursor. Throws cursor_expired. */
export function sliceAfterCursor<L extends Listed>(
  ordered: readonly L[],
  { cursor, sort = "modified" }: ListRequest,
  ordering: Ordering,
): readonly L[] {
  if (cursor === undefined) return ordered;
  const after = readCursor(cursor, sort, ordering);
  const compare = (listed: Listed): number => compareKeyed(toKeyed(listed, sort, ordering), after, ordering);
  const place = findIndexIn(ordered, compare);
  return ordered.slice(place < ordered.length && compare(ordered[place]) === 0 ? place + 1 : place);
}

/** Returns the index of the first item in an ordered list that does not come before what it is compared with. */
export function findIndexIn<T>(ordered: readonly T[], compare: (item: T) => number): number {
  let low = 0;
  let high = ordered.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(ordered[middle]) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Returns a text that two wishes have in common when the same sessions fit both, in the same order. */
export function getRequestKey(request: ListRequest): string {
  const { cwd, agents, query, name, named, unnamed, top, parent, since, until, archived, headerOnly, sort } = request;
  return JSON.stringify([
    cwd,
    agents,
    query,
    name,
    named,
    unnamed,
    top,
    parent,
    since,
    until,
    archived,
    headerOnly,
    sort,
  ]);
}

/** The title of a session without a name in which nothing was said. A filter by these words finds it. */
export const NOTHING_SAID = "(nothing said)";
export const NOTHING_SAID_WORDS: ReadonlySet<string> = new Set(NOTHING_SAID.split(" "));

/** The folded texts of sessions, for filters by words. */
const texts = new WeakMap<Listed, string>();

function textOf(listed: Listed): string {
  let text = texts.get(listed);
  if (text === undefined) {
    const { name, firstMessage, cwd, id, labels = [] } = listed;
    text = fold([name, firstMessage, cwd, id, ...labels].join("\n"));
    texts.set(listed, text);
  }
  return text;
}

/** Returns a function that checks whether a session fits a wish. `isDirectory`: whether a path is its directory. */
export function makeFilter(
  request: ListRequest,
  isDirectory: (cwd: string | null) => boolean = (cwd) => request.cwd === undefined || cwd === request.cwd,
): (listed: Listed) => boolean {
  const words = fold(request.query ?? "").match(/\S+/g) ?? [];
  const name = request.name === undefined ? undefined : fold(request.name);
  const parentId = request.parent === undefined ? undefined : getIdInPath(request.parent);
  return (listed) => {
    if (listed.archived !== (request.archived ?? false)) return false;
    if (listed.agent !== undefined && !request.agents?.includes(listed.agent)) return false;
    if (listed.headerOnly && request.headerOnly !== true) return false;
    if (!isDirectory(listed.cwd)) return false;
    if (request.since !== undefined && !((listed.modified ?? Number.NEGATIVE_INFINITY) >= request.since)) return false;
    // A session without a time is not known to be old.
    if (request.until !== undefined && !((listed.modified ?? Number.POSITIVE_INFINITY) < request.until)) return false;
    if (request.named && listed.name === null) return false;
    if (request.unnamed && listed.name !== null) return false;
    if (request.top && (listed.parentSession ?? "") !== "") return false;
    if (name !== undefined && !fold(listed.name ?? "").includes(name)) return false;
    if (request.parent !== undefined) {
      const { parentSession } = listed;
      if (parentSession === null) return false;
      if (parentSession !== request.parent && getIdInPath(parentSession) !== parentId) return false;
    }
    if (words.length === 0) return true;
    const text = textOf(listed);
    const isSilent = listed.messageCount === 0 && listed.name === null;
    return words.every((word) => text.includes(word) || (isSilent && NOTHING_SAID_WORDS.has(word)));
  };
}

export function makeCursor(listed: Listed, order: Order, ordering = BY_PATH): string {
  const { key, tie } = toKeyed(listed, order, ordering);
  return packCursor([...ordering.mark, order, key === Number.NEGATIVE_INFINITY ? null : key, tie]);
}

/** Returns the place that a cursor names, whether or not its session still exists. Throws cursor_expired. */
export function readCursor(cursor: string, order: Order, { mark }: Ordering): Keyed {
  const values = unpackCursor(cursor);
  const [named, key, tie] = values.slice(mark.length);
  const isKey = key === null || typeof key === (order === "name" ? "string" : "number");
  if (!mark.every((one, n) => one === values[n]) || named !== order || typeof tie !== "string" || !isKey)
    throw toExpiredFailure(cursor);
  return { key: (key as number | string | null) ?? Number.NEGATIVE_INFINITY, tie };
}

export function toUnknownIdFailure(sessionId: string): Failure {
  const sentence = `No session has the id ${sessionId}. list_sessions shows those that exist.`;
  return new Failure("session_not_found", sentence, { sessionId });
}

export function toExpiredFailure(cursor: string): Failure {
  return new Failure("cursor_expired", "The cursor is not of this list. Try again without a cursor.", { cursor });
}

export function packCursor(values: readonly unknown[]): string {
  return btoa(String.fromCharCode(...toBytes(JSON.stringify(values))));
}

/** Returns the values of a cursor. Throws cursor_expired. */
export function unpackCursor(cursor: string): unknown[] {
  try {
    const values = JSON.parse(decodeText(Uint8Array.from(atob(cursor), (c) => c.charCodeAt(0))));
    if (Array.isArray(values)) return values;
  } catch {
    // It was not made by {@link packCursor}.
  }
  throw toExpiredFailure(cursor);
}

/** Returns the time that a text names in milliseconds; null when it is no time. */
export function parseTime(text: unknown): number | null {
  const moment = typeof text === "string" ? Date.parse(text) : Number.NaN;
  return Number.isFinite(moment) ? moment : null;
}

/** Returns a time as ISO 8601 in UTC; null when it cannot be written in this form. */
export function formatTime(moment: number | null): string | null {
  return moment === null || !(Math.abs(moment) <= 8.64e15) ? null : new Date(moment).toISOString();
}

/** Characters of an id that are always shown, as people are used to; an id up to this length is shown as a whole. */
const LEAST = 8;
const WHOLE = 12;

/** Returns the beginning of an id, of eight characters or more, that some other ids do not have. */
export function findUniqueBeginning(id: string, others: readonly string[]): string {
  if (id.length <= WHOLE) return id;
  return id.slice(0, Math.max(LEAST, ...others.map((other) => sameBeginning(id, other) + 1)));
}

/** Returns the beginning of an id that no other of some sorted ids has. */
export function findBeginningAmong(id: string, sorted: readonly string[]): string {
  const low = findPlaceInOrder(sorted, id);
  let past = low;
  while (sorted[past] === id) past++;
  const neighbours = [sorted[low - 1], sorted[past]];
  return findUniqueBeginning(
    id,
    neighbours.filter((other) => other !== undefined),
  );
}

/** Returns the index of an id among sorted ones, or the index where it belongs. */
export function findPlaceInOrder(ids: readonly string[], id: string): number {
  return findIndexIn(ids, (other) => (other < id ? -1 : 0));
}

function sameBeginning(a: string, b: string): number {
  let same = 0;
  while (same < a.length && a[same] === b[same]) same++;
  return same;
}

// --- families ----------------------------------------------------------------------------------------------------

/** Returns the id that the name of a session file or container ends with; a name without one is returned as it is. */
export function getIdInPath(path: string): string {
  const stem = nameOf(path).replace(/\.(?:jsonl|v2)$/, "");
  return /^\d{4}-\d\d-\d\dT[^_]*_(.+)$/.exec(stem)?.[1] ?? stem.slice(stem.lastIndexOf("_") + 1);
}

function nameOf(path: string): string {
  return path.split(/[/\\]/).pop() ?? "";
}

/** Returns the parents of sessions, as far as known: by their path or, if they moved, by the id or name in it. */
export function findParents(sessions: readonly Relative[]): Map<Relative, Relative> {
  const byPath = new Map<string, Relative>();
  const byId = new Map<string, Relative[]>();
  const byBeginning = new Map<string, Relative[]>();
  const byName = new Map<string, Relative[]>();
  for (const session of sessions) {
    byPath.set(session.path, session);
    addTo(byId, session.id, session);
    // pi_agent_rust names files by the first eight characters.
    addTo(byBeginning, session.id.slice(0, 8), session);
    addTo(byName, nameOf(session.path), session);
  }
  const only = (found: Relative[] | undefined): Relative | undefined => (found?.length === 1 ? found[0] : undefined);
  const parents = new Map<Relative, Relative>();
  for (const session of sessions) {
    const { parentSession } = session;
    if (parentSession === null || parentSession === "") continue;
    const id = getIdInPath(parentSession);
    const parent =
      byPath.get(parentSession) ??
      only(byId.get(id)) ??
      (id.length === 8 ? only(byBeginning.get(id)) : undefined) ??
      only(byName.get(nameOf(parentSession)));
    if (parent && parent !== session) parents.set(session, parent);
  }
  return parents;
}

/**
 * Returns sessions with forks below their originals, in their order: a family stands where the first of it would. Sessions
 * may name each other as parents; each stands once nevertheless.
 */
export function arrangeFamilies<T>(
  sessions: readonly T[],
  parentOf: (session: T) => T | undefined,
): { session: T; depth: number }[] {
  const children = new Map<T, T[]>();
  for (const session of sessions) {
    const parent = parentOf(session);
    if (parent !== undefined) addTo(children, parent, session);
  }
  const placed = new Set<T>();
  const rows: { session: T; depth: number }[] = [];
  for (const session of sessions) {
    // The original over any number of forks, as far as it has no place yet.
    let top = session;
    const seen = new Set<T>();
    for (let above = parentOf(top); above && !seen.has(above) && !placed.has(above); above = parentOf(top)) {
      seen.add(top);
      top = above;
    }
    const stack = placed.has(session) ? [] : [{ session: top, depth: 0 }];
    for (let next = stack.pop(); next; next = stack.pop()) {
      if (placed.has(next.session)) continue;
      placed.add(next.session);
      rows.push(next);
      for (const fork of (children.get(next.session) ?? []).toReversed())
        stack.push({ session: fork, depth: next.depth + 1 });
    }
  }
  return rows;
}

/**
 * Returns the sessions that are forked, over any number of steps, from the same one as this: that one first, parents
 * before their children. Without the file of the first one there is no root, and its forks stay together.
 */
export function findFamily(
  sessions: readonly Relative[],
  parents: ReadonlyMap<Relative, Relative>,
  of: Relative,
): { root: Relative | null; members: Relative[] } {
  const children = new Map<Relative | string, Relative[]>();
  for (const session of sessions) {
    const above = parents.get(session) ?? lostParent(session);
    if (above !== undefined) addTo(children, above, session);
  }
  const seen = new Set<Relative>();
  let top = of;
  // Files can name each other as parents; the walk then ends when it meets a session again.
  for (let above = parents.get(top); above !== undefined && !seen.has(top); above = parents.get(top)) {
    seen.add(top);
    top = above;
  }
  const lost = parents.has(top) ? undefined : lostParent(top);
  const members = new Set(lost === undefined ? [top] : (children.get(lost) ?? [top]));
  // The loop reaches the sessions that are added in it.
  for (const member of members) for (const child of children.get(member) ?? []) members.add(child);
  return { root: lost === undefined ? top : null, members: [...members] };
}

function lostParent({ id, parentSession }: Relative): string | undefined {
  const named = parentSession === null ? "" : getIdInPath(parentSession);
  return named === "" || named === id ? undefined : `lost ${named}`;
}
