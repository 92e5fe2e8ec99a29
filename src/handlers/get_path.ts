import * as z from "zod";
import { Raw } from "../core/json/raw.ts";
import { command } from "./shared/command.ts";
import { pageEnd, pageOf } from "./shared/page.ts";
import { cursor, entry, entryExample, limit, nextCursor, stored } from "./shared/shapes.ts";

export default command({
  name: "get_path",
  summary: "The entries from the root to an entry, as they are stored.",
  effect: "read",
  params: { entryId: z.string().optional().describe("the leaf by default"), cursor, limit },
  result: z.object({ entries: stored(z.array(entry)), nextCursor }),
  failures: ["entry_not_found", "cursor_expired"],
  example: { params: {}, result: { entries: [entryExample("a1b2c3d4", null, "Hello")] } },
  run(context, params) {
    const { session } = context;
    const end = params.entryId === undefined ? undefined : session.position(params.entryId);
    const page = pageOf(session, params.cursor, end);
    const path = session.tree.path(page.leaf);
    const past = pageEnd(context, params.limit, path.length, page.index, (i) => session.line(path[i]));
    return {
      entries: Raw.array(() => session.log.readMany(path.subarray(page.index, past), true)),
      nextCursor: past < path.length ? page.next(past) : undefined,
    };
  },
});
