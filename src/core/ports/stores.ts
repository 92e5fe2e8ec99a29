/** The contract of everything that is stored, as the workspace needs it. */

import type { SessionHeader } from "../format/entry.ts";
import type { Catalog, Progress } from "./catalog.ts";
import type { FleetAdmin } from "./fleet-admin.ts";
import type { HealthCheck } from "./health.ts";
import type { LifeCycle } from "./lifecycle.ts";
import type { Migrations } from "./migrations.ts";
import type { OperationLog } from "./operations.ts";
import type { Quarantine } from "./quarantined-entries.ts";
import type { Log, Store } from "./store.ts";

/** Leaf positions that cannot be derived from the session file itself (session-format reference, section 5). */
export interface LeafMemory {
  /** Returns the position recorded for the log's entries: an id, null for before the first, undefined for none. */
  recall(log: Log): string | null | undefined;
  /** Records a position durably. */
  record(log: Log, leafId: string | null): Promise<void>;
  forget(log: Log): void;
}

/** A session that an id, or the beginning of one, may mean, with the facts that a person needs to recognise it. */
export interface Candidate {
  readonly sessionId: string;
  readonly sessionPath: string;
  readonly name: string | null;
  readonly firstMessage: string | null;
  readonly cwd: string | null;
  /** ISO 8601. */
  readonly modified: string | null;
}

/** The sessions whose ids begin so, as a completion offers them. */
export interface Offered {
  /** The newest, without unreadable ones. */
  readonly candidates: readonly Candidate[];
  /** All ids, as far as they are known without reading a file, in their order. */
  readonly ids: readonly string[];
}

/** The session that is meant by a path, or by an id, or by the beginning of one. */
export interface WantedSession {
  readonly sessionPath?: string;
  readonly sessionId?: string;
  /** True if an id is no beginning of one. */
  readonly isWhole?: boolean;
  /** True if a name may replace an id, as in a person's input. */
  readonly mayBeName?: boolean;
}

/** The stores as the workspace needs them. */
export interface Stores {
  readonly names: readonly string[];
  readonly forNew: Store;
  readonly leaves: LeafMemory;
  /** Opens a session file. Throws session_not_found, not_a_session, storage_failed. */
  open(file: string, readOnly?: boolean): Log;
  /** Returns the absolute path of a session from the host. Throws path_outside_root, and not_a_session for a part of one. */
  absolute(file: string): string;
  /**
   * Fetches or updates a session that other machines have, too; missing without a fleet. Its file gets the path that it
   * has there, unless it is open here. `progress` counts the bytes of one that is not here. Throws session_not_found
   * for one that is deleted everywhere, and storage_failed if it is not here and the fleet is unreachable.
   */
  arrive?(where: WantedSession, isOpen: (sessionId: string) => boolean, progress?: Progress): Promise<void>;
  /**
   * Uploads entries that only this machine has, in the background and at its own times; missing without a fleet.
   * `open`: returns the logs that are open here. An open copy uploads its own entries, unless it is open for reading
   * only. Entries of another copy of its session wait while it is written to.
   */
  uploadPending?(open: () => readonly Log[]): void;
  /** Entries in quarantine: refused, or in conflict with those of other machines. */
  readonly kept: Quarantine;
  exists(file: string): boolean;
  /**
   * Returns whether something is at a path, or a session of this machine that was there has moved, or has that path on
   * another machine. Throws path_outside_root.
   */
  holds(file: string): boolean;
  /**
   * Returns the file of the session that other machines name by a path without a file here; undefined if this machine
   * does not have it. Missing without a fleet.
   */
  copyAt?(file: string): string | undefined;
  isSame(a: string, b: string): boolean;
  /** Returns the name of a file in its folder, if a path leads there by links; undefined if it has none. */
  nameBehind(path: string): string | undefined;
  /** Returns the session id in the header of a file; undefined without a header. */
  idIn(file: string): string | undefined;
  /** Returns the file of a session id, or, unless it `isWhole`, of an unambiguous beginning of one. */
  find(id: string, isWhole?: boolean): string;
  /**
   * Returns the path of the session that a word names, though it is no id of ours: one of another agent, by its id or,
   * unless `by` says whole ids, the beginning of one; and, if names count, one of ours or of another agent by its name.
   * Undefined if nothing matches. Throws ambiguous_id.
   */
  lookUp(word: string, by: "whole" | "id" | "name"): Promise<string | undefined>;
  /** Returns the files of all sessions with exactly this id, archived or not. */
  withId(id: string): readonly string[];
  /**
   * Returns the session of a working directory with exactly this id, archived or not; undefined if it does not exist.
   * Throws invalid_id, ambiguous_id.
   */
  findOf(cwd: string, id: string): string | undefined;
  /**
   * Returns sessions whose ids begin so, by default not the archived ones, the newest first and at most `most`. It goes
   * by the names of files and reads only those that it describes, so that it answers while a person types.
   */
  offered(beginning: string, most: number, which?: "listed" | "archived" | "both"): Offered;
  /** Makes the folder of a session's file, if possible; otherwise the first append reports why not. */
  prepareFolder(file: string): void;
  /**
   * Writes a file for a person, whole or not at all and as durable as an append, and returns its path. When the name
   * exists, it refuses (already_exists), chooses a similar name, or replaces the file. The file also gets the
   * attachments of the session file `attachmentsOf`, if it refers to them.
   */
  writeOutput(
    file: string,
    pieces: Iterable<string | Uint8Array>,
    onExisting: "refuse" | "rename" | "replace",
    attachmentsOf?: string,
  ): Promise<string>;
  /** The home of the person who runs the server, if it is known. */
  readonly home: string | undefined;
  /** Returns the bytes of a session as stored, damage included, in pieces. */
  bytesOf(log: Log): Iterable<Uint8Array>;
  /** Returns the session of the working directory that was changed last; `isTop`: leaves out forks. */
  latest(cwd: string, isTop?: boolean): string | undefined;
  /**
   * Returns the path of a new session that is derived from the one at `file`: in the same folder, if that lies outside
   * the session folders and no flat folder was named; undefined if it belongs in the folder of its working directory.
   */
  nextTo(file: string, header: SessionHeader): string | undefined;
  /**
   * Returns the session that a request with this key made: recently in a working directory or in the folder of a file,
   * or at any time with an id.
   */
  made(
    key: string,
    of: { readonly cwd: string } | { readonly nextTo: string } | { readonly id: string },
  ): string | undefined;
  /** Lets whatever else waits have its turn, in the middle of long work. */
  pause(): Promise<void>;
  /** Writes data that was postponed until the server is idle. */
  settle?(): void;
  readonly catalog: Catalog;
  /** Missing without a fleet. */
  readonly fleet?: FleetAdmin;
  readonly lifeCycle: LifeCycle;
  readonly migrations: Migrations;
  readonly operations: OperationLog;
  readonly health: HealthCheck;
}

/** The part that opens sessions and makes new ones. */
export type SessionStores = Pick<
  Stores,
  "forNew" | "leaves" | "open" | "exists" | "holds" | "copyAt" | "prepareFolder"
>;
