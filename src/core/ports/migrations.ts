/** A session on its way between a JSONL file and Session Store V2: what the stores offer for it (seed 003). */

import type { Progress } from "./catalog.ts";

/** Where the parts of one session lie, which share a folder. */
export interface Site {
  readonly sessionId: string;
  readonly container: string;
  readonly staging: string;
  readonly pointer: string;
  /** The session file, while it is or was the truth; null for a session that began in V2. */
  readonly source: string | null;
}

/** Why a session cannot be migrated as it is. */
export interface Obstacle {
  readonly kind: string;
  readonly entryId?: string;
  readonly reason: string;
}

export interface Plan {
  readonly site: Site;
  readonly entryCount: number;
  /** Of the session file. */
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

export interface Moved {
  readonly site: Site;
  /** Null when nothing was to be done. */
  readonly migrationId: string | null;
  readonly correlationId: string;
  readonly state: string;
  /** The moves of the state machine that led there. */
  readonly transitions: readonly {
    readonly fromState: string;
    readonly toState: string;
    readonly reason: string;
    readonly at: string;
  }[];
  readonly snapshotId: string | null;
  readonly verification: Verification;
  readonly entryCount: number;
  /** Which store has the session now. */
  readonly active: Status["active"];
  /** Where the session is now. */
  readonly sessionPath: string;
  /** Of a rollback: entries that were appended after the migration and are in the file again. */
  readonly laterEntries: number;
  /** Of a rollback: there was no snapshot, so that the file was written from the container alone. */
  readonly rebuilt: boolean;
  /** Of a rollback: where the container is kept. */
  readonly keptAt: string | null;
}

/** A line of the migration ledger. */
export interface LedgerEvent {
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
  readonly site: Site;
  readonly active: "jsonl_v3" | "sqlite_v1" | "native_v2";
  /** One of the nine states. */
  readonly state: string;
  /** Of the pointer; null without one. */
  readonly phase: string | null;
  /** The session file as it was frozen; null when there is none. */
  readonly snapshotPath: string | null;
  readonly snapshotId: string | null;
  readonly correlationId: string | null;
  readonly reason: string | null;
  /** Something was begun and not brought to its end; migrating or rolling back again does. */
  readonly interrupted: boolean;
  readonly events: readonly LedgerEvent[];
}

export interface Wishes {
  /** 8 to 128 letters, digits, dots, colons, underscores and hyphens. */
  readonly correlationId?: string;
  /** Of a rollback. */
  readonly reason?: string;
  readonly progress?: Progress;
}

/** Something wrong in a container. */
export interface StoreFinding {
  /** The invariant that it breaks; null for what breaks none. */
  readonly invariant: string | null;
  /** In the container. */
  readonly file: string;
  readonly byteOffset: number;
  readonly length: number;
  readonly entryId?: string;
  readonly reason: string;
  /** The next write mends it by itself; nothing is lost. */
  readonly recoverable: boolean;
}

export interface StoreAudit {
  readonly ok: boolean;
  /** INV-001 to INV-007. */
  readonly invariants: Readonly<Record<string, boolean>>;
  readonly findings: readonly StoreFinding[];
}

export interface Migrations {
  /** What a migration would do, and what stands against it; writes nothing. */
  plan(path: string, progress?: Progress): Promise<Plan>;
  /** Throws migration_failed, session_locked, storage failures. */
  migrate(path: string, wishes: Wishes): Promise<Moved>;
  /** Throws the same, and already_exists. */
  rollBack(path: string, wishes: Wishes): Promise<Moved>;
  status(path: string): Status;
  /** Where the session stands now that had this path before it was migrated or rolled back; else the path itself. */
  standsAt(path: string): string;
  /** Every byte of a container, held against the rules of the store. */
  audit(container: string, progress?: Progress): Promise<StoreAudit>;
}
