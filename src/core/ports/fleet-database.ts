/** The contract of a fleet's database as its operator asks it: its state and figures, its tables, and removal of rows. */

import type { Progress } from "./catalog.ts";
import type { Holder } from "./lock.ts";

/** Sizes of the sessions of one tenant. */
interface TenantSize {
  /** Empty: those that are in no tenant. */
  readonly tenant: string;
  readonly sessions: number;
  readonly entries: number;
  readonly bytes: number;
}

interface LargeSession {
  readonly tenant: string;
  readonly sessionId: string;
  readonly entries: number;
  readonly bytes: number;
}

/** Counts and sizes of a fleet. */
export interface FleetStatus {
  readonly server: string;
  readonly durability: "replicated" | "primary";
  readonly schemaVersion: number;
  readonly sessions: number;
  readonly entries: number;
  readonly bytes: number;
  /** Sessions that a process has now. */
  readonly held: number;
  /** Sessions that a process has taken and not let go of, at most 50: first those with a writer, then the latest. */
  readonly writers: readonly SessionWriter[];
  /** Bytes of the tables on the database's disk, for all tenants together. */
  readonly storedBytes: number;
  /** The tenant whose sessions these are; empty for the one without a name. */
  readonly tenant: string;
  /** The tenants with sessions, and the largest sessions: of the URL's tenant, or of all without one. */
  readonly tenants: readonly TenantSize[];
  readonly largest: readonly LargeSession[];
  /** True if the server cancels abandoned statements; null: it does not say. */
  readonly endsAbandoned: boolean | null;
  /** Connected standbys, and those that commits wait for; null: the role may not see them. */
  readonly standbys: { readonly all: number; readonly synchronous: number } | null;
}

/** A session, and the process that took it last and has not let go of it. */
export interface SessionWriter {
  readonly sessionId: string;
  /** Its name, or what the user said first; null if neither is known. */
  readonly name: string | null;
  /** True if the process has its lease; else another one may take the session. */
  readonly leased: boolean;
  readonly client: string;
  readonly host: string;
  /** When the process began, ISO 8601. */
  readonly since: string;
}

/** One figure, with the labels that distinguish it from others of its name. */
export interface MetricSample {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Figures of one name. All of them may rise and fall. */
export interface FleetMetric {
  readonly name: string;
  readonly help: string;
  readonly samples: readonly MetricSample[];
}

/** Figures of the database and of this machine. */
export interface MeasuredFleet {
  /** Why the figures of the database are missing; null if they are there. */
  readonly away: string | null;
  readonly metrics: readonly FleetMetric[];
}

/** Minimum ages for removal in milliseconds, by the database's clock. */
export interface PruningAges {
  /** Since deletion, or since the last change of an unfinished session. */
  readonly rows: number;
  /** Idle sessions to delete; undefined: none. */
  readonly idle?: IdleChoice;
}

/** Sessions that were not written to for long and have no owner now. */
export interface IdleChoice {
  /** Milliseconds since the last change. */
  readonly age: number;
  /** True if they may be archived; true if they may have a name. */
  readonly archived: boolean;
  readonly named: boolean;
  /** Sessions with entries that only this machine has; they stay. */
  readonly pendingIds: readonly string[];
}

/** A session that was not written to for long. */
interface IdleSession {
  readonly sessionId: string;
  readonly name: string | null;
  /** ISO 8601. */
  readonly changedAt: string;
  readonly entries: number;
  readonly bytes: number;
}

/** A deleted session whose rows may go. */
interface PrunableSession {
  readonly sessionId: string;
  readonly name: string | null;
  /** ISO 8601. */
  readonly deletedAt: string;
  readonly entries: number;
  readonly bytes: number;
}

/** The things that may go, or went. */
export interface Prunable {
  /** Deleted sessions with rows, their entries, and the bytes of these. */
  readonly sessions: number;
  readonly entries: number;
  readonly bytes: number;
  /** Sessions that were begun, and whose first lines never came as a whole. */
  readonly unfinished: number;
  /** Sessions with rows that an earlier removal left. */
  readonly halfway: number;
  /** Sessions without an owner that have invisible parts of an unfinished long commit. */
  readonly interrupted: number;
  /** Words that may be in no text any more. */
  readonly words: number;
  /** Attachments that no session names. */
  readonly attachments: number;
  /** Idle sessions, and those of them with a name and in the archive; they would be deleted. */
  readonly idle: number;
  readonly idleBytes: number;
  readonly idleNamed: number;
  readonly idleArchived: number;
}

/** The things that may go, with the first of the sessions among them. */
export interface FoundPrunable extends Prunable {
  readonly named: readonly PrunableSession[];
  readonly idleSessions: readonly IdleSession[];
}

/** The removed data, with those of the first listed sessions that were removed. */
export interface PrunedFleet extends FoundPrunable {
  /** Rows with lines, texts and sums that were removed. */
  readonly rows: number;
}

/** The same with the sums of removable data, if the tables have the version of this program. */
export interface DatabaseStatus extends FleetStatus {
  readonly deleted?: Omit<Prunable, "idle" | "idleBytes" | "idleNamed" | "idleArchived">;
}

/** Every method but `metrics` throws storage_failed if the database cannot be asked. */
export interface FleetDatabase {
  /** The address without its password. */
  readonly shown: string;
  /** The tenant that the address names; empty for the first. */
  readonly tenant: string;
  status(): Promise<DatabaseStatus>;
  /** Returns figures as of `now`, in milliseconds since 1970. */
  metrics(now: number): Promise<MeasuredFleet>;
  /**
   * Makes the tables. `before`: their version, 0 for none. If they are missing, and this machine knows a store at the
   * address, `confirm` is called first, with advice to forget that store; the tables are not made if it rejects.
   */
  migrate(
    confirm: (known: { readonly store: string; readonly remedy: string }) => Promise<void>,
  ): Promise<{ readonly before: number }>;
  /** Throws storage_failed unless the tables are there, in the version of this program. */
  requireTables(): Promise<void>;
  /** Returns the removable data, with the sessions that were deleted, or written to, first. */
  findPrunable(ages: PruningAges): Promise<FoundPrunable>;
  /** Removes what `findPrunable` reports. Rows whose removal got no answer are not counted; the next prune removes them. */
  prune(ages: PruningAges, progress?: Progress): Promise<PrunedFleet>;
  /** Returns the sessions with entries that only this machine has. Throws storage_failed for an unreadable note. */
  listPendingIds(): readonly string[];
  /**
   * Takes a session, by its id or the beginning of one, from its owner, which lives or hangs. Returns the owner; null if
   * there was none. Throws session_not_found, ambiguous_id.
   */
  takeAway(beginning: string): Promise<{ readonly sessionId: string; readonly holder: Holder | null }>;
  /** Ends the connections. */
  close(): Promise<void>;
}
