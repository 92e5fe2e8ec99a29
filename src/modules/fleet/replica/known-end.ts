/** The end of a session in the fleet, as one working copy knows it. */

import type { Failure } from "../../../core/failure.ts";
import type { Fleet, FleetEnd, FleetSession } from "../../../core/ports/fleet.ts";
import type { ReplicatedLog } from "../../../storage/log/replica.ts";
import { computeEnd, computeEndInTurns, findPrefix, isSameEnd, NOTHING } from "../postgres/ends.ts";
import type { LateStretch } from "./late-facts.ts";
import type { Lease } from "./lease.ts";

/**
 * Bytes of a copy that are compared with the fleet before it is opened: 3 ms. More is compared while the session is open.
 */
export const COMPARED_FIRST = 1 << 20;

export class KnownEnd {
  private readonly log: ReplicatedLog;
  /** The common end of copy and fleet. */
  now: FleetEnd = NOTHING;
  /** Number of entries that the fleet was known to have: of those that it lacks later it was robbed. */
  had: number;
  /** An end of the fleet in conflict with the copy's first `count` entries. `left`: why it cannot be resolved. */
  private other: { readonly end: FleetEnd; readonly count: number; readonly left?: Failure } | undefined;
  /** Number of entries whose facts the fleet has. */
  indexed = 0;
  /** Durability of the last committed entries, if it is known. */
  durability: "replicated" | "primary" | undefined;
  /** True if the fleet was seen to have the beginning of the copy; otherwise it may be of another session. */
  private isCompared = false;
  /** Number of entries that were there when the copy was opened. */
  private readonly opened: number;

  /** `had`: number of entries in the fleet by this machine's record. */
  constructor(log: ReplicatedLog, had: number) {
    this.log = log;
    this.had = had;
    this.opened = log.nodes.count;
  }

  /**
   * True if entries of the copy beyond the fleet's may be pending. Older entries that were never compared may be
   * unacknowledged; later ones, such as an agent's turns, were acknowledged here.
   */
  get mayBePending(): boolean {
    return this.isCompared || this.log.durableCount > this.opened;
  }

  get entries(): number {
    return this.now.entries;
  }

  /** Number of entries that both surely have, as far as it is known without asking. */
  get firstUnsent(): number {
    return Math.max(this.entries, this.had > 0 ? Math.min(this.had, this.opened) : this.opened);
  }

  /** Records a common end. */
  raise(end: FleetEnd): void {
    this.now = end;
    this.had = Math.max(this.had, end.entries);
    this.isCompared = true;
  }

  /** Restores the common end after the log was rolled back. `had` stays. */
  goBack(end: FleetEnd): void {
    this.now = end;
  }

  /** Records that the fleet has all entries that can be uploaded again. */
  settle(): void {
    this.had = this.now.entries;
  }

  /**
   * True if other programs wrote entries to the file that the fleet is not known to have, while this process is the
   * local writer. Entries that wait for a commit are uploaded with it.
   */
  get isAhead(): boolean {
    const { log, entries } = this;
    const isResting = log.lock.isHeld && log.readOnly === null && log.durableCount === log.nodes.count;
    return isResting && entries < log.durableCount;
  }

  /** Returns the stretch with missing facts, for the lease's owner. */
  lateStretch(lease: Lease): LateStretch | null {
    const { indexed, entries } = this;
    const { epoch } = lease;
    if (epoch === null || indexed >= entries) return null;
    const added = (to: number): number => (this.indexed = Math.max(this.indexed, to));
    return { epoch, from: indexed, to: entries, added, doubted: () => lease.letGo(epoch) };
  }

  /** Returns the end of the first `count` entries of the copy. */
  at(count: number): FleetEnd {
    return computeEnd(this.log, count, this.now);
  }

  /** Returns an end of the fleet, if the copy begins with those lines. */
  prefix(there: FleetEnd): FleetEnd | null {
    return findPrefix(this.log, there, this.now);
  }

  /**
   * Returns whether the fleet has entries that the copy lacks, or is in a resolvable conflict with it. A conflict is found
   * once. `most`: maximum bytes to compare; returns false for more.
   */
  async differsFrom(there: FleetEnd, most = Number.POSITIVE_INFINITY): Promise<boolean> {
    const { log, other } = this;
    const { count } = log.nodes;
    if (other?.count === count && isSameEnd(other.end, there)) return other.left === undefined;
    if (there.entries > count) return true;
    if (isSameEnd(there, this.now) || there.bytes - this.now.bytes > most) return false;
    const here = await computeEndInTurns(log, there.entries, this.now);
    if (here === null || !isSameEnd(here, there)) {
      this.other = { end: there, count };
      return true;
    }
    // During a write, the writer knows the end.
    if (log.durableCount === log.nodes.count && there.entries >= this.entries) this.raise(there);
    return false;
  }

  /** Records why a conflict with the fleet cannot be resolved, so that no caller tries before either side changes. */
  leave(there: FleetEnd, left: Failure): void {
    this.other = { end: there, count: this.log.nodes.count, left };
  }

  /** Returns why a conflict of the present copy with this end of the fleet cannot be resolved. */
  leftTo(there: FleetEnd): Failure | undefined {
    const { other, log } = this;
    return other?.count === log.nodes.count && isSameEnd(other.end, there) ? other.left : undefined;
  }

  /** Returns whether a conflict with this end cannot be resolved. */
  isLeftTo(there: FleetSession | null): boolean {
    return there !== null && this.leftTo(there.end) !== undefined;
  }

  /**
   * Returns whether the fleet lost lines that it had: a standby without them was promoted, or an older state of the
   * database was restored. An unresolvable conflict, as with another session of the same id, is no loss.
   */
  isLostIn(there: FleetSession | null, fleet: Pick<Fleet, "isMissing">): boolean | Promise<boolean> {
    if (this.log.readOnly) return false;
    if (there !== null) return there.end.entries < this.had && !this.isLeftTo(there);
    return this.had > 0 && fleet.isMissing(this.log.header.id);
  }
}
