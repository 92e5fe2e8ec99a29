/** Where a joined session is: as its holder tells, and as its entries tell when no holder does. */

import { Raw } from "../../core/json/raw.ts";
import type { Session } from "../../core/session/session.ts";
import { ROOT } from "../../core/tree/nodes.ts";
import { eventOf, type PendingEvent } from "../connection/host.ts";

/** Where a session is for our host. */
export interface ToldPlace {
  /** The head whose leaf is told; null for the shared leaf. */
  readonly head: string | null;
  readonly leafId: string | null;
  readonly sharedLeafId: string | null;
  /** The last entry of the head. */
  readonly headLastId: string | null;
  /** The last entry of all. */
  readonly lastId: string | null;
}

export const NOWHERE: ToldPlace = { head: null, leafId: null, sharedLeafId: null, headLastId: null, lastId: null };

/** Returns the place that a message of the holder tells; `last` where it tells no last entry. */
export function placeIn(value: Readonly<Record<string, unknown>>, last: string | null): ToldPlace {
  const {
    leafId,
    sharedLeafId = leafId,
    lastId = last,
    at,
  } = value as unknown as Partial<ToldPlace> & { at?: unknown };
  const { head = null, lastId: headLastId = null } = (at ?? {}) as { head?: string; lastId?: string | null };
  return { head, leafId: leafId ?? null, sharedLeafId: sharedLeafId ?? null, headLastId, lastId };
}

/** Returns where a session is, as far as it was read here and our host was told. */
export function placeOf({ heads, ownLeafId, sharedLeafId, log: { nodes } }: Session): ToldPlace {
  const head = heads.own;
  const lastId = nodes.count === 0 ? null : nodes.id(nodes.count - 1);
  const headLastId = head === null ? null : heads.lastIdOf(head);
  return { head, leafId: ownLeafId, sharedLeafId, headLastId, lastId };
}

/** Puts our own leaf and the shared one there, if the entries are known. */
export function settle(session: Session, { leafId, sharedLeafId, headLastId }: ToldPlace): void {
  const { nodes } = session.log;
  const leaf = leafId === null ? ROOT : nodes.position(leafId);
  const shared = sharedLeafId === null ? ROOT : nodes.position(sharedLeafId);
  if (leafId !== null && leaf < 0) return;
  const last = headLastId === null ? ROOT : nodes.position(headLastId);
  session.follow(leaf, { shared: sharedLeafId !== null && shared < 0 ? leaf : shared, last });
}

/** Returns a place as far as its entries are there: nobody can go on from one that only a dead holder knew. */
function found(session: Session, place: ToldPlace): ToldPlace {
  const { nodes } = session.log;
  const isThere = (id: string | null): boolean => id === null || nodes.position(id) >= 0;
  return {
    ...place,
    leafId: isThere(place.leafId) ? place.leafId : session.ownLeafId,
    sharedLeafId: isThere(place.sharedLeafId) ? place.sharedLeafId : session.sharedLeafId,
    headLastId: isThere(place.headLastId) ? place.headLastId : null,
  };
}

/** Whether the leaves of a place are among the first `end` entries: those after them are yet to be told of. */
function isTold({ log: { nodes } }: Session, { leafId, sharedLeafId }: ToldPlace, end: number): boolean {
  return [leafId, sharedLeafId].every((id) => {
    const position = id === null ? ROOT : nodes.position(id);
    return id === null || (position >= 0 && position < end);
  });
}

/** Entries that nobody told our host of. */
interface Missed {
  readonly from: number;
  readonly end: number;
  /** Those that our host has asked for. */
  readonly own: ReadonlySet<number>;
  /** Whether they were written before anybody could tell. */
  readonly isFirst: boolean;
}

/** Entries that follow each other and are told of together. */
interface TellingRun {
  readonly isOwn: boolean;
  readonly head: string | null;
  readonly positions: number[];
  leafId: string | null;
}

