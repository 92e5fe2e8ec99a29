import * as z from "zod";
import { computeStats, getContextUsage } from "../core/session/stats.ts";
import { ROOT } from "../core/tree/nodes.ts";
import { lookAt } from "./shared/any-session.ts";
import { defineCommand } from "./shared/command.ts";
import { counts, exampleCounts, tokens } from "./shared/counts.ts";
import { removeNulls } from "./shared/pi-model.ts";
import { anySessionPath } from "./shared/shapes.ts";

const usage = z.object({ tokens, cost: z.number() });

export default defineCommand({
  name: "get_session_stats",
  summary: "Counts, tokens and cost over all branches of the session, and over the path.",
  effect: "read",
  ofAny: true,
  params: {
    sessionPath: anySessionPath,
    leafId: z.string().nullish().describe("the path to this entry; to the current leaf by default, null: no entries"),
  },
  result: () =>
    z.object({
      sessionFile: z.string().nullable(),
      sessionId: z.string(),
      ...counts,
      own: usage.describe("of entries made in this session"),
      inherited: usage.describe("of entries taken over from the session it was forked from"),
      path: z.object(counts).describe("the same counts for the path"),
      bytesByType: z.record(z.string(), z.number().int()).describe("bytes of the stored entries"),
      contextUsage: z
        .object({
          tokens: z
            .number()
            .nullable()
            .describe(
              "as the last assistant message reports them, with estimates of what came after it; null after a compaction until another does",
            ),
          contextWindow: z.number().describe("of the model; 128,000 where that is not known"),
          percent: z.number().nullable(),
        })
        .optional()
        .describe("how full the context at the end of the path is; absent where no model is named"),
    }),
  failures: ["entry_not_found", "not_a_session", "path_outside_root", "storage_failed"],
  example: {
    params: {},
    result: {
      sessionFile: null,
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
      ...exampleCounts,
      own: { tokens: exampleCounts.tokens, cost: exampleCounts.cost },
      inherited: { tokens: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 }, cost: 0 },
      path: exampleCounts,
      bytesByType: { message: 512 },
      contextUsage: { tokens: 120, contextWindow: 200_000, percent: 0.06 },
    },
  },
  run: (context, { sessionPath, leafId }) =>
    lookAt(context, sessionPath, (session) => {
      const leaf = leafId === undefined ? session.tree.leaf : leafId === null ? ROOT : session.position(leafId);
      return {
        sessionFile: session.file,
        sessionId: session.id,
        ...computeStats(session, leaf),
        contextUsage: getContextUsage(session, leaf),
      };
    }),
  pi: (_context, stats) => removeNulls(stats),
});
