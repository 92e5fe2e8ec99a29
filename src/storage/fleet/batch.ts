/** The lines of a working copy as they are sent to the fleet. */

import { Failure } from "../../core/failure.ts";
import type { FleetBatch, FleetEnd } from "../../core/ports/fleet.ts";
import type { Log } from "../../core/ports/store.ts";
import { endAfter } from "./ends.ts";
import type { CopyFacts } from "./facts.ts";
import { headText } from "./heads.ts";

/** Bytes of lines that are sent together; one commit of more is sent in parts. */
const BATCH_BYTES = 2 << 20;

/** Returns as many of the first `count` entries of a log as are sent together after an end, with their facts. */
export function batchAfter(end: FleetEnd, count: number, epoch: number, log: Log, facts: CopyFacts): FleetBatch {
  const { nodes } = log;
  let past = end.entries;
  for (let bytes = 0; past < count && (past === end.entries || bytes + log.length(past) <= BATCH_BYTES); past++)
    bytes += log.length(past);
  const lines = linesOf(log, end.entries, past);
  const heads = lines.map((_, i) => headText(nodes, end.entries + i));
  const after = endAfter(end, lines);
  const { id } = log.header;
  const isPart = past < count;
  return { sessionId: id, epoch, before: end, after, lines, heads, isPart, facts: facts.between(end, after) };
}

/** Returns the lines of entries. Throws storage_failed where one is damaged: no other machine is to get that. */
export function linesOf(log: Log, from: number, to: number): Uint8Array[] {
  const { losses } = log.nodes;
  const lines = [...log.readMany(Int32Array.from({ length: to - from }, (_, i) => from + i))];
  if (log.nodes.losses === losses) return lines;
  const sentence = "The session's file is damaged where entries are to go to the fleet. repair_session repairs it.";
  throw new Failure("storage_failed", sentence, { sessionPath: log.file }, { retryable: false });
}