/** Returns the events about entries that were missed, and where the session is after them, beginning at a place. */
function missedBy(
  session: Session,
  { from, end, own, isFirst }: Missed,
  { head: mine, ...known }: ToldPlace,
): { events: PendingEvent[]; place: ToldPlace } {
  const { nodes } = session.log;
  const runs: TellingRun[] = [];
  let { leafId, sharedLeafId, headLastId } = known;
  for (let position = from; position < end; position++) {
    const head = session.headOf(position);
    const isOwn = own.has(position);
    const id = nodes.id(position);
    const parentId = session.idOrNull(nodes.parent(position));
    const isMarker = nodes.isMarker(position);
    const isShown = !isMarker && session.tree.isVisible(position);
    if (head === null && isShown && (parentId === sharedLeafId || (isOwn && mine === null))) sharedLeafId = id;
    if (head !== null && head === mine) {
      leafId = isMarker ? parentId : id;
      headLastId = id;
    }
    if (mine === null) leafId = sharedLeafId;
    if (!isShown || !session.foreign.markReported(id)) continue;
    let run = runs.at(-1);
    if (run?.isOwn !== isOwn || run.head !== head) {
      run = { isOwn, head, positions: [], leafId };
      runs.push(run);
    }
    run.positions.push(position);
    run.leafId = leafId;
  }
  const events = runs.map((run) => appended(session, run, run.isOwn ? "self" : isFirst ? "foreign" : "peer"));
  return { events, place: { ...known, head: mine, leafId, sharedLeafId, headLastId } };
}

/** Returns the event about entries that no holder has told of. */
function appended(
  { id: sessionId, log }: Session,
  { positions, head, leafId }: TellingRun,
  origin: "self" | "peer" | "foreign",
): PendingEvent {
  const entries = Raw.array(() => log.readMany(positions, true));
  const by = head === null || origin === "foreign" ? {} : { head };
  const payload = { entryIds: positions.map((position) => log.nodes.id(position)), origin, ...by };
  return { name: "session_append", sessionId, leafId, payload: origin === "self" ? payload : { ...payload, entries } };
}

export interface CatchingUp {
  /** Where the next holder says that the session is; what comes after that it will tell. */
  readonly next?: ToldPlace;
  /** Whether our host heard of nothing before. */
  readonly isFirst?: boolean;
  /** Whether all was read already. */
  readonly isRead?: boolean;
}

/** Events that our host did not hear of until now. */
interface CaughtUp {
  readonly events: PendingEvent[];
  /** Where the session is, if the holder's word on that leads further than its entries do. */
  readonly place?: ToldPlace;
}

/**
 * Reads what came after a place of which our host was told, and puts the session where it is then. `keys` are those of
 * what our host asked for. Returns undefined, having moved nothing, if what `next` tells cannot be read yet.
 */
export function catchUp(
  session: Session,
  told: ToldPlace,
  keys: readonly string[],
  { next, isFirst = false, isRead = false }: CatchingUp,
): CaughtUp | undefined {
  const known = told.head === session.heads.own ? told : { ...placeOf(session), lastId: told.lastId };
  const before = session.log.nodes.count;
  if (!isRead) session.foreign.readAlong();
  const { nodes } = session.log;
  if (next?.lastId && nodes.position(next.lastId) < 0) return undefined;
  const own = new Set(keys.flatMap((key) => session.repeated(key)?.ids ?? []).map((id) => nodes.position(id)));
  const first = known.lastId === null ? 0 : nodes.position(known.lastId) + 1;
  const end = next?.lastId ? nodes.position(next.lastId) + 1 : nodes.count;
  // A file in which the last known entry is not was replaced; the refresh has read it anew.
  const from = known.lastId === null || first > 0 ? first : end;
  const missed = missedBy(session, { from, end, own, isFirst }, found(session, known));
  // What was read before is known to our host, though the holder may tell of it.
  for (let position = end; isFirst && position < before; position++) session.foreign.markReported(nodes.id(position));
  // The holder may have told of a head that our host has left meanwhile.
  const isOwn = next?.head === session.heads.own;
  const now = next && isOwn && isTold(session, next, end) ? next : missed.place;
  settle(session, now);
  const { leafId: oldLeafId } = missed.place;
  const { leafId: newLeafId } = now;
  const { events } = missed;
  const by = now.head === null ? {} : { head: now.head };
  if (newLeafId !== oldLeafId) events.push(eventOf(session, "session_tree", { newLeafId, oldLeafId, ...by }));
  return { events, place: next && isOwn && now !== next ? { ...now, lastId: next.lastId } : undefined };
}
