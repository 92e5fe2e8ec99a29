/** Cursors of answers: each fits only its own request. */

import { Buffer } from "node:buffer";
import { createHash } from "node:crypto";
import { packCursor, unpackCursor } from "../../core/search/listing.ts";
import { CallMistake, type ToolArguments } from "./params.ts";

/** Makes a cursor that only fits the same request. */
export function makeCursor(kind: string, request: unknown, place: unknown): string {
  return Buffer.from(JSON.stringify([keyOf(kind, request), place])).toString("base64url");
}

/** Returns the place of a cursor. Throws CallMistake for one of another request. */
export function readCursor<Place>(cursor: unknown, kind: string, request: unknown): Place | undefined {
  if (typeof cursor !== "string" || cursor === "") return undefined;
  let read: unknown;
  try {
    read = JSON.parse(Buffer.from(cursor, "base64url").toString("utf8"));
  } catch {
    // It is no cursor at all.
  }
  if (!Array.isArray(read) || read[0] !== keyOf(kind, request))
    throw new CallMistake(
      "This cursor is not of this request. Repeat the request as it was, with the cursor of its last answer, or leave it out.",
    );
  return read[1] as Place;
}

/** The beginning of packed cursors. */
const PACKED = packCursor([""]).slice(0, 2);

/** A cursor of a search, which holds others, without their packing: each one takes a third more. */
export type UnfoldedCursor = readonly unknown[];

/** Unpacks a cursor, and those in it. Throws cursor_expired. */
export function unfoldCursor(cursor: string): UnfoldedCursor {
  return unpackCursor(cursor).map((one) =>
    typeof one === "string" && one.startsWith(PACKED) ? unfoldCursor(one) : one,
  );
}

/** Packs it again. One that a client made is packed to the depth of ours. */
export function foldCursor(unfolded: UnfoldedCursor, depth = 2): string {
  return packCursor(unfolded.map((one) => (Array.isArray(one) && depth > 0 ? foldCursor(one, depth - 1) : one)));
}

function keyOf(kind: string, request: unknown): string {
  return createHash("sha256")
    .update(JSON.stringify([kind, request]))
    .digest("base64url")
    .slice(0, 8);
}

/** Returns the request of a call without what may differ from page to page. */
export function requestOf({ cursor: _, limit: _limit, max_tokens: _most, ...rest }: ToolArguments): unknown {
  return Object.entries(rest).sort(([a], [b]) => (a < b ? -1 : 1));
}
