/** Positions in a joined session: as reported by its holder, or derived from its entries without one. */

import { Raw } from "../../core/json/raw.ts";
import type { Session } from "../../core/session/session.ts";
import { ROOT } from "../../core/tree/nodes.ts";
import { makeEvent, type PendingEvent } from "../../server/connection/events.ts";

/** Position of the local host in a session. */
export interface ReportedPosition {
  /** The head of the leaf; null for the shared leaf. */
  readonly head: string | null;
  readonly leafId: string | null;
  readonly sharedLeafId: string | null;
  /** The last entry of the head. */
  readonly headLastId: string | null;
  /** The last entry of the session. */
  readonly lastId: string | null;
}

export const NO_POSITION: ReportedPosition = {
  head: null,
  leafId: null,
  sharedLeafId: null,
  headLastId: null,
  lastId: null,
};

/** Returns the position in a holder's message; `last` is the last entry if the message has none. */
export function parsePosition(value: Readonly<Record<string, unknown>>, last: string | null): ReportedPosition {
  const { leafId, sharedLeafId = leafId, lastId = last, at } = value as Partial<ReportedPosition> & { at?: unknown };
  const { head = null, lastId: headLastId = null } = (at ?? {}) as { head?: string; lastId?: string | null };
  return { head, leafId: leafId ?? null, sharedLeafId: sharedLeafId ?? null, headLastId, lastId };
}

/** Returns the position in a session as read here and reported to the local host. */
export function getPosition({ heads, ownLeafId, sharedLeafId, log: { nodes } }: Session): ReportedPosition {
  const head = heads.own;
  const lastId = nodes.count === 0 ? null : nodes.id(nodes.count - 1);
  const headLastId = head === null ? null : heads.lastIdOf(head);
  return { head, leafId: ownLeafId, sharedLeafId, headLastId, lastId };
}

/** Moves the local leaf and the shared one to a position, if its entries are known. */
export function moveLeaves(session: Session, { leafId, sharedLeafId, headLastId }: ReportedPosition): void {
  const { nodes } = session.log;
  const leaf = leafId === null ? ROOT : nodes.position(leafId);
  const shared = sharedLeafId === null ? ROOT : nodes.position(sharedLeafId);
  if (leafId !== null && leaf < 0) return;
  const last = headLastId === null ? ROOT : nodes.position(headLastId);
  session.follow(leaf, { shared: sharedLeafId !== null && shared < 0 ? leaf : shared, last });
}

/** Returns a position without entries that are not here: only a dead holder knew those. */
function limitToKnown(session: Session, place: ReportedPosition): ReportedPosition {
  const { nodes } = session.log;
  const isThere = (id: string | null): boolean => id === null || nodes.position(id) >= 0;
  return {
    ...place,
    leafId: isThere(place.leafId) ? place.leafId : session.ownLeafId,
    sharedLeafId: isThere(place.sharedLeafId) ? place.sharedLeafId : session.sharedLeafId,
    headLastId: isThere(place.headLastId) ? place.headLastId : null,
  };
}

/** Returns whether the leaves of a position are among the first `end` entries: later ones are not reported yet. */
function isReported({ log: { nodes } }: Session, { leafId, sharedLeafId }: ReportedPosition, end: number): boolean {
  return [leafId, sharedLeafId].every((id) => {
    const position = id === null ? ROOT : nodes.position(id);
    return id === null || (position >= 0 && position < end);
  });
}

/** Entries that were not reported to the local host. */
interface MissedEntries {
  readonly from: number;
  readonly end: number;
  /** Entries of the local host's own calls. */
  readonly own: ReadonlySet<number>;
  /** True if they were written before this process joined. */
  readonly isFirst: boolean;
}

/** Consecutive entries that are reported in one event. */
interface EntryRun {
  readonly isOwn: boolean;
  readonly head: string | null;
  readonly positions: number[];
  leafId: string | null;
}

