/** Cursors: where the next page begins. Opaque to hosts; `<leaf id>.<index>` for pages of one path. */

import { Failure } from "../core/failure.ts";
import { ROOT } from "../core/nodes.ts";
import type { Session } from "../core/session.ts";

export interface Page {
  /** The leaf whose path is paged through. */
  readonly leaf: number;
  /** Where in it this page begins. */
  readonly index: number;
  next(index: number): string;
}

/** The page that a cursor names, or the first page of the path to the current leaf. Throws cursor_expired. */
export function pageOf(session: Session, cursor: string | undefined): Page {
  const { nodes } = session.log;
  const dot = cursor?.lastIndexOf(".") ?? -1;
  const leafId = cursor === undefined ? session.leafId : cursor.slice(0, dot);
  const index = cursor === undefined ? 0 : indexOf(cursor.slice(dot + 1));
  const leaf = leafId === null || leafId === "" ? ROOT : nodes.position(leafId);
  if (cursor !== undefined && (dot < 0 || (leaf < 0 && leafId !== "")))
    throw new Failure("cursor_expired", undefined, { cursor });
  return { leaf, index, next: (at) => `${leafId ?? ""}.${at}` };
}

/** The index that a cursor in file order names. Throws cursor_expired. */
export function indexOf(cursor: string | undefined): number {
  if (cursor === undefined) return 0;
  const index = /^\d{1,15}$/.test(cursor) ? Number(cursor) : -1;
  if (index < 0) throw new Failure("cursor_expired", undefined, { cursor });
  return index;
}
