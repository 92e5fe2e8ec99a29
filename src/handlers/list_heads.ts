import * as z from "zod";
import { toBytes } from "../core/json/json.ts";
import { defineCommand } from "./shared/command.ts";
import { findPageEnd, parseIndex } from "./shared/page.ts";
import { cursor, limit, nextCursor } from "./shared/shapes.ts";

const head = z.object({
  name: z.string(),
  leafId: z.string().nullable(),
  entryId: z.string().nullable().describe("the last entry that was written through it; null for none"),
  timestamp: z.string().optional().describe("of that entry"),
  connections: z.number().int().describe("how many stand at it now, as far as the holder of the session knows"),
});

export default defineCommand({
  name: "list_heads",
  summary:
    "The heads of the session, the one that was written through last first: leaves of their own, which connections asked " +
    "for. A head without entries of its own is listed while a host is there.",
  effect: "read",
  needsHolder: true,
  params: { cursor, limit },
  result: () => z.object({ heads: z.array(head), sharedLeafId: z.string().nullable(), nextCursor }),
  failures: ["cursor_expired", "session_locked"],
  example: {
    params: {},
    result: {
      heads: [
        {
          name: "reviewer",
          leafId: "c3d4e5f6",
          entryId: "c3d4e5f6",
          timestamp: "2026-01-24T16:22:26.831Z",
          connections: 1,
        },
      ],
      sharedLeafId: "b2c3d4e5",
    },
  },
  run(context, params) {
    const { session } = context;
    const listed = session.heads.list();
    const from = parseIndex(params.cursor);
    const heads = listed.slice(from, params.limit === undefined ? undefined : from + params.limit).map((one) => {
      const { timestamp } = one.last < 0 ? {} : session.entry(one.last);
      return {
        name: one.name,
        leafId: session.idOrNull(one.leaf),
        entryId: session.idOrNull(one.last),
        ...(typeof timestamp === "string" ? { timestamp } : {}),
        connections: one.users,
      };
    });
    const end = findPageEnd(context, params.limit, listed.length, from, (index) =>
      toBytes(JSON.stringify(heads[index - from])),
    );
    return {
      heads: heads.slice(0, end - from),
      sharedLeafId: session.sharedLeafId,
      ...(end < listed.length ? { nextCursor: String(end) } : {}),
    };
  },
});
