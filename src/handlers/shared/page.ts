/** Pages. Cursors are opaque to hosts: into a path `<leaf id>.<index>`, in file order a position. */

import { Failure } from "../../core/failure.ts";
import type { Session } from "../../core/session/session.ts";
import { ROOT } from "../../core/tree/nodes.ts";
import type { CommandContext } from "./command.ts";

/** Returns the page that a cursor names, or the first page of the path to `end`. Throws cursor_expired. */
export function findPage(session: Session, cursor: string | undefined, end = session.tree.leaf) {
  const { nodes } = session.log;
  const dot = cursor?.lastIndexOf(".") ?? -1;
  const leafId = cursor === undefined ? session.idOrNull(end) : cursor.slice(0, dot);
  const index = cursor === undefined ? 0 : parseIndex(cursor.slice(dot + 1));
  const leaf = leafId === null || leafId === "" ? ROOT : nodes.position(leafId);
  if (cursor !== undefined && (dot < 0 || (leaf < 0 && leafId !== "")))
    throw new Failure("cursor_expired", undefined, { cursor });
  // The page begins at the index in the path to that leaf, which never changes, whatever is appended meanwhile.
  return { leaf, index, next: (at: number) => `${leafId ?? ""}.${at}` };
}

/** Returns the index that a cursor names, which must be below `count` if that is given. Throws cursor_expired. */
export function parseIndex(cursor: string | undefined, count = Number.POSITIVE_INFINITY): number {
  if (cursor === undefined) return 0;
  const index = /^\d{1,15}$/.test(cursor) ? Number(cursor) : -1;
  if (index < 0 || index >= count) throw new Failure("cursor_expired", undefined, { cursor });
  return index;
}

/** Bytes of a reply that are not its items. */
const AROUND = 512;
/** Bytes of the shortest possible entry or node. */
const SHORTEST = 16;

/** Returns the positions that can go on a page, and one after them if there is one; the others need not be looked for. */
export function takePositions(
  context: CommandContext,
  limit = Number.POSITIVE_INFINITY,
  positions: Iterable<number>,
  isWanted: (position: number) => boolean = () => true,
): number[] {
  const { maxReplyBytes = Number.POSITIVE_INFINITY } = context.host;
  const most = Math.min(limit, Math.ceil(maxReplyBytes / SHORTEST));
  const found: number[] = [];
  for (const position of positions) {
    if (isWanted(position)) found.push(position);
    if (found.length > most) break;
  }
  return found;
}

/**
 * Returns the bounds of a page, and the index for the cursor of the next one, if there is more. Pages begin at `index`; with
 * `fromEnd` they end there, the first one at the last item. `taken`: bytes that the reply has besides.
 */
export function findSpan(
  context: CommandContext,
  { limit, cursor, fromEnd }: { limit?: number; cursor?: string; fromEnd?: boolean },
  count: number,
  index: number,
  text: (index: number) => Uint8Array,
  taken = 0,
): { from: number; past: number; next: number | undefined } {
  if (!fromEnd) {
    const past = findPageEnd(context, limit, count, index, text, taken);
    return { from: index, past, next: past < count ? past : undefined };
  }
  const past = cursor === undefined ? count : index;
  if (cursor !== undefined && (past < 1 || past > count)) throw new Failure("cursor_expired");
  const from = past - findPageEnd(context, limit, past, 0, (i) => text(past - 1 - i), taken);
  return { from, past, next: from > 0 ? from : undefined };
}

/**
 * Returns the index after the last item of a page: `limit` items, and no more than the host's `maxReplyBytes` allows.
 * One item is always included; if it alone is too large, the reply fails with message_too_large. Throws cursor_expired.
 */
export function findPageEnd(
  context: CommandContext,
  limit: number | undefined,
  count: number,
  from: number,
  text: (index: number) => Uint8Array,
  taken = 0,
): number {
  if (from > 0 && from >= count) throw new Failure("cursor_expired");
  const past = Math.min(count, limit === undefined ? count : from + limit);
  const { host } = context;
  if (host.maxReplyBytes === undefined) return past;
  let available = host.maxReplyBytes - AROUND - taken;
  for (let index = from; index < past; index++) {
    available -= host.sizeOf(text(index)) + 1;
    if (available < 0) return Math.max(index, from + 1);
  }
  return past;
}
