/** The contract of migrations between a JSONL file and Session Store V2 (seed 003). */

import type { Progress } from "./catalog.ts";
import type { TakingBack } from "./lifecycle.ts";

/** Paths of the parts of one session, which share a folder. */
export interface SessionLocation {
  readonly sessionId: string;
  readonly container: string;
  readonly staging: string;
  readonly pointer: string;
  /** The session file, while it is or was the truth; null for a session that began in V2. */
  readonly source: string | null;
}

/** A reason why a session cannot be migrated as it is. */
export interface Obstacle {
  readonly kind: string;
  readonly entryId?: string;
  readonly reason: string;
}

export interface Plan {
  readonly location: SessionLocation;
  readonly entryCount: number;
  /** Size of the session file. */
  readonly bytes: number;
  /** Format version of the session file. */
  readonly version: number;
  readonly obstacles: readonly Obstacle[];
}

export interface Verification {
  readonly entryCountMatch: boolean;
  readonly hashChainMatch: boolean;
  readonly indexConsistent: boolean;
}

/** A transition of the state machine that was made, as the contract's schema has it. */
export interface Transition {
  readonly fromState: string;
  readonly toState: string;
  readonly reason: string;
  /** Time in ISO 8601. */
  readonly at: string;
}

export interface Migrated {
  readonly location: SessionLocation;
  /** Null when there was nothing to do. */
  readonly migrationId: string | null;
  readonly correlationId: string;
  readonly state: string;
  readonly transitions: readonly Transition[];
  readonly snapshotId: string | null;
  readonly verification: Verification;
  readonly entryCount: number;
  readonly active: Status["active"];
  readonly sessionPath: string;
  /** After a rollback: entries that were appended after the migration and are in the file again. */
  readonly laterEntries: number;
  /** True if a rollback wrote the file from the container alone, because there was no snapshot. */
  readonly rebuilt: boolean;
  /** Path of a kept container that is not the session any more, or was in the way; null if none was moved. */
  readonly keptAt: string | null;
}

interface LedgerEvent {
  readonly migrationId: string;
  readonly phase: string;
  readonly at: string;
  readonly sourcePath: string;
  readonly targetPath: string;
  readonly sourceFormat: string;
  readonly targetFormat: string;
  readonly verification: Verification;
  readonly outcome: string;
  readonly errorClass?: string;
  readonly correlationId: string;
}

export interface Status {
  readonly location: SessionLocation;
  readonly active: "jsonl_v3" | "sqlite_v1" | "native_v2";
  /** One of the nine states. */
  readonly state: string;
  /** Phase of the pointer; null without one. */
  readonly phase: string | null;
  /** Path of the frozen session file; null when it does not exist. */
  readonly snapshotPath: string | null;
  readonly snapshotId: string | null;
  readonly correlationId: string | null;
  readonly reason: string | null;
  /** True if an operation was begun and not finished; migrating or rolling back again finishes it. */
  readonly interrupted: boolean;
  readonly events: readonly LedgerEvent[];
}

export interface TransitionOptions {
  /** 8 to 128 letters, digits, dots, colons, underscores and hyphens. */
  readonly correlationId?: string;
  readonly reason?: string;
  readonly progress?: Progress;
  /** The undo or redo that this is; by default it is an operation of its own. */
  readonly as?: TakingBack;
}

/** Something wrong in a container. */
export interface StoreFinding {
  /** The invariant that it breaks, or null. */
  readonly invariant: string | null;
  readonly file: string;
  readonly byteOffset: number;
  readonly length: number;
  readonly entryId?: string;
  readonly reason: string;
  /** True if the next write repairs it by itself, without loss. */
  readonly recoverable: boolean;
}

export interface StoreAudit {
  readonly ok: boolean;
  /** The result for each invariant, INV-001 to INV-007: true if it holds. */
  readonly invariants: Readonly<Record<string, boolean>>;
  readonly findings: readonly StoreFinding[];
}

export interface Migrations {
  /** Returns the changes of a migration, and the obstacles to it; writes nothing. */
  plan(path: string, progress?: Progress): Promise<Plan>;
  /** Throws migration_failed, session_locked, storage failures. */
  migrate(path: string, options: TransitionOptions): Promise<Migrated>;
  /** Throws what `migrate` throws, and already_exists. */
  rollBack(path: string, options: TransitionOptions): Promise<Migrated>;
  status(path: string): Status;
  /** Returns the path that a session has since a migration or rollback of the one at this path; else the path. */
  currentPathOf(path: string): string;
  audit(container: string, progress?: Progress): Promise<StoreAudit>;
}
