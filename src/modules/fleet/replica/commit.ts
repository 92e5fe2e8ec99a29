/** A running commit: its sent parts, and the meaning of a failure. */

import type { FleetAttachment, FleetBatch, FleetEnd, FleetPart } from "../../../core/ports/fleet.ts";
import { isSameEnd } from "../postgres/ends.ts";
import { makeUnknownFailure } from "../postgres/failures.ts";

/** Maximum attempts of a commit if the fleet answers each with a conflict. */
const MOST_TRIES = 20;

/** The parts of a commit that the fleet has stored, still invisible. */
export interface KeptParts {
  /** The end of the session that they continue. */
  readonly before: FleetEnd;
  /** Epoch of the first part. */
  readonly place: number;
  /** Ends of the stretches into which the lines are packed. */
  readonly stretches: readonly FleetEnd[];
  /** The attachments that they name, by digest. */
  readonly attachments: ReadonlyMap<string, FleetAttachment>;
}

/**
 * The next statement of a commit: a part with the parts stored after it, or the final one, which makes the lines visible.
 */
export type CommitStep =
  | { readonly part: FleetPart; readonly kept: KeptParts }
  | { readonly part?: undefined; readonly batch: FleetBatch };

export class RunningCommit {
  /** Number of entries that were there before it. */
  readonly first: number;
  /** Number of entries that it will have. */
  readonly count: number;
  /** True if its lines are stored in packs. */
  readonly isLong: boolean;
  /** Reason why the outcome is unknown: visible lines were sent, and no answer came. */
  doubt: string | undefined;
  /** True after a conflict: the fleet may lack earlier lines, until copy and fleet were compared. */
  isOvertaken = false;
  private parts: KeptParts | undefined;
  private next: CommitStep | undefined;
  /** Steps without progress. */
  private tries = 0;
  /** Entries that the fleet had after the last step, and at most. */
  private last = -1;
  private most = -1;

  constructor(first: number, count: number, isLong: boolean) {
    this.first = first;
    this.count = count;
    this.isLong = isLong;
  }

  /** Notes that the fleet keeps parts. */
  keep(parts: KeptParts): void {
    this.parts = parts;
  }

  /** Returns the parts that the fleet keeps after an end of the session. */
  keptAfter(end: FleetEnd): KeptParts | undefined {
    return this.parts && isSameEnd(this.parts.before, end) ? this.parts : undefined;
  }

  /** Discards the stored parts, which another owner may have removed: all are sent again, to another place. */
  beginAgain(): void {
    this.parts = undefined;
  }

  /** Returns the number of its entries in the fleet, visible or not; `end`: the session's end. */
  reached(end: FleetEnd): number {
    return this.keptAfter(end)?.stretches.at(-1)?.entries ?? end.entries;
  }

  /**
   * Records an attempt that left the session at an end. Returns whether the limit is reached. Parts that are sent again
   * after `beginAgain` do not count, so that the commit gets as far as before.
   */
  noteTry(end: FleetEnd): boolean {
    const reached = this.reached(end);
    if (reached > this.most) this.tries = 0;
    else if (reached <= this.last) this.tries++;
    this.last = reached;
    this.most = Math.max(this.most, reached);
    return end.entries < this.count && this.tries >= MOST_TRIES;
  }

  /** Puts the part together that comes after the one that is being sent. Returns it, if there is one. */
  prepare({ stretches }: KeptParts, make: () => CommitStep): CommitStep | undefined {
    if (stretches.at(-1)?.entries === this.count) return undefined;
    try {
      this.next = make();
    } catch {
      // It fails again when it is its turn.
    }
    return this.next;
  }

  /** Returns the step after an end of the session, if it was put together for this epoch. */
  prepared(end: FleetEnd, epoch: number): CommitStep | undefined {
    const { next } = this;
    this.next = undefined;
    if (!next?.part || next.part.epoch !== epoch || !isSameEnd(next.part.before, end)) return undefined;
    const kept = this.keptAfter(end);
    return kept?.place === next.part.place && kept.stretches.at(-1) === next.part.from ? next : undefined;
  }

  /** Returns the failure for the callers: outcome_unknown if a part of the commit may be there. */
  doubted(error: unknown, end: FleetEnd): unknown {
    const { doubt, first } = this;
    if (doubt !== undefined) return makeUnknownFailure(`It is unknown whether the fleet has it (${doubt}).`, error);
    if (end.entries > first)
      return makeUnknownFailure("The fleet has it, or a part of it, and this machine has not.", error);
    return error;
  }
}
