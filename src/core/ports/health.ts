/** The contract of health: the state of a machine and its sessions, and the safe repairs. */

import type { Progress, UnreadFile } from "./catalog.ts";
import type { LeftoverKind } from "./leftovers.ts";
import type { Holder } from "./lock.ts";

/** The oldest version of Node that is supported. A test checks that package.json has the same. */
export const OLDEST_NODE = "20.19";

/** A program that keeps sessions in files. */
export type Agent = "pi" | "pi_agent_rust";

/** A folder of sessions that agents write. */
export interface SessionRoot {
  readonly path: string;
  /** Programs that look for sessions there. */
  readonly agents: readonly Agent[];
}

export interface FoundRoot extends SessionRoot {
  readonly exists: boolean;
  /** True if our lists come from there. */
  readonly inUse: boolean;
  /** True if it has the index of pi_agent_rust, which that program writes. */
  readonly hasRustIndex: boolean;
}

export const HIDDEN_REASONS = [
  "container",
  "database",
  "empty_file",
  "no_header",
  "older_version",
  "newer_version",
  "unknown_format",
  "no_cwd",
  "cwd_missing",
  "other_folder",
] as const;

export interface KnownSession {
  readonly sessionPath: string;
  readonly sessionId: string | null;
  /** Its name, or the beginning of its first message. */
  readonly name: string | null;
  readonly archived: boolean;
}

/** A session that an agent does not show, or does not continue at its place. */
export interface HiddenSession extends KnownSession {
  readonly reason: (typeof HIDDEN_REASONS)[number];
  /** The reason as a clause. */
  readonly text: string;
  /** The directory, if the reason is about that. */
  readonly cwd?: string;
  /** Programs that do not show it. */
  readonly agents: readonly Agent[];
}

export interface DamagedSession extends KnownSession {
  /** The first few faults, as clauses. */
  readonly reasons: readonly string[];
  readonly damageCount: number;
  /** `repair`: repair_session repairs it; `finish`: migrate_session or rollback_migration completes the work. */
  readonly remedy: "repair" | "finish" | "none";
}

/** Files with one session id: only their paths tell them apart. */
export interface SameId {
  readonly sessionId: string;
  readonly sessionPaths: readonly string[];
}

export interface FoundLock {
  readonly sessionPath: string | null;
  readonly sessionId: string | null;
  /** The holder; of a stale lock the one that died with it. */
  readonly holder: Holder;
  /** True if no process holds it: its process ended without releasing it. */
  readonly isStale: boolean;
  /** True if this process holds it. */
  readonly isOwn: boolean;
}

export interface LeftoverGroup {
  readonly kind: LeftoverKind;
  readonly count: number;
  readonly sizeBytes: number;
  /** Milliseconds since 1970. */
  readonly oldest: number;
}

/** A folder that others can look into, or with files that others can read. */
export interface Exposed {
  readonly path: string;
  /** Octal digits of the most open of them. */
  readonly mode: string;
  /** True for our state folder. */
  readonly isOwn: boolean;
  /** Files in it that others can read. */
  readonly fileCount: number;
}

export interface CatalogHealth {
  /** `missing`: the next list makes one; `unused`: there is no SQLite; `busy`: it could not be looked at. */
  readonly state: "sound" | "damaged" | "missing" | "unused" | "busy";
  /** Null when it does not exist. */
  readonly path: string | null;
  readonly sizeBytes: number;
  readonly reason: string | null;
}

export const FIX_KINDS = ["state_permissions", "temporary_files", "stale_locks", "catalog"] as const;
export type FixKind = (typeof FIX_KINDS)[number];

/** A repair without a risk to any session. */
export interface Fix {
  readonly kind: FixKind;
  readonly path: string;
  /** The change as one sentence. */
  readonly text: string;
}

export interface Health {
  readonly node: { readonly version: string; readonly required: string; readonly supported: boolean };
  readonly roots: readonly FoundRoot[];
  readonly stateFolder: string;
  readonly counts: {
    readonly sessions: number;
    readonly archived: number;
    readonly trashed: number;
    readonly containers: number;
    readonly forks: number;
    readonly databases: number;
  };
  readonly hidden: readonly HiddenSession[];
  readonly damaged: readonly DamagedSession[];
  readonly sameIds: readonly SameId[];
  /** As {@link HealthCheck.notRead} has them. */
  readonly notRead: readonly UnreadFile[];
  readonly locks: readonly FoundLock[];
  readonly leftovers: readonly LeftoverGroup[];
  readonly exposed: readonly Exposed[];
  readonly catalog: CatalogHealth;
  /** Missing if the system does not report it. */
  readonly space?: { readonly path: string; readonly freeBytes: number; readonly totalBytes: number };
  readonly fixes: readonly Fix[];
}

export interface Fixed {
  readonly fixed: readonly Fix[];
  readonly failed: readonly { readonly fix: Fix; readonly reason: string }[];
}

export interface HealthCheck {
  /** Opens every session for reading, without reading messages. Changes nothing. */
  examine(progress?: Progress): Promise<Health>;
  /** Makes the safe repairs, checking again before each. Throws read_only. */
  fix(kinds?: readonly FixKind[]): Promise<Fixed>;
  /**
   * Calls `visit` with the path of every session file and container, also of unlisted ones: one after the other, with
   * pauses. Returns their number.
   */
  visitAll(
    archived: boolean,
    visit: (sessionPath: string, archived: boolean) => Promise<void>,
    progress?: Progress,
  ): Promise<number>;
  /** Returns the files in the places of other agents that no session can be read from, and containers that no list shows. */
  notRead(archived: boolean): UnreadFile[];
  /** Returns the other processes that write to some sessions, by the paths of these. */
  holders(sessionPaths: Iterable<string>): ReadonlyMap<string, Holder>;
}
