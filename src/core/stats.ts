/** What a session cost and holds, counted over the whole file as Pi does. */

import { toolCalls } from "./message.ts";
import type { Session } from "./session.ts";

export interface Usage {
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
  /** Sum of the four. */
  total: number;
  cost: number;
}

export interface Stats {
  userMessages: number;
  assistantMessages: number;
  toolCalls: number;
  toolResults: number;
  totalMessages: number;
  usage: Usage;
  /** Of entries that this session did not take over from the one it was forked from. */
  own: Usage;
  inherited: Usage;
  /** Bytes of the lines, by entry type. */
  bytesByType: Record<string, number>;
}

/** Entry types that may carry `usage` themselves (session-format reference, section 2). */
const PAID = new Set(["usage", "branch_summary", "compaction"]);

export function statsOf(session: Session): Stats {
  const { nodes } = session.log;
  const stats: Stats = {
    userMessages: 0,
    assistantMessages: 0,
    toolCalls: 0,
    toolResults: 0,
    totalMessages: 0,
    usage: noUsage(),
    own: noUsage(),
    inherited: noUsage(),
    bytesByType: {},
  };
  // A fork copies entries with their timestamps, so what is older than the fork was paid for elsewhere.
  const born =
    session.parentSession === null ? Number.NEGATIVE_INFINITY : Date.parse(session.log.header.timestamp ?? "");
  for (const position of session.visible()) {
    const type = nodes.type(position);
    stats.bytesByType[type] = (stats.bytesByType[type] ?? 0) + session.log.length(position);
    const role = nodes.role(position);
    if (type === "message" && !nodes.lacksMessage(position)) {
      stats.totalMessages++;
      if (role === "user") stats.userMessages++;
      else if (role === "toolResult") stats.toolResults++;
      else if (role === "assistant") stats.assistantMessages++;
    }
    if (role !== "assistant" && role !== "toolResult" && !PAID.has(type)) continue;
    const entry = session.entry(position);
    const message = entry.message as { content?: unknown; usage?: unknown } | undefined;
    if (role === "assistant") stats.toolCalls += toolCalls(message?.content).length;
    const usage = type === "message" ? message?.usage : entry.usage;
    addUsage(stats.usage, usage);
    addUsage(Date.parse(entry.timestamp) < born ? stats.inherited : stats.own, usage);
  }
  return stats;
}

function noUsage(): Usage {
  return { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0, cost: 0 };
}

function addUsage(sum: Usage, usage: unknown): void {
  if (typeof usage !== "object" || usage === null) return;
  const { cost } = usage as { cost?: { total?: unknown } };
  for (const kind of ["input", "output", "cacheRead", "cacheWrite"] as const) {
    const tokens = numberOf((usage as Record<string, unknown>)[kind]);
    sum[kind] += tokens;
    sum.total += tokens;
  }
  sum.cost += numberOf(cost?.total);
}

function numberOf(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}
