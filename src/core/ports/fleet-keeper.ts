/** The contract of what is done to whole sessions of a fleet: how they are kept, checked, and brought in and out. */

import type { FleetDescription, FleetEnd, FleetFacts } from "./fleet.ts";

/** How a session is kept from now on. */
export type Kept =
  | { readonly as: "there"; readonly archived: boolean }
  /** Only `restore` brings it back. */
  | { readonly as: "deleted" }
  /** Its lines are removed for good; its id stays taken, so that no epoch falls. */
  | { readonly as: "gone" }
  /** There, not archived, and with another header, which is not among the lines. */
  | { readonly as: "changed"; readonly headerLine: Uint8Array; readonly description: FleetDescription };

/** A session of the fleet, as it is checked. */
export interface FleetRow {
  readonly id: string;
  readonly headerLine: Uint8Array;
  readonly end: FleetEnd;
  readonly state: "filling" | "there" | "deleted";
  /** Number of entries whose facts are known; it differs from `end` where an older program wrote. */
  readonly indexed: number;
  /** Number of rows with lines, whether one is missing between them, and the highest epoch of one. */
  readonly rows: number;
  readonly hasGap: boolean;
  readonly highestEpoch: number;
  readonly epochsFall: boolean;
  readonly epoch: number;
}

/** Every method throws storage_failed where the database cannot be asked. */
export interface FleetKeeper {
  /** Changes how a session is kept that this process has in this epoch, and lets go of it. Returns whether it was done. */
  keep(sessionId: string, epoch: number, kept: Kept): Promise<boolean>;
  /** Brings a deleted session back. Returns whether there was one that has its lines. */
  restore(sessionId: string, archived: boolean): Promise<boolean>;
  /** Returns the end that a deleted session had whose lines were removed; null where there is none. */
  removedEnd(sessionId: string): Promise<FleetEnd | null>;
  /** Has a deleted session whose lines were removed begin again, without lines. Returns whether there was one. */
  beginAgain(sessionId: string, headerLine: Uint8Array, archived: boolean): Promise<boolean>;
  /** Yields the sessions with their rows, by their ids; only the deleted ones where these are asked for. */
  rows(): AsyncIterable<FleetRow>;
  /** Removes the facts of a session that this process has in this epoch. Returns whether it was done. */
  forgetFacts(sessionId: string, epoch: number): Promise<boolean>;
  /** Adds facts of entries to such a session, of which `indexed` have them then. Returns whether it was done. */
  addFacts(sessionId: string, epoch: number, facts: FleetFacts, indexed: number): Promise<boolean>;
  /** Has the database look at what was added in bulk, so that it finds it fast from now on. */
  settle(): Promise<void>;
}
