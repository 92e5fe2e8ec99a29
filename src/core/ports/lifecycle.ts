/** What happens to whole sessions: deleted, archived, moved, brought in. What the stores offer for it. */

import type { Damage } from "../format/damage.ts";
import type { Progress } from "./catalog.ts";

/** Which session: by its path, or by its full id. */
export interface Where {
  readonly sessionPath?: string;
  readonly sessionId?: string;
}

/**
 * What a session is to be moved for. An interrupted move leaves two names of one session; of several files with an id,
 * those count that can be moved so.
 */
export type Purpose = "archive" | "unarchive" | { readonly cwd: string };

export interface Moved {
  readonly sessionId: string;
  /** Where it was. */
  readonly sessionPath: string;
  /** Where it is now. */
  readonly movedTo: string;
}

export interface Deleted {
  readonly sessionId: string;
  /** Where it was. */
  readonly sessionPath: string;
  /** Where it lies now, as far as that is known. */
  readonly movedTo?: string;
  /** Which trash it lies in. */
  readonly trash: "desktop" | "own" | "none";
}

export interface Relocated extends Moved {
  /** Where the file is as it was before. */
  readonly keptAt: string;
}

export interface Imported {
  readonly sessionId: string;
  readonly sessionPath: string;
  /**
   * `new`: nobody knew it. `known`: the session has all of it already. `continued`: the session had a part of it and got
   * the rest. `conflict`: there is a session with this id that went another way; this one got an id of its own.
   */
  readonly outcome: "new" | "known" | "continued" | "conflict";
  /** The session with the same id that it is a conflict copy of. */
  readonly conflictsWith?: string;
  readonly entryCount: number;
  /** Format version of its bytes. */
  readonly version: number;
  readonly damage: readonly Damage[];
}

/**
 * Everything here refuses a session that another process writes to (session_locked), overwrites nothing
 * (already_exists), takes an id only whole (ambiguous_id), and leaves, wherever it is interrupted, every byte under one
 * name or another. Whether the session is open in this process is for the caller to ask.
 */
export interface LifeCycle {
  /**
   * Returns the file that is meant. Throws session_not_found, ambiguous_id, invalid_id, path_outside_root.
   */
  locate(where: Where, purpose?: Purpose): string;
  /** Moves a session with all that belongs to it to the trash, or unlinks it. */
  delete(file: string, permanent: boolean): Promise<Deleted>;
  /** Brings back what our own trash holds, the newest of that id or original path, or the one at a path of the trash. */
  restore(where: Where): Promise<Moved>;
  /** Moves a session where agents do not list it, and lists of ours say that it is archived. */
  archive(file: string): Promise<Moved>;
  unarchive(file: string): Promise<Moved>;
  /** Gives a session another working directory. Throws BadParams when there is none and none may be missing. */
  relocate(file: string, cwd: string, allowMissing?: boolean): Promise<Relocated>;
  /** Brings in a session file from anywhere. Throws not_a_session, and corrupt where the header is damaged. */
  import(path: string, progress?: Progress): Promise<Imported>;
}
