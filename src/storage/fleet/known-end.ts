/** The knowledge that one working copy has of what the fleet has of its session. */

import type { FleetEnd, FleetSession } from "../../core/ports/fleet.ts";
import type { Log } from "../../core/ports/store.ts";
import { endIn, endInTurns, isSameEnd, NOTHING, prefixIn } from "./ends.ts";
import type { LateStretch } from "./late-facts.ts";

export class KnownEnd {
  private readonly log: Log;
  /** The end up to which copy and fleet are known to have the same. */
  now: FleetEnd = NOTHING;
  /** Number of entries that the fleet was known to have: of those that it lacks later it was robbed. */
  had = 0;
  /** Number of entries whose facts the fleet has. */
  indexed = 0;

  constructor(log: Log) {
    this.log = log;
  }

  get entries(): number {
    return this.now.entries;
  }

  /** Notes an end up to which both have the same. */
  raise(end: FleetEnd): void {
    this.now = end;
    this.had = Math.max(this.had, end.entries);
  }

  /** Goes back to what was known of a log that went back, too. What the fleet had it had. */
  goBack(end: FleetEnd): void {
    this.now = end;
  }

  /** Notes that the fleet has all that can be given back to it. */
  settle(): void {
    this.had = this.now.entries;
  }

  /** Returns where facts are missing, for who has the session in an epoch. */
  lateStretch(epoch: number | null): LateStretch | null {
    const { indexed, entries } = this;
    if (epoch === null || indexed >= entries) return null;
    const added = (to: number): number => (this.indexed = Math.max(this.indexed, to));
    return { epoch, from: indexed, to: entries, added };
  }

  /** Returns the end of the first `count` entries of the copy. */
  at(count: number): FleetEnd {
    return endIn(this.log, count, this.now);
  }

  /** Returns an end of the fleet, if the copy begins with those lines. */
  prefix(there: FleetEnd): FleetEnd | null {
    return prefixIn(this.log, there, this.now);
  }

  /**
   * Returns whether the fleet has something that the copy lacks, or other lines than it. That the copy begins with all of it
   * is found out once.
   */
  async differsFrom(there: FleetEnd): Promise<boolean> {
    if (there.entries > this.log.nodes.count) return true;
    if (isSameEnd(there, this.now)) return false;
    const here = await endInTurns(this.log, there.entries, this.now);
    if (here === null || !isSameEnd(here, there)) return true;
    const { log, now } = this;
    // While something is being written, whoever writes says what is there.
    if (log.durableCount === log.nodes.count && there.entries >= now.entries) this.raise(there);
    return false;
  }

  /**
   * Whether the fleet lacks lines that it had: another server was promoted that had not got them, or an older state of the
   * database was restored. A session that is missing was deleted, unless there is another server (`hasMoved`).
   */
  isLostIn(there: FleetSession | null, hasMoved: boolean): boolean {
    return there === null ? hasMoved && this.had > 0 : there.end.entries < this.had;
  }
}
