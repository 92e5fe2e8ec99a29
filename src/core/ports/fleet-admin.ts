/** The contract of fleet administration: verification, and import and export of sessions as files. */

import type { Progress } from "./catalog.ts";
import type { FleetTally, JournaledSession } from "./fleet.ts";

/** Something that is wrong in the database. */
export interface FleetFault {
  /** Null: rows of sessions that lists do not know cannot be read. */
  readonly sessionId: string | null;
  readonly fault: "missing_rows" | "chain" | "epochs" | "header" | "heads" | "facts" | "unindexed" | "attachment";
  /** A sentence with advice. */
  readonly message: string;
}

/** A copy on this machine, compared with the fleet. */
export interface CheckedCopy {
  readonly sessionId: string;
  readonly sessionPath: string;
  /** `behind` and `ahead`: one of both has more of the same lines; `only_here`: the fleet has no such session. */
  readonly state: "same" | "behind" | "ahead" | "different" | "deleted" | "only_here" | "unreadable";
  readonly entries: number;
  /** Those that the fleet has. */
  readonly fleetEntries: number;
}

/** A session whose acknowledged entries the database lacks. */
export interface SessionLoss {
  readonly sessionId: string;
  /** The path that its copy had when the last of them was acknowledged. */
  readonly sessionPath: string;
  /** Their number; null if it is unknown. */
  readonly entries: number | null;
  /** True if there may be more of them: the copy lacks some, too, and the record does not go back so far. */
  readonly isLeast?: true;
  /** When the last entry of the session was acknowledged here, ISO 8601. */
  readonly at: string;
  /** The path of the record of that acknowledgement. */
  readonly record: string;
}

export interface FleetVerified {
  /** Sessions that were read, also those that are deleted and may be restored. */
  readonly sessions: number;
  readonly deleted: number;
  readonly entries: number;
  readonly bytes: number;
  readonly faults: readonly FleetFault[];
  readonly copies: readonly CheckedCopy[];
  readonly lacking: readonly SessionLoss[];
  /** Sessions of this machine with entries from an outage. */
  readonly journal: readonly JournaledSession[];
}

/** The result of an upload of a session's pending entries. */
export interface FleetPushed {
  readonly sessionId: string;
  readonly sessionPath: string;
  /** `branched`: after a conflict. */
  readonly outcome: "given" | "branched" | "refused";
  /** Why it was refused. */
  readonly message?: string;
  /** True if it was refused because a process writes to the session. */
  readonly isHeld?: boolean;
}

/** An imported or exported file. */
export interface FleetFile {
  readonly sessionPath: string;
  /** Null: a file, or rows of the database, of an unknown session. */
  readonly sessionId: string | null;
  /**
   * `new`: it was not there before; `continued`: a part of it was; `known`: all of it was, or more. `refused`: nothing was
   * done.
   */
  readonly outcome: "new" | "continued" | "known" | "refused";
  readonly entries: number;
  /** Digests of attachments missing from the export. */
  readonly missingAttachments?: readonly string[];
  /** Why it was refused, or a difference between file and fleet. */
  readonly message?: string;
}

/** Sessions whose facts were gathered. */
export interface FleetIndexed {
  readonly indexed: number;
  /** Sessions that another process has now, and those whose header or lines cannot be read. */
  readonly inUse: readonly string[];
  readonly unreadable: readonly string[];
}

/** Every method throws storage_failed if the database cannot be asked. */
export interface FleetAdmin {
  /** Reads every line of the fleet, and the copies of this machine. Changes nothing. */
  verify(progress?: Progress): Promise<FleetVerified>;
  /** Imports the sessions of a folder and its subfolders. Changes no file. */
  importFolder(folder: string, progress?: Progress): Promise<readonly FleetFile[]>;
  /** Writes all sessions of the fleet as files in folders of their working directories. Overwrites nothing. */
  exportTo(folder: string, progress?: Progress): Promise<readonly FleetFile[]>;
  /** Returns why the database does not answer; null if it does. */
  whyAway(): Promise<string | null>;
  readonly tally: FleetTally;
  /** Number of sessions whose last acknowledgement this process could not record, because the disk refuses it. */
  readonly unrecorded: number;
  /** Returns the sessions with entries that only this machine has, because the database was unreachable. Sends no query. */
  listPending(): readonly JournaledSession[];
  /** Returns the sessions with acknowledged entries that the database lacks. Compares chains and last lines. */
  listLosses(): Promise<readonly SessionLoss[]>;
  /**
   * Uploads entries that only this machine has: because the database was unreachable or has lost them, or because another
   * program or an exited process wrote them. Waits for leases of processes that may have exited. Sessions that the fleet does
   * not have and this machine has no record of, and unreadable copies, are reported as refused.
   */
  push(progress?: Progress): Promise<readonly FleetPushed[]>;
  /** Gathers the facts of sessions anew whose facts are missing, or cannot be read. */
  index(progress?: Progress): Promise<FleetIndexed>;
  /**
   * Adds, now and then, the facts of sessions that a process left behind. `first`: milliseconds until it looks for the
   * first time. Returns a function that ends that.
   */
  startSweep(first?: number): () => void;
}
