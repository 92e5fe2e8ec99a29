/** Counts the contents and the cost of a session, over the whole file as Pi does, and over the path to an entry. */

import { countContextTokens } from "../context/compaction.ts";
import { getContextWindow } from "../context/models.ts";
import { getReportedTokens } from "../context/tokens.ts";
import { getToolCalls, toAmount } from "../format/message.ts";
import { ROOT } from "../tree/nodes.ts";
import type { Session } from "./session.ts";

type Usage = ReturnType<typeof makeUsage>;
type Counts = ReturnType<typeof makeCounts>;

/**
 * Returns the usage of the context at a leaf, as Pi does: null after a compaction, until an assistant message reports
 * it; undefined when no model is named, so that the window is not known.
 */
export function getContextUsage(session: Session, leaf: number = session.tree.leaf) {
  const model = session.model(leaf);
  if (!model) return undefined;
  const contextWindow = getContextWindow(model);
  const { items, compaction } = session.context(leaf);
  if (compaction !== ROOT && !isReportedSince(session, leaf, compaction))
    return { tokens: null, contextWindow, percent: null };
  const tokens = countContextTokens(session.tree, session, leaf, items);
  return { tokens, contextWindow, percent: (tokens / contextWindow) * 100 };
}

/** Returns whether the last assistant message after a compaction that was not aborted or failed reports its tokens. */
function isReportedSince(session: Session, leaf: number, compaction: number): boolean {
  const { log } = session;
  for (let at = leaf; at >= 0 && at !== compaction; at = log.nodes.parent(at)) {
    if (log.nodes.role(at) !== "assistant" || log.nodes.hasNoMessage(at)) continue;
    const { message } = session.shownEntry(at);
    const { stopReason } = message as { stopReason?: unknown };
    if (stopReason !== "aborted" && stopReason !== "error") return getReportedTokens(message) > 0;
  }
  return false;
}

/** Entry types that may carry `usage` themselves (session-format reference, section 2). */
const PAID = new Set(["usage", "branch_summary", "compaction"]);

/** Returns the counts of all entries and of a path, the usage by origin, and the bytes of the lines by entry type. */
export function computeStats(session: Session, leaf: number = session.tree.leaf): SessionStats {
  const steps = computeStatsInSteps(session, leaf);
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

export type SessionStats = ReturnType<typeof computeStatsInSteps> extends Generator<unknown, infer R> ? R : never;

/** Entries of a step. */
const STEP = 256;

/** Does the same in steps, between which others may do something. */
export function* computeStatsInSteps(session: Session, leaf: number = session.tree.leaf) {
  const { nodes } = session.log;
  const stats = { ...makeCounts(), own: makeUsage(), inherited: makeUsage(), path: makeCounts() };
  const onPath = new Set(session.tree.path(leaf));
  // After a fork's copied entries come its own, whatever their times: a host may give entries any time.
  const beginning = new ForkBeginning(session.log.header, session.parentSession !== null);
  /** A map, because a type may have any name, even that of a member of every object. */
  const bytesByType = new Map<string, number>();
  for (const position of session.visible()) {
    if (position % STEP === STEP - 1) yield;
    const type = nodes.type(position);
    bytesByType.set(type, (bytesByType.get(type) ?? 0) + session.log.length(position));
    const role = nodes.role(position);
    const sums: Counts[] = onPath.has(position) ? [stats, stats.path] : [stats];
    if (type === "message" && !nodes.hasNoMessage(position)) for (const counts of sums) countMessage(counts, role);
    const paid = mayCost(type, role);
    if (!paid && !beginning.goesOn) continue;
    const entry = session.shownEntry(position);
    const isInherited = beginning.take(entry);
    if (!paid) continue;
    const calls = role === "assistant" ? getToolCalls(messageIn(entry)?.content).length : 0;
    const usage = getEntryUsage(entry);
    for (const counts of sums) {
      counts.toolCalls += calls;
      addUsage(counts, usage);
    }
    addUsage(isInherited ? stats.inherited : stats.own, usage);
  }
  return { ...stats, bytesByType: Object.fromEntries(bytesByType) };
}

/** The entries that an imported fork took over: the original's id as an imported session, and the last of them. */
export interface TakenFromOriginal {
  readonly session: string;
  readonly lastId: string;
}

/** Returns the header's record of the entries that an imported fork copied from its original. */
export function readTakenOver(header: object): TakenFromOriginal | undefined {
  const { importedFrom } = header as { importedFrom?: { takenOver?: Partial<TakenFromOriginal> } | null };
  const { session, lastId } = importedFrom?.takenOver ?? {};
  return typeof session === "string" && typeof lastId === "string" ? { session, lastId } : undefined;
}

/** Distinguishes the entries that a fork copied, which come first, from its own. */
export class ForkBeginning {
  /** True if all entries so far were copied from the fork's original. */
  goesOn: boolean;
  private readonly born: number;
  private readonly sessionId: unknown;
  /** The last copied entry, if the header names it: other agents give copies the time of the fork. */
  private readonly lastId: string | undefined;

  constructor(header: { readonly id?: unknown; readonly timestamp?: unknown }, goesOn: boolean) {
    this.goesOn = goesOn;
    this.lastId = readTakenOver(header)?.lastId;
    this.born = this.lastId === undefined ? Date.parse(`${header.timestamp ?? ""}`) : Number.POSITIVE_INFINITY;
    this.sessionId = header.id;
  }

  /** Takes the next entry. Returns whether it is no younger than its session, and no append to that wrote it. */
  take({ id, _batch, timestamp }: Readonly<Record<string, unknown>>): boolean {
    const batch = _batch as { session?: unknown } | null | undefined;
    const time = typeof timestamp === "string" ? Date.parse(timestamp) : Number.NaN;
    const isTaken = this.goesOn && time <= this.born && batch?.session !== this.sessionId;
    this.goesOn = isTaken && (this.lastId === undefined || id !== this.lastId);
    return isTaken;
  }
}

function messageIn({ message }: Readonly<Record<string, unknown>>): Partial<Record<string, unknown>> | undefined {
  return typeof message === "object" && message !== null ? (message as Record<string, unknown>) : undefined;
}

/** Returns whether entries of a type, or messages of a role, may have a cost. */
export function mayCost(type: string, role: string): boolean {
  return role === "assistant" || role === "toolResult" || PAID.has(type);
}

export function getEntryUsage(entry: Readonly<Record<string, unknown>>): unknown {
  return entry.type === "message" ? messageIn(entry)?.usage : entry.usage;
}

export function countMessage(counts: Counts, role: string): void {
  counts.totalMessages++;
  if (role === "user") counts.userMessages++;
  else if (role === "toolResult") counts.toolResults++;
  else if (role === "assistant") counts.assistantMessages++;
}

export function makeCounts() {
  return { userMessages: 0, assistantMessages: 0, toolCalls: 0, toolResults: 0, totalMessages: 0, ...makeUsage() };
}

export function makeUsage() {
  return { tokens: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 }, cost: 0 };
}

export function addUsage(sum: Usage, usage: unknown): void {
  if (typeof usage !== "object" || usage === null) return;
  const { cost, totalTokens } = usage as { cost?: { total?: unknown }; totalTokens?: unknown };
  let total = 0;
  for (const kind of ["input", "output", "cacheRead", "cacheWrite"] as const) {
    const tokens = toAmount((usage as Record<string, unknown>)[kind]);
    sum.tokens[kind] += tokens;
    total += tokens;
  }
  // Some writers keep only the total.
  sum.tokens.total += total > 0 ? total : toAmount(totalTokens);
  sum.cost += toAmount(cost?.total);
}
