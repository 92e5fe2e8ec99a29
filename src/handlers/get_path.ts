import * as z from "zod";
import { Raw } from "../core/json/raw.ts";
import { command } from "./shared/command.ts";
import { pageOf, spanOf } from "./shared/page.ts";
import { cursor, entry, entryExample, fromEnd, images, limit, nextCursor, stored } from "./shared/shapes.ts";

export default command({
  name: "get_path",
  summary: "The entries from the root to an entry, as they are stored, with their pictures or without.",
  effect: "read",
  params: { entryId: z.string().optional().describe("the leaf by default"), fromEnd, cursor, limit, images },
  result: () => z.object({ entries: stored(z.array(entry)), nextCursor }),
  failures: ["entry_not_found", "cursor_expired"],
  example: { params: {}, result: { entries: [entryExample("a1b2c3d4", null, "Hello")] } },
  run(context, params) {
    const { session } = context;
    const end = params.entryId === undefined ? undefined : session.position(params.entryId);
    const page = pageOf(session, params.cursor, end);
    const path = session.tree.path(page.leaf);
    const lines = (from: number, past: number) => session.lines(path.subarray(from, past), params.images);
    const span = spanOf(context, params, path.length, page.index, (i) => lines(i, i + 1).next().value as Uint8Array);
    return {
      entries: Raw.array(() => lines(span.from, span.past)),
      nextCursor: span.next === undefined ? undefined : page.next(span.next),
    };
  },
});
