/** Options of working copies of a fleet. */

import type { Fleet } from "../../../core/ports/fleet.ts";
import type { Log } from "../../../core/ports/store.ts";
import type { Journal } from "./journal.ts";
import type { Outage } from "./outage.ts";

export interface FleetOptions {
  readonly fleet: Fleet;
  /** Milliseconds after an answer of the fleet for which a lease is relied on; it lasts longer. */
  readonly trustedFor: number;
  /** Minimum milliseconds between two questions for entries of others; it grows while nothing happens. */
  readonly followedEvery: number;
  /** Returns the time that has passed since some moment, in milliseconds. */
  readonly elapsed: () => number;
  /**
   * Waits before the n-th repetition of a question, from 0 on; the first was at `since`. Returns false to stop. `isInDoubt`:
   * something was sent, and got no answer.
   */
  readonly patience: (tries: number, since: number, isInDoubt: boolean) => Promise<boolean>;
  /** Quarantines lines that were refused or are in conflict. Returns their path. */
  readonly quarantineEntries: (log: Log, lines: readonly Uint8Array[]) => string;
  readonly journal: Journal;
  /** Bytes of lines beyond which a commit is kept in packs, and its facts follow behind it. */
  readonly long?: number;
  /** Bytes of lines that are sent together; one commit of more is sent in parts. */
  readonly partBytes?: number;
  /** Bytes of fetched lines that are held in memory until it is known that they continue a copy. */
  readonly heldBytes?: number;
  /** With it, writes during an outage are acknowledged, and uploaded later. */
  readonly outage?: Outage;
}
