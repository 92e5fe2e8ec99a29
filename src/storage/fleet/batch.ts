/** The lines of a working copy as they are sent to the fleet. */

import { Failure } from "../../core/failure.ts";
import type { FleetBatch, FleetEnd } from "../../core/ports/fleet.ts";
import type { Log } from "../../core/ports/store.ts";
import { endAfter } from "./ends.ts";
import type { CopyFacts } from "./facts.ts";
import { headText } from "./heads.ts";
import { stretchesOf } from "./pack.ts";

/** Bytes of lines that are sent together; one commit of more is sent in parts. */
export const BATCH_BYTES = 2 << 20;

/** Returns the position after the lines from one on, at least one, that have so many bytes together. */
export function pastOf(log: Log, from: number, count: number, bytes: number): number {
  let past = from;
  for (let sum = 0; past < count && (past === from || sum + log.length(past) <= bytes); past++) sum += log.length(past);
  return past;
}

/** What is sent: the first `count` entries of a log, in an epoch. */
export interface Sending {
  readonly log: Log;
  readonly facts: CopyFacts;
  readonly epoch: number;
  readonly count: number;
  /** Whether they are kept in packs; their facts follow. */
  readonly isLong: boolean;
  /** Number of entries whose facts are there. */
  readonly indexed: number;
}

/** Returns as many entries as are sent together after an end. */
export function batchAfter(end: FleetEnd, { log, facts, epoch, count, isLong, indexed }: Sending): FleetBatch {
  const past = pastOf(log, end.entries, count, BATCH_BYTES);
  const lines = linesOf(log, end.entries, past);
  const heads = lines.map((line, i) => headText(log.nodes, end.entries + i, line));
  const stretches = isLong ? stretchesOf(end, lines) : undefined;
  const after = stretches?.at(-1) ?? endAfter(end, lines);
  const about = { sessionId: log.header.id, epoch, before: end, after, lines, heads, isPart: past < count };
  const found = facts.between(end, after, isLong || indexed < end.entries);
  return { ...about, facts: found, ...(stretches ? { stretches } : {}) };
}

/** Returns the lines of entries. Throws storage_failed where one is damaged: no other machine is to get that. */
export function linesOf(log: Log, from: number, to: number): Uint8Array[] {
  const { losses } = log.nodes;
  const lines = [...log.readMany(Int32Array.from({ length: to - from }, (_, i) => from + i))];
  if (log.nodes.losses === losses) return lines;
  const sentence = "The session's file is damaged where entries are to go to the fleet. repair_session repairs it.";
  throw new Failure("storage_failed", sentence, { sessionPath: log.file }, { retryable: false });
}
