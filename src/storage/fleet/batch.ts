/** The lines of a working copy as they are sent to the fleet. */

import { Failure } from "../../core/failure.ts";
import type { FleetBatch, FleetEnd } from "../../core/ports/fleet.ts";
import type { Log } from "../../core/ports/store.ts";
import { endAfter } from "./ends.ts";
import type { CopyFacts } from "./facts.ts";
import type { CommitInDoubt } from "./failures.ts";
import { headText } from "./heads.ts";
import { stretchesOf } from "./pack.ts";

/** Bytes of lines that are sent together; one commit of more is sent in parts. */
export const BATCH_BYTES = 2 << 20;
/** Stretches that the database copies at a time: some 32 MB of lines, in less than a second. */
const MOST_COPIED = 64;

/** Returns the position after the lines from one on, at least one, that have so many bytes together. */
export function pastOf(log: Log, from: number, count: number, bytes: number): number {
  let past = from;
  for (let sum = 0; past < count && (past === from || sum + log.length(past) <= bytes); past++) sum += log.length(past);
  return past;
}

/** What lines are sent from. */
interface Sending {
  readonly log: Log;
  readonly facts: CopyFacts;
  /** Whether the fleet has the facts of all entries before. */
  readonly isIndexed: boolean;
}

/** Returns the next part of a commit; that of a long one has no facts but what lists show. */
export function batchAfter(from: Sending, end: FleetEnd, commit: CommitInDoubt, epoch: number): FleetBatch {
  const { log, facts, isIndexed } = from;
  const { count, isLong, source } = commit;
  const about = { sessionId: log.header.id, epoch, before: end };
  const common = source?.ends.filter(({ entries }) => entries > end.entries).slice(0, MOST_COPIED);
  const last = common?.at(-1);
  if (source && common && last) {
    const part = { after: last, isPart: last.entries < count, facts: facts.between(end, last, true) };
    return { ...about, ...part, lines: [], heads: [], stretches: common, source: source.sessionId };
  }
  const past = pastOf(log, end.entries, count, BATCH_BYTES);
  const lines = linesOf(log, end.entries, past);
  const stretches = isLong ? stretchesOf(end, lines) : undefined;
  const after = stretches?.at(-1) ?? endAfter(end, lines);
  const heads = lines.map((line, i) => headText(log.nodes, end.entries + i, line));
  const part = { after, isPart: past < count, facts: facts.between(end, after, isLong || !isIndexed) };
  return { ...about, ...part, lines, heads, ...(stretches ? { stretches } : {}) };
}

/** Returns the lines of entries. Throws storage_failed where one is damaged: no other machine is to get that. */
export function linesOf(log: Log, from: number, to: number): Uint8Array[] {
  const { losses } = log.nodes;
  const lines = [...log.readMany(Int32Array.from({ length: to - from }, (_, i) => from + i))];
  if (log.nodes.losses === losses) return lines;
  const sentence = "The session's file is damaged where entries are to go to the fleet. repair_session repairs it.";
  throw new Failure("storage_failed", sentence, { sessionPath: log.file }, { retryable: false });
}
