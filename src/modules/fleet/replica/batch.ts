/** The statements of a commit, in their order, with the lines of a working copy as they are sent to the fleet. */

import { Failure } from "../../../core/failure.ts";
import type { FleetAttachment, FleetBatch, FleetEnd } from "../../../core/ports/fleet.ts";
import type { Log } from "../../../core/ports/store.ts";
import type { ReplicatedLog } from "../../../storage/log/replica.ts";
import { findPositionAfter } from "../postgres/ends.ts";
import { makeHeadText } from "../postgres/heads.ts";
import { computeStretches } from "../postgres/pack.ts";
import { listNamedAttachments } from "./attachments.ts";
import type { CommitStep, KeptParts, RunningCommit } from "./commit.ts";
import type { CopyFacts } from "./facts.ts";
import type { FleetOptions } from "./options.ts";

/** Bytes of lines that are sent together; one commit of more is sent in parts. */
const PART_BYTES = 2 << 20;

/** Bytes beyond which a first commit is long: an agent's first commit has a message or two, a larger one is an import. */
const LONG_AT_FIRST = 256 << 10;

/** Returns whether lines that are committed together, from one on, are kept in packs. */
export function isLong(
  log: Log,
  from: number,
  count: number,
  { long, partBytes = PART_BYTES }: Pick<FleetOptions, "long" | "partBytes">,
): boolean {
  const most = Math.min(long ?? (from === 0 ? LONG_AT_FIRST : PART_BYTES), partBytes);
  return findPositionAfter(log, from, count, most) < count;
}

/** A log whose lines are sent. */
interface Sending {
  readonly log: ReplicatedLog;
  readonly facts: CopyFacts;
  /** True if the fleet has the facts of all earlier entries. */
  readonly isIndexed: boolean;
  /** See FleetOptions. */
  readonly partBytes: number | undefined;
}

/** Lines as a statement has them. */
type SentLines = Pick<FleetBatch, "after" | "lines" | "heads"> & {
  readonly stretches: readonly FleetEnd[];
  readonly attachments: readonly FleetAttachment[];
};

/**
 * Returns the next statement of a commit after an end of the session: all the rest if it is small, else a part, and
 * finally the one that shows the parts. A long commit has only the facts that lists need.
 */
export function prepareStep(
  from: Sending,
  end: FleetEnd,
  commit: RunningCommit,
  epoch: number,
  kept: KeptParts | undefined,
): CommitStep {
  const { log, facts, isIndexed } = from;
  const { count, isLong } = commit;
  const about = { sessionId: log.header.id, epoch, before: end };
  const start = kept?.stretches.at(-1) ?? end;
  if (kept && start.entries >= count) {
    const { place, stretches, attachments } = kept;
    const shown = { after: start, lines: [], heads: [], stretches, place, attachments: [...attachments.values()] };
    return { batch: { ...about, ...shown, facts: facts.between(end, start, true) } };
  }
  const { attachments, stretches, ...sent } = linesAfter(from, start, count);
  const { after } = sent;
  if (!kept && after.entries === count) {
    const packed = isLong ? { stretches } : {};
    return {
      batch: { ...about, ...sent, ...packed, attachments, facts: facts.between(end, after, isLong || !isIndexed) },
    };
  }
  // They are gathered now, so that the last statement need not go through all entries at once.
  facts.between(start, after, true);
  const { lines, heads } = sent;
  const place = kept?.place ?? epoch;
  const all = new Map([...(kept?.attachments ?? []), ...attachments.map((one) => [one.sha256, one] as const)]);
  return {
    part: { ...about, place, from: start, lines, heads, stretches },
    kept: { before: end, place, stretches: [...(kept?.stretches ?? []), ...stretches], attachments: all },
  };
}

/** Returns the lines after an end that are sent together, of the first `count`. */
function linesAfter({ log, partBytes = PART_BYTES }: Sending, start: FleetEnd, count: number): SentLines {
  const past = findPositionAfter(log, start.entries, count, partBytes);
  const lines = readUploadLines(log, start.entries, past);
  const stretches = computeStretches(start, lines);
  const heads = lines.map((_, i) => makeHeadText(log.nodes, start.entries + i));
  return { after: stretches.at(-1) ?? start, lines, heads, stretches, attachments: listNamedAttachments(log, lines) };
}

/** Returns the lines of entries. Throws storage_failed if one is damaged: damage is not uploaded. */
export function readUploadLines(log: Log, from: number, to: number): Uint8Array[] {
  const { losses } = log.nodes;
  const lines = [...log.readMany(Int32Array.from({ length: to - from }, (_, i) => from + i))];
  if (log.nodes.losses === losses) return lines;
  const sentence = "The session's file is damaged where entries are to go to the fleet. repair_session repairs it.";
  throw new Failure("storage_failed", sentence, { sessionPath: log.file }, { retryable: false });
}
