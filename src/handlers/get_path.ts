import * as z from "zod";
import { Raw } from "../core/json/raw.ts";
import { defineCommand } from "./shared/command.ts";
import { findPage, findSpan } from "./shared/page.ts";
import { cursor, entry, fromEnd, images, limit, makeEntryExample, nextCursor, typeStored } from "./shared/shapes.ts";

export default defineCommand({
  name: "get_path",
  summary: "The entries from the root to an entry, as they are stored, with their pictures or without.",
  effect: "read",
  params: { entryId: z.string().optional().describe("the leaf by default"), fromEnd, cursor, limit, images },
  result: () => z.object({ entries: typeStored(z.array(entry)), nextCursor }),
  failures: ["entry_not_found", "cursor_expired"],
  example: { params: {}, result: { entries: [makeEntryExample("a1b2c3d4", null, "Hello")] } },
  run(context, params) {
    const { session } = context;
    const end = params.entryId === undefined ? undefined : session.position(params.entryId);
    const page = findPage(session, params.cursor, end);
    const path = session.tree.path(page.leaf);
    const lines = (from: number, past: number) => session.lines(path.subarray(from, past), params.images);
    const span = findSpan(context, params, path.length, page.index, (i) => lines(i, i + 1).next().value as Uint8Array);
    return {
      entries: Raw.array(() => lines(span.from, span.past)),
      nextCursor: span.next === undefined ? undefined : page.next(span.next),
    };
  },
});
