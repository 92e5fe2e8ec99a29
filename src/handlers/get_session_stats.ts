import * as z from "zod";
import { contextUsageOf, statsOf } from "../core/session/stats.ts";
import { command } from "./shared/command.ts";
import { withoutNulls } from "./shared/pi-shapes.ts";

const tokens = z.object({
  input: z.number(),
  output: z.number(),
  cacheRead: z.number(),
  cacheWrite: z.number(),
  total: z.number(),
});

const usage = z.object({ tokens, cost: z.number() });

const counts = {
  userMessages: z.number().int(),
  assistantMessages: z.number().int(),
  toolCalls: z.number().int(),
  toolResults: z.number().int(),
  totalMessages: z.number().int(),
  tokens,
  cost: z.number(),
};

const exampleCounts = {
  userMessages: 1,
  assistantMessages: 1,
  toolCalls: 0,
  toolResults: 0,
  totalMessages: 2,
  tokens: { input: 100, output: 20, cacheRead: 0, cacheWrite: 0, total: 120 },
  cost: 0.0006,
};

export default command({
  name: "get_session_stats",
  summary: "Counts, tokens and cost over all branches of the session, and over the path.",
  effect: "read",
  result: z.object({
    sessionFile: z.string().nullable(),
    sessionId: z.string(),
    ...counts,
    own: usage.describe("of entries made in this session"),
    inherited: usage.describe("of entries taken over from the session it was forked from"),
    path: z.object(counts).describe("the same counts for the path to the leaf"),
    bytesByType: z.record(z.string(), z.number().int()).describe("bytes of the stored entries"),
    contextUsage: z
      .object({
        tokens: z
          .number()
          .nullable()
          .describe("as the last assistant message reports them; null after a compaction until another does"),
        contextWindow: z.number().describe("of the model; 128,000 where that is not known"),
        percent: z.number().nullable(),
      })
      .optional()
      .describe("how full the context at the leaf is; absent where the session names no model"),
  }),
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
  run: ({ session }) => ({
    sessionFile: session.file,
    sessionId: session.id,
    ...statsOf(session),
    contextUsage: contextUsageOf(session),
  }),
  pi: (_context, stats) => withoutNulls(stats),
});
