/** What a session cost and holds, counted over the whole file as Pi does, and over the path to the leaf. */

import { contextTokens } from "../context/compaction.ts";
import { windowOf } from "../context/models.ts";
import { reportedTokens } from "../context/tokens.ts";
import type { Entry } from "../format/entry.ts";
import { toolCalls } from "../format/message.ts";
import { ROOT } from "../tree/nodes.ts";
import type { Session } from "./session.ts";

export interface Usage {
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
  /** Sum of the four; of what names only a total, that. */
  total: number;
  cost: number;
}

export interface Counts {
  userMessages: number;
  assistantMessages: number;
  toolCalls: number;
  toolResults: number;
  totalMessages: number;
  usage: Usage;
}

export interface Stats extends Counts {
  /** Of entries that this session did not take over from the one it was forked from. */
  own: Usage;
  inherited: Usage;
  /** The same counts for the path to the leaf. */
  path: Counts;
  /** Bytes of the lines, by entry type. */
  bytesByType: Record<string, number>;
}

/** How full the context is, as Pi answers it. */
export interface ContextUsage {
  /** Null after a compaction, until an answer reports them. */
  readonly tokens: number | null;
  readonly contextWindow: number;
  /** Of the window. */
  readonly percent: number | null;
}

/** Returns how full the context at the leaf is; undefined where no model is named, whose window it would fill. */
export function contextUsageOf(session: Session): ContextUsage | undefined {
  const model = session.model();
  if (!model) return undefined;
  const contextWindow = windowOf(model);
  const { items, compaction } = session.context();
  const { tree } = session;
  if (compaction !== ROOT && !isReportedSince(session, compaction))
    return { tokens: null, contextWindow, percent: null };
  const tokens = contextTokens(tree, session, tree.leaf, items);
  return { tokens, contextWindow, percent: (tokens / contextWindow) * 100 };
}

/** Whether the last answer after a compaction that was not broken off tells how many tokens it took. */
function isReportedSince(session: Session, compaction: number): boolean {
  const { tree, log } = session;
  for (let at = tree.leaf; at >= 0 && at !== compaction; at = log.nodes.parent(at)) {
    if (log.nodes.role(at) !== "assistant" || log.nodes.lacksMessage(at)) continue;
    const { message } = session.entry(at);
    const { stopReason } = message as { stopReason?: unknown };
    if (stopReason !== "aborted" && stopReason !== "error") return reportedTokens(message) > 0;
  }
  return false;
}

/** Entry types that may carry `usage` themselves (session-format reference, section 2). */
const PAID = new Set(["usage", "branch_summary", "compaction"]);

export function statsOf(session: Session): Stats {
  const { nodes } = session.log;
  const stats: Stats = {
    ...noCounts(),
    own: noUsage(),
    inherited: noUsage(),
    path: noCounts(),
    bytesByType: {},
  };
  const onPath = new Set(session.tree.path());
  const takenOver = new TakenOver(session);
  /** A type may have any name, that of a member of every object too. */
  const bytesByType = new Map<string, number>();
  for (const position of session.visible()) {
    const type = nodes.type(position);
    bytesByType.set(type, (bytesByType.get(type) ?? 0) + session.log.length(position));
    const role = nodes.role(position);
    const sums: Counts[] = onPath.has(position) ? [stats, stats.path] : [stats];
    if (type === "message" && !nodes.lacksMessage(position)) for (const counts of sums) countMessage(counts, role);
    const isPaid = role === "assistant" || role === "toolResult" || PAID.has(type);
    if (!isPaid && !takenOver.lasts) continue;
    const entry = session.entry(position);
    const isTakenOver = takenOver.holds(entry);
    if (!isPaid) continue;
    const message = entry.message as { content?: unknown; usage?: unknown } | undefined;
    const calls = role === "assistant" ? toolCalls(message?.content).length : 0;
    const usage = type === "message" ? message?.usage : entry.usage;
    for (const counts of sums) {
      counts.toolCalls += calls;
      addUsage(counts.usage, usage);
    }
    addUsage(isTakenOver ? stats.inherited : stats.own, usage);
  }
  stats.bytesByType = Object.fromEntries(bytesByType);
  return stats;
}

/**
 * Which entries a fork began with: those in front that are no younger than it. Where they end, the session's own begin,
 * whatever time these name, for a host may give entries any.
 */
class TakenOver {
  lasts: boolean;
  private readonly born: number;
  private readonly sessionId: string;

  constructor(session: Session) {
    this.lasts = session.parentSession !== null;
    this.born = Date.parse(session.log.header.timestamp ?? "");
    this.sessionId = session.id;
  }

  /** To be asked for every entry in file order, as long as it `lasts`. */
  holds(entry: Entry): boolean {
    const batch = entry._batch as { session?: unknown } | null | undefined;
    const { timestamp } = entry as { timestamp?: unknown };
    const time = typeof timestamp === "string" ? Date.parse(timestamp) : Number.NaN;
    if (!(time <= this.born) || batch?.session === this.sessionId) this.lasts = false;
    return this.lasts;
  }
}

function countMessage(counts: Counts, role: string): void {
  counts.totalMessages++;
  if (role === "user") counts.userMessages++;
  else if (role === "toolResult") counts.toolResults++;
  else if (role === "assistant") counts.assistantMessages++;
}

function noCounts(): Counts {
  return { userMessages: 0, assistantMessages: 0, toolCalls: 0, toolResults: 0, totalMessages: 0, usage: noUsage() };
}

function noUsage(): Usage {
  return { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0, cost: 0 };
}

function addUsage(sum: Usage, usage: unknown): void {
  if (typeof usage !== "object" || usage === null) return;
  const { cost, totalTokens } = usage as { cost?: { total?: unknown }; totalTokens?: unknown };
  let total = 0;
  for (const kind of ["input", "output", "cacheRead", "cacheWrite"] as const) {
    const tokens = numberOf((usage as Record<string, unknown>)[kind]);
    sum[kind] += tokens;
    total += tokens;
  }
  // Some writers keep no more than the total.
  sum.total += total > 0 ? total : numberOf(totalTokens);
  sum.cost += numberOf(cost?.total);
}

function numberOf(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}
