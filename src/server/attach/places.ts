/** Where a joined session is: as its holder tells, and as its entries tell when no holder does. */

import { Raw } from "../../core/json/raw.ts";
import type { Session } from "../../core/session/session.ts";
import { ROOT } from "../../core/tree/nodes.ts";
import type { PendingEvent } from "../connection/host.ts";

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
export function found(session: Session, place: ToldPlace): ToldPlace {
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
export function isTold({ log: { nodes } }: Session, { leafId, sharedLeafId }: ToldPlace, end: number): boolean {
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
export function missedBy(
  session: Session,
  { from, end, own, isFirst }: Missed,
  { head: mine, ...known }: ToldPlace,
): { events: PendingEvent[]; entryIds: string[]; place: ToldPlace } {
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
    if (!isShown) continue;
    let run = runs.at(-1);
    if (run?.isOwn !== isOwn || run.head !== head) {
      run = { isOwn, head, positions: [], leafId };
      runs.push(run);
    }
    run.positions.push(position);
    run.leafId = leafId;
  }
  const events = runs.map((run) => appended(session, run, run.isOwn ? "self" : isFirst ? "foreign" : "peer"));
  const entryIds = runs.flatMap(({ positions }) => positions.map((position) => nodes.id(position)));
  return { events, entryIds, place: { ...known, head: mine, leafId, sharedLeafId, headLastId } };
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
