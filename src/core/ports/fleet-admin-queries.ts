/** The contract of queries on whole sessions of a fleet, for life cycle, verification, import and export. */

import type { FleetDescription, FleetEnd, FleetFacts } from "./fleet.ts";
import type { Holder } from "./lock.ts";

/** The state that a session gets. */
export type SessionDisposition =
  | { readonly as: "there"; readonly archived: boolean }
  /** Only `restore` restores it. */
  | { readonly as: "deleted" }
  /** Its lines are removed for good; its id stays taken, so that no epoch falls. */
  | { readonly as: "gone" }
  /** There, with another header, which is not among the lines. */
  | {
      readonly as: "changed";
      readonly archived: boolean;
      readonly headerLine: Uint8Array;
      readonly description: FleetDescription;
    };

/** A session of the fleet by its own row. */
export interface FleetRow {
  readonly id: string;
  readonly headerLine: Uint8Array;
  readonly end: FleetEnd;
  readonly state: "filling" | "there" | "deleted";
  /** True if the lines of a deleted one were removed for good. */
  readonly isRemoved: boolean;
  /** Number of entries whose facts are known; it differs from `end` while facts are being added, or after damage. */
  readonly indexed: number;
  readonly epoch: number;
}

/** A deleted session whose lines the database still has. */
export interface DeletedSession {
  readonly id: string;
  readonly headerLine: Uint8Array;
  /** ISO 8601. */
  readonly deletedAt: string;
  readonly bytes: number;
  readonly messages: number;
  readonly name: string | null;
  readonly firstMessage: string | null;
}

/**
 * Called once with the id of each session whose row cannot be read, and once with null for unreadable rows of sessions that
 * lists may not know.
 */
export type OnUnreadable = (sessionId: string | null) => void;

/** A session of the fleet with the state of its other rows at the same time. */
export interface CheckedRow extends FleetRow {
  /** True if missing facts are recorded as such; another process adds them. */
  readonly isBehind: boolean;
  /** True if words of texts were left out by choice. */
  readonly isWordless: boolean;
  /** True if such words are to be gathered. */
  readonly isMissingWords: boolean;
  /** The text of the facts for lists; null if they are missing. */
  readonly facts: string | null;
  /** Number of lines in rows, whether one is missing between them, and the highest epoch of one. */
  readonly rows: number;
  readonly hasGap: boolean;
  readonly highestEpoch: number;
  readonly epochsFall: boolean;
}

/** A session with entries whose texts and spendings are missing. */
export interface BehindSession {
  readonly id: string;
  readonly headerLine: Uint8Array;
  readonly end: FleetEnd;
  readonly epoch: number;
  /** Number of entries that have them. */
  readonly indexed: number;
  /** True if words of texts were left out by choice. */
  readonly isWordless?: boolean;
}

/** Every method throws storage_failed if the database cannot be asked. */
export interface AdminQueries {
  /** Changes the state of a session that this process has in this epoch, and releases it. Returns whether it was done. */
  keep(sessionId: string, epoch: number, kept: SessionDisposition): Promise<boolean>;
  /**
   * Takes a session from its owner, which lives or hangs, so that any process can take it at once. The owner is refused like
   * any that lost its lease. Returns the owner; null if there was no owner. Throws session_not_found.
   */
  takeAway(sessionId: string): Promise<Holder | null>;
  /** Restores a deleted session. Returns whether it exists and has its lines. */
  restore(sessionId: string): Promise<boolean>;
  /** Returns the deleted sessions with lines that were deleted last, at most so many. */
  deleted(most: number): Promise<readonly DeletedSession[]>;
  /** Returns the ids of deleted sessions with lines that begin so, at most so many. */
  deletedIdsBeginning(beginning: string, most: number): Promise<readonly string[]>;
  /**
   * Returns the former end of a deleted session whose lines were removed, or the empty end of one that was begun and got no
   * lines; else null.
   */
  removedEnd(sessionId: string): Promise<FleetEnd | null>;
  /**
   * Begins such a session again, without lines, if `had` is still its end. Returns whether it exists. This process then has
   * the lease, so that it sends the lines: a copy that lacks some would begin the session with its own.
   */
  beginAgain(sessionId: string, headerLine: Uint8Array, had: FleetEnd): Promise<boolean>;
  /**
   * Yields the sessions by id. Only their own rows are read, so that damage elsewhere does not matter. `unread` is called
   * for unreadable rows; without it, these end the reading.
   */
  rows(unread?: OnUnreadable): AsyncIterable<FleetRow>;
  /** Returns those with some ids. */
  rowsOf(sessionIds: readonly string[]): Promise<readonly FleetRow[]>;
  /** Returns a row; null if it does not exist. */
  row(sessionId: string): Promise<FleetRow | null>;
  /** Returns a row with the state of its other rows; null if it does not exist. */
  checked(sessionId: string): Promise<CheckedRow | null>;
  /** Removes the facts of a session that this process has in this epoch. Returns whether it was done. */
  forgetFacts(sessionId: string, epoch: number): Promise<boolean>;
  /** Changes what lists show of such a session. Returns whether it was done. */
  describe(sessionId: string, epoch: number, facts: Pick<FleetFacts, "counts" | "description">): Promise<boolean>;
  /** Returns a session with missing facts that no process is adding, and reserves it for a while; null without one. */
  claimBehind(): Promise<BehindSession | null>;
  /** Analyses the tables after a bulk import, so that queries on them are fast. */
  settle(): Promise<void>;
}
