/** How working copies use a fleet. */

import type { Fleet } from "../../core/ports/fleet.ts";
import type { Log } from "../../core/ports/store.ts";
import type { Journal } from "./journal.ts";
import type { Outage } from "./outage.ts";

export interface FleetOptions {
  readonly fleet: Fleet;
  /** Milliseconds for which a session can be relied on after the fleet answered; its lease is longer. */
  readonly trustedFor: number;
  /** Milliseconds after which it is asked again what others wrote, at least: the longer nothing happens, the later. */
  readonly followedEvery: number;
  /** Returns the time that has passed since some moment, in milliseconds. */
  readonly elapsed: () => number;
  /** Waits before the n-th time, from 0 on, that the fleet is asked again; first was at `since`. Returns false to give up. */
  readonly patience: (tries: number, since: number) => Promise<boolean>;
  /** Keeps lines that were refused, or gave way. Returns their path. */
  readonly quarantineEntries: (log: Log, lines: readonly Uint8Array[]) => string;
  readonly journal: Journal;
  /** Bytes of lines beyond which a commit is kept in packs, and its facts follow behind it. */
  readonly long?: number;
  /** Bytes of lines that are sent together; one commit of more is sent in parts. */
  readonly partBytes?: number;
  /** Bytes of fetched lines that are held in memory until it is known that they continue a copy. */
  readonly heldBytes?: number;
  /** With it, what is written while the database is away is acknowledged, and given to the fleet later. */
  readonly outage?: Outage;
}
