import * as z from "zod";
import { Raw } from "../core/json/raw.ts";
import type { Session } from "../core/session/session.ts";
import { defineCommand } from "./shared/command.ts";
import { findPageEnd, parseIndex, takePositions } from "./shared/page.ts";
import { cursor, entry, fromEnd, images, limit, makeEntryExample, nextCursor, typeStored } from "./shared/shapes.ts";

export default defineCommand({
  name: "get_entries",
  summary: "The entries of all branches in file order, as they are stored, with their pictures or without.",
  effect: "read",
  params: {
    since: z.string().optional().describe("only entries after this one"),
    types: z.array(z.string()).optional().describe("only entries of these types"),
    fromEnd,
    cursor,
    limit,
    images,
  },
  result: () => z.object({ entries: typeStored(z.array(entry)), leafId: z.string().nullable(), nextCursor }),
  failures: ["entry_not_found", "cursor_expired"],
  example: {
    params: { since: "a1b2c3d4", limit: 1 },
    result: { entries: [makeEntryExample("b2c3d4e5", "a1b2c3d4", "Hello")], leafId: "b2c3d4e5" },
  },
  run(context, params) {
    const { session } = context;
    const { fromEnd, limit, images } = params;
    const { count } = session.log.nodes;
    const first = params.since === undefined ? 0 : session.position(params.since) + 1;
    const at = parseIndex(params.cursor, count);
    const positions = fromEnd
      ? visibleBefore(session, params.cursor === undefined ? count : at, first)
      : session.visible(Math.max(at, first));
    const types = params.types && new Set(params.types);
    const found = takePositions(
      context,
      limit,
      positions,
      types && ((position) => types.has(session.log.nodes.type(position))),
    );
    const lineAt = (i: number) => session.lines([found[i]], images).next().value as Uint8Array;
    const past = findPageEnd(context, limit, found.length, 0, lineAt);
    const shown = found.slice(0, past);
    if (fromEnd) shown.reverse();
    return {
      entries: Raw.array(() => session.lines(shown, images)),
      leafId: session.leafId,
      nextCursor: past < found.length ? String(fromEnd ? shown[0] : found[past]) : undefined,
    };
  },
});

/** Yields the entries before one that can be seen, the last first, down to `first`. */
function* visibleBefore({ tree }: Session, past: number, first: number): Generator<number> {
  for (let position = past - 1; position >= first; position--) if (tree.isVisible(position)) yield position;
}