/** Returns the events about missed entries, and the position after them, beginning at a position. */
function collectMissed(
  session: Session,
  { from, end, own, isFirst }: MissedEntries,
  { head: mine, ...known }: ReportedPosition,
): { events: PendingEvent[]; place: ReportedPosition } {
  const { nodes } = session.log;
  const runs: EntryRun[] = [];
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
    if (!isShown || !session.externalChanges.markReported(id)) continue;
    let run = runs.at(-1);
    if (run?.isOwn !== isOwn || run.head !== head) {
      run = { isOwn, head, positions: [], leafId };
      runs.push(run);
    }
    run.positions.push(position);
    run.leafId = leafId;
  }
  const events = runs.map((run) => makeAppendEvent(session, run, run.isOwn ? "self" : isFirst ? "foreign" : "peer"));
  return { events, place: { ...known, head: mine, leafId, sharedLeafId, headLastId } };
}

/** Returns the event about entries that no holder reported. */
function makeAppendEvent(
  { id: sessionId, log }: Session,
  { positions, head, leafId }: EntryRun,
  origin: "self" | "peer" | "foreign",
): PendingEvent {
  const entries = Raw.array(() => log.readMany(positions, true));
  const by = head === null || origin === "foreign" ? {} : { head };
  const payload = { entryIds: positions.map((position) => log.nodes.id(position)), origin, ...by };
  return { name: "session_append", sessionId, leafId, payload: origin === "self" ? payload : { ...payload, entries } };
}

export interface CatchUpOptions {
  /** Position at which the next holder continues; it reports later entries itself. */
  readonly next?: ReportedPosition;
  /** True if nothing was reported to the local host before. */
  readonly isFirst?: boolean;
  /** True if everything was read already. */
  readonly isRead?: boolean;
}

/** Events that are new to the local host. */
interface CatchUpResult {
  readonly events: PendingEvent[];
  /** The position reported by the holder, if it is beyond that of the entries. */
  readonly place?: ReportedPosition;
}

/**
 * Reads the entries after a reported position and moves the session there. `keys` are those of the local host's own
 * calls. Returns undefined, with nothing moved, if the entries before `next` cannot be read yet.
 */
export function catchUpSession(
  session: Session,
  reported: ReportedPosition,
  keys: readonly string[],
  { next, isFirst = false, isRead = false }: CatchUpOptions,
): CatchUpResult | undefined {
  const known = reported.head === session.heads.own ? reported : { ...getPosition(session), lastId: reported.lastId };
  const before = session.log.nodes.count;
  if (!isRead) session.externalChanges.readAlong();
  const { nodes } = session.log;
  if (next?.lastId && nodes.position(next.lastId) < 0) return undefined;
  const own = new Set(keys.flatMap((key) => session.repeated(key)?.ids ?? []).map((id) => nodes.position(id)));
  const first = known.lastId === null ? 0 : nodes.position(known.lastId) + 1;
  const end = next?.lastId ? nodes.position(next.lastId) + 1 : nodes.count;
  // A file without the last known entry was replaced; the refresh has read it again.
  const from = known.lastId === null || first > 0 ? first : end;
  const missed = collectMissed(session, { from, end, own, isFirst }, limitToKnown(session, known));
  // The local host knows entries read before, though the holder may report them.
  for (let position = end; isFirst && position < before; position++)
    session.externalChanges.markReported(nodes.id(position));
  // The holder may have reported a head that the local host has left since.
  const isOwn = next?.head === session.heads.own;
  const now = next && isOwn && isReported(session, next, end) ? next : missed.place;
  moveLeaves(session, now);
  const { leafId: oldLeafId } = missed.place;
  const { leafId: newLeafId } = now;
  const { events } = missed;
  const by = now.head === null ? {} : { head: now.head };
  if (newLeafId !== oldLeafId) events.push(makeEvent(session, "session_tree", { newLeafId, oldLeafId, ...by }));
  return { events, place: next && isOwn && now !== next ? { ...now, lastId: next.lastId } : undefined };
}
