/** The head of an exported page: who spoke in the session, its duration, and its usage. */

import { findFirstKept } from "../context/context.ts";
import { getReportedTokens } from "../context/tokens.ts";
import { getContentText, toAmount, toPreview, toStored } from "../format/message.ts";
import type { Listed, Relative } from "../ports/catalog.ts";
import { findParents } from "../search/listing.ts";
import { SETTING_TYPES } from "../session/compare.ts";
import type { Session } from "../session/session.ts";
import { computeStatsInSteps, getEntryUsage, type SessionStats } from "../session/stats.ts";

/** One question of the shown path and everything up to the next. */
export interface PageTurn {
  /** The position of the entry that asks. */
  readonly position: number;
  readonly preview: string;
  /** Tokens in the context after its last answer; 0 if no answer reports them. */
  readonly contextTokens: number;
  readonly cost: number;
}

/** A session of the same family, as a reader may know it; null for one without a name. */
interface PageRelative {
  readonly id: string;
  readonly name: string | null;
}

/** The sessions that one was forked from, and that were forked from it, as far as they are known. */
export interface PageFamily {
  readonly parent?: PageRelative;
  /** The oldest first. */
  readonly children: readonly PageRelative[];
}

export interface PageHead {
  readonly id: string;
  readonly cwd: string;
  readonly parent: string | null;
  readonly family?: PageFamily;
  readonly begun: string;
  readonly last: string;
  /** In the order of their first answers on the shown path. */
  readonly models: readonly string[];
  readonly stats: SessionStats;
  readonly turns: readonly PageTurn[];
}

/**
 * Reads every entry that may have a cost, and those of the path. Yields empty pieces of the page, so that other work
 * can run between them.
 */
export function* readPageHead(
  session: Session,
  path: Iterable<number>,
  family?: PageFamily,
): Generator<string, PageHead> {
  const { log, tree } = session;
  const models = new Set<string>();
  const turns: { position: number; preview: string; contextTokens: number; cost: number }[] = [];
  for (const position of path) {
    const role = tree.nodes.role(position);
    if (role !== "user" && role !== "assistant") continue;
    if (tree.nodes.hasNoMessage(position)) continue;
    const entry = session.shownEntry(position);
    const message = entry.message as Readonly<Record<string, unknown>> | undefined;
    // Its line was found damaged just now.
    if (!message) continue;
    if (role === "user") {
      const said = toPreview(getContentText(message.content), 80);
      turns.push({ position, preview: said, contextTokens: 0, cost: 0 });
      continue;
    }
    const model = toStored(message.model);
    if (model !== "") models.add(message.provider ? `${toStored(message.provider)}/${model}` : model);
    const turn = turns.at(-1);
    if (!turn) continue;
    turn.contextTokens = getReportedTokens(message) || turn.contextTokens;
    turn.cost += toAmount((getEntryUsage(entry) as { cost?: { total?: unknown } } | null | undefined)?.cost?.total);
  }
  const steps = computeStatsInSteps(session);
  let stats = steps.next();
  for (; !stats.done; stats = steps.next()) yield "";
  return {
    id: session.id,
    cwd: session.cwd,
    parent: session.parentSession,
    family,
    begun: log.header.timestamp ?? "",
    last: findLastTime(session),
    models: [...models],
    stats: stats.value,
    turns,
  };
}

/** Returns the time of the last entry of the conversation: labels and names may be given long after it. */
function findLastTime(session: Session): string {
  const { nodes } = session.tree;
  let position = nodes.count - 1;
  while (position >= 0 && SETTING_TYPES.has(nodes.type(position))) position--;
  return position < 0 ? "" : toStored(session.entry(position).timestamp);
}

/** Finds the relatives of a session among all listed ones; leaves out their names unless these may be shown. */
export function findPageFamily(session: Session, all: readonly Listed[], isNamed: boolean): PageFamily {
  const own: Relative =
    all.find(({ path }) => path === session.file) ??
    ({ path: session.file ?? "", id: session.id, parentSession: session.parentSession } satisfies Relative);
  const names = new Map<Relative, string | null>(all.map((listed) => [listed, listed.name ?? listed.firstMessage]));
  const parents = findParents(names.has(own) ? all : [...all, own]);
  const toRelative = (relative: Relative): PageRelative => ({
    id: relative.id,
    name: isNamed ? (names.get(relative) ?? null) : null,
  });
  const parent = parents.get(own);
  const forks = all.filter((listed) => parents.get(listed) === own);
  return {
    parent: parent && toRelative(parent),
    children: forks.sort((a, b) => (a.created ?? 0) - (b.created ?? 0)).map(toRelative),
  };
}

/** A stretch of a branch that a compaction replaced by its summary. */
export interface PageFold {
  /** Indexes in the branch's own entries, the end not included. */
  readonly start: number;
  readonly end: number;
  /** The position of the compaction. */
  readonly by: number;
}

/** Returns the stretches of a branch that compactions replaced, each once, in order. */
export function findFolds(session: Session, own: readonly number[]): PageFold[] {
  const { tree } = session;
  const folds: PageFold[] = [];
  let indexes: Map<number, number> | undefined;
  for (const by of own) {
    if (tree.nodes.type(by) !== "compaction") continue;
    indexes ??= new Map(own.map((position, index) => [position, index]));
    const { first } = findFirstKept(tree, session, by);
    const start = folds.at(-1)?.end ?? 0;
    const end = indexes.get(first) ?? -1;
    if (end > start) folds.push({ start, end, by });
  }
  return folds;
}
