/** The contract of operations on whole sessions: delete, archive, move, import. */

import type { Damage } from "../format/damage.ts";
import type { Progress } from "./catalog.ts";
import type { FidelityReport } from "./fidelity.ts";
import type { Leftovers } from "./leftovers.ts";
import type { Operation, OperationStep } from "./operations.ts";

/** A session, named by its path or by its full id. */
export interface Where {
  readonly sessionPath?: string;
  readonly sessionId?: string;
}

/**
 * The purpose of a move. An interrupted move leaves two names of one session: of several files with an id, only those
 * count that can be moved for this purpose.
 */
export type Purpose = "archive" | "unarchive" | { readonly cwd: string };

/** The facts of a session that a person saw before deciding to move it. */
export interface SeenFacts {
  /** Milliseconds, as in a list. */
  readonly modified: number | null;
  readonly messageCount: number;
}

/** Options of a move besides its path. */
export interface MoveOptions {
  /** See Operation.group. */
  readonly group?: string;
  /** Throws content_modified, having moved nothing, unless these are still the session's facts. */
  readonly seen?: SeenFacts;
}

export interface MovedSession {
  readonly sessionId: string;
  /** Path before the move. */
  readonly sessionPath: string;
  readonly movedTo: string;
}

/** A move with the operation that it was. */
export interface RecordedMove extends MovedSession {
  readonly operationId: string;
}

export interface Deleted {
  readonly operationId: string;
  readonly sessionId: string;
  readonly sessionPath: string;
  /** Path now, as far as it is known. */
  readonly movedTo?: string;
  readonly trash: "desktop" | "own" | "none";
}

export interface Relocated extends MovedSession {
  /** Missing if nothing was changed, or a relocation that was interrupted was completed. */
  readonly operationId?: string;
  /** Path of the kept original file; null if nothing of it was changed. */
  readonly keptAt: string | null;
}

export interface Imported {
  /** Missing if nothing was written. */
  readonly operationId?: string;
  readonly sessionId: string;
  readonly sessionPath: string;
  /**
   * `new`: no such session existed. `known`: the session has all of it already. `continued`: the session had a part of
   * it and got the rest. `conflict`: a session with this id continued differently; this one got an id of its own.
   */
  readonly outcome: "new" | "known" | "continued" | "conflict";
  /** The session with the same id that it is a conflict copy of. */
  readonly conflictsWith?: string;
  /** The working directory in its header. */
  readonly cwd: string | null;
  readonly entryCount: number;
  readonly version: number;
  readonly damage: readonly Damage[];
  /** The records of another agent's file, and their fidelity. */
  readonly fidelity?: FidelityReport;
  /** The sessions within another agent's file, which came with that of the file. */
  readonly subagents?: readonly Imported[];
}

export interface Trashed {
  /** The folder in the trash. */
  readonly itemPath: string;
  /** Path of the session, or of the first of the leftovers, before. */
  readonly sessionPath: string;
  /** Null for leftovers, which belong to no session in the trash. */
  readonly sessionId: string | null;
  /** ISO 8601. */
  readonly deletedAt: string;
  readonly sizeBytes: number;
  /** Paths of leftovers before; null for a session. */
  readonly files: readonly string[] | null;
  /** These are null for leftovers. */
  readonly name: string | null;
  /** The first characters of what the user said first. */
  readonly firstMessage: string | null;
  readonly messageCount: number | null;
}

/** A deleted session that a fleet still has, and the trash of this machine has not. */
export type DeletedElsewhere = Omit<Trashed, "itemPath" | "files">;

export interface FleetTrash {
  /** Deleted sessions that `restore` fetches from the fleet. */
  readonly deleted: readonly DeletedElsewhere[];
  /** Ids of sessions in our own trash that were restored since, on any machine. */
  readonly restoredIds: ReadonlySet<string>;
}

/** A session that is about to be restored from our trash. */
export interface FoundInTrash {
  readonly sessionId: string;
  /** Path of its file in the trash. */
  readonly file: string;
}

export interface EmptiedTrash {
  readonly operationId: string | null;
  readonly removed: readonly Trashed[];
  /** Items that the disk refused to remove; they are still whole. */
  readonly kept: readonly { readonly item: Trashed; readonly reason: string }[];
}

/** The record of an undo or a redo, as far as its caller decides. */
export interface TakingBack extends Pick<Operation, "text" | "group"> {
  readonly kind: "undo" | "redo";
  /** The operation that is neither undo nor redo. */
  readonly of: string;
}

/**
 * Operations on whole sessions. Each refuses a session that another process writes to (session_locked), overwrites
 * nothing (already_exists), accepts an id only in full (ambiguous_id), and keeps every byte under one name or another
 * wherever it is interrupted. The caller checks whether the session is open in this process.
 */
export interface LifeCycle {
  /** Returns the file that is meant. Throws session_not_found, ambiguous_id, invalid_id, path_outside_root. */
  locate(where: Where, purpose?: Purpose): string;
  /** Moves a session with all that belongs to it to the trash, or unlinks it. */
  delete(file: string, permanent: boolean, options?: MoveOptions): Promise<Deleted>;
  /**
   * Restores from our own trash: the newest session of that id, of the only one that begins so, or of that original
   * path, or the one at a path in the trash. `requireFit` throws if that may not be restored.
   */
  restore(where: Where, requireFit?: (found: FoundInTrash) => Promise<void>): Promise<MovedSession>;
  /** Moves a session to a folder that agents do not list; our own lists show it as archived. */
  archive(file: string, options?: MoveOptions): Promise<RecordedMove>;
  unarchive(file: string, options?: MoveOptions): Promise<RecordedMove>;
  /**
   * Gives a session another working directory. Throws BadParams when that does not exist, unless `allowMissing`.
   */
  relocate(file: string, cwd: string, allowMissing?: boolean, options?: MoveOptions): Promise<Relocated>;
  /**
   * Imports a session file, also another agent's. `group`: the first of several imports that are one operation. Throws
   * not_a_session, and corrupt for a damaged header.
   */
  import(path: string, progress?: Progress, group?: string): Promise<Imported>;
  readonly leftovers: Leftovers;
  /** Removes some items of our trash, or all, for good. Throws read_only. */
  emptyTrash(isMeant?: (item: Trashed) => boolean, progress?: Progress): Promise<EmptiedTrash>;
  /** Returns the items of our own trash, the newest first. */
  trash(): readonly Trashed[];
  /** Compares our own trash with a fleet. Throws storage_failed. Missing without a fleet. */
  fleetTrash?(): Promise<FleetTrash>;
  /** True if deleted files go to the desktop's trash, from which this server cannot restore them. */
  readonly usesDesktopTrash: boolean;
  /** Returns whether a path may be used, so that an operation on it may be shown. */
  isAllowed(path: string): boolean;
  /** Returns the step of an operation that was begun, if it happened; false if not; undefined if that is unknown. */
  stepOf(operation: Operation): OperationStep | false | undefined;
  /** Returns whether everything is as before an operation on a whole session, so that nothing is left to take back. */
  isBack(operation: Operation): boolean;
  /** Returns whether the trash does not have any more what an operation put there, so that it cannot be taken back. */
  isLost(operation: Operation): boolean;
  /**
   * Takes back an operation on a whole session, other than a migration, and returns the new path of the session;
   * undefined in the trash. Throws ground_moved, having changed nothing, when the changed files have changed again.
   */
  takeBack(operation: Operation, as: TakingBack): Promise<{ operationId: string; sessionPath: string | undefined }>;
}
