import * as z from "zod";
import { Raw } from "../core/json/raw.ts";
import { command } from "./shared/command.ts";
import { atMost, indexOf, pageEnd } from "./shared/page.ts";
import { cursor, entry, entryExample, limit, nextCursor, stored } from "./shared/shapes.ts";

export default command({
  name: "get_entries",
  summary: "The entries of all branches in file order, as they are stored.",
  effect: "read",
  params: {
    since: z.string().optional().describe("only entries after this one"),
    types: z.array(z.string()).optional().describe("only entries of these types"),
    cursor,
    limit,
  },
  result: z.object({ entries: stored(z.array(entry)), leafId: z.string().nullable(), nextCursor }),
  failures: ["entry_not_found", "cursor_expired"],
  example: {
    params: { since: "a1b2c3d4", limit: 1 },
    result: { entries: [entryExample("b2c3d4e5", "a1b2c3d4", "Hello")], leafId: "b2c3d4e5" },
  },
  run(context, params) {
    const { session } = context;
    const after = indexOf(params.cursor, session.log.nodes.count);
    const from = Math.max(after, params.since === undefined ? 0 : session.position(params.since) + 1);
    const types = params.types && new Set(params.types);
    const most = atMost(context, params.limit);
    const found: number[] = [];
    for (const position of session.visible(from)) {
      if (types && !types.has(session.log.nodes.type(position))) continue;
      found.push(position);
      if (found.length > most) break;
    }
    const past = pageEnd(context, params.limit, found.length, 0, (i) => session.line(found[i]));
    const shown = found.slice(0, past);
    return {
      entries: Raw.array(() => session.log.readMany(shown, true)),
      leafId: session.leafId,
      nextCursor: past < found.length ? String(found[past]) : undefined,
    };
  },
});
