/** The contract of leftovers: files that no session needs any more. */

import type { Progress } from "./catalog.ts";

export const LEFTOVER_KINDS = ["backup", "migrated", "rolled_back", "temporary", "announcement"] as const;

/**
 * `backup`: a session as it was before a repair, a relocation or a newer format; `migrated`: the file of a session that
 * a container replaced; `rolled_back`: such a container, after its file became the session again; `temporary`: an
 * incomplete file of a process that ended; `announcement`: files that a killed server used to let others join its
 * session, or the empty folder for them. They have no user data.
 */
export type LeftoverKind = (typeof LEFTOVER_KINDS)[number];

/** Something left over, without a look at the session that it belongs to. */
export interface LeftoverFile {
  readonly path: string;
  readonly kind: LeftoverKind;
  readonly sizeBytes: number;
  /** Time at which it was left, as far as the disk shows it: milliseconds since 1970. */
  readonly since: number;
  /** Path of the session that it belongs to; null when that is not there. */
  readonly sessionPath: string | null;
}

export interface Leftover extends LeftoverFile {
  readonly sessionId: string | null;
  readonly name: string | null;
  /** The reason why it stays; null if it may be removed. */
  readonly keptBecause: string | null;
  /** True if it stays even when removal is forced. */
  readonly isNeeded: boolean;
  /** Its loss as a sentence: the command that loses a function, or the entries that are lost. Null for no loss. */
  readonly consequence: string | null;
}

export interface WantedLeftovers {
  /** Paths of leftovers; by default those of all sessions that are listed or archived. */
  readonly paths?: readonly string[];
  /** Only those of this session. */
  readonly sessionPath?: string;
  readonly kinds?: readonly LeftoverKind[];
  /** Only those left before, in milliseconds since 1970. */
  readonly before?: number;
}

export interface PruningManner {
  /** True to remove them for good. */
  readonly permanent: boolean;
  /** True to remove also those that may be the only copy of something. */
  readonly force: boolean;
}

export interface PrunedLeftovers {
  /** Null when nothing was removed but announcements, which always go for good and are no loss. */
  readonly operationId: string | null;
  /** The folder in the trash; null when nothing is there. */
  readonly itemPath: string | null;
  readonly removed: readonly Leftover[];
  readonly kept: readonly Leftover[];
}

/**
 * Nothing is removed that may be the only copy of something, unless that is forced; and nothing is decided without the
 * lock of its session: a leftover whose session another process writes to stays. If a removal that is not for good is
 * interrupted, each file is in its place or in the trash.
 */
export interface Leftovers {
  /** Returns the leftovers, the largest first. Reads the sessions that they belong to, and changes nothing. */
  list(wanted: WantedLeftovers, progress?: Progress): Promise<Leftover[]>;
  /**
   * Moves leftovers to one item of our own trash, from which undo restores them; or removes them for good. Continues
   * past those that cannot be moved. Throws not_a_session for a path that is no leftover, session_not_found, read_only.
   */
  prune(wanted: WantedLeftovers, how: PruningManner, progress?: Progress): Promise<PrunedLeftovers>;
}
