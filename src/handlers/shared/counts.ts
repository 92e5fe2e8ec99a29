/** Counts of messages, tokens and costs, as several commands return them. */

import * as z from "zod";

export const tokens = z.object({
  input: z.number(),
  output: z.number(),
  cacheRead: z.number(),
  cacheWrite: z.number(),
  total: z.number(),
});

export const counts = {
  userMessages: z.number().int(),
  assistantMessages: z.number().int(),
  toolCalls: z.number().int(),
  toolResults: z.number().int(),
  totalMessages: z.number().int(),
  tokens,
  cost: z.number(),
};

export const exampleCounts = {
  userMessages: 1,
  assistantMessages: 1,
  toolCalls: 0,
  toolResults: 0,
  totalMessages: 2,
  tokens: { input: 100, output: 20, cacheRead: 0, cacheWrite: 0, total: 120 },
  cost: 0.0006,
};
