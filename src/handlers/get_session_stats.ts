import * as z from "zod";
import { statsOf, type Usage } from "../core/stats.ts";
import { command } from "./command.ts";
import { withoutNulls } from "./pi_shapes.ts";

const tokens = z.object({
  input: z.number(),
  output: z.number(),
  cacheRead: z.number(),
  cacheWrite: z.number(),
  total: z.number(),
});

const usage = z.object({ tokens, cost: z.number() });

export default command({
  name: "get_session_stats",
  summary: "Counts, tokens and cost over all branches of the session.",
  effect: "read",
  params: {},
  result: z.object({
    sessionFile: z.string().nullable(),
    sessionId: z.string(),
    userMessages: z.number().int(),
    assistantMessages: z.number().int(),
    toolCalls: z.number().int(),
    toolResults: z.number().int(),
    totalMessages: z.number().int(),
    tokens,
    cost: z.number(),
    own: usage.describe("of entries made in this session"),
    inherited: usage.describe("of entries taken over from the session it was forked from"),
    bytesByType: z.record(z.string(), z.number().int()).describe("bytes of the stored entries"),
  }),
  failures: [],
  example: {
    params: {},
    result: {
      sessionFile: null,
      sessionId: "01991f6e-1f1d-7c3e-b0a4-0242ac120002",
      userMessages: 1,
      assistantMessages: 1,
      toolCalls: 0,
      toolResults: 0,
      totalMessages: 2,
      tokens: { input: 100, output: 20, cacheRead: 0, cacheWrite: 0, total: 120 },
      cost: 0.0006,
      own: { tokens: { input: 100, output: 20, cacheRead: 0, cacheWrite: 0, total: 120 }, cost: 0.0006 },
      inherited: { tokens: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 }, cost: 0 },
      bytesByType: { message: 512 },
    },
  },
  run({ session }) {
    const { usage: all, own, inherited, ...counts } = statsOf(session);
    return {
      sessionFile: session.file,
      sessionId: session.id,
      userMessages: counts.userMessages,
      assistantMessages: counts.assistantMessages,
      toolCalls: counts.toolCalls,
      toolResults: counts.toolResults,
      totalMessages: counts.totalMessages,
      ...priced(all),
      own: priced(own),
      inherited: priced(inherited),
      bytesByType: counts.bytesByType,
    };
  },
  pi: (_context, stats) => withoutNulls(stats),
});

function priced({ cost, ...counted }: Usage): z.input<typeof usage> {
  return { tokens: counted, cost };
}
