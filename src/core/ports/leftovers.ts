/** The contract of what is left over: files that no session needs any more. */

import type { Progress } from "./catalog.ts";

export const LEFTOVER_KINDS = ["backup", "migrated", "rolled_back", "temporary", "announcement"] as const;

/**
 * `backup`: a session as it was before a repair, a relocation or a newer format; `migrated`: the file of a session that
 * a container has taken the place of; `rolled_back`: such a container, after its file became the session again;
 * `temporary`: something that a process was writing when it ended; `announcement`: files by which a server that was
 * killed let others join its session, or the empty folder for them. They have nothing that anybody wrote.
 */
export type LeftoverKind = (typeof LEFTOVER_KINDS)[number];

/** Something left over, without a look at the session that it belongs to. */
export interface LeftoverFile {
  readonly path: string;
  readonly kind: LeftoverKind;
  readonly sizeBytes: number;
  /** Time at which it was left, as far as the disk tells: milliseconds since 1970. */
  readonly since: number;
  /** Path of the session that it belongs to; null when that is not there. */
  readonly sessionPath: string | null;
}

export interface Leftover extends LeftoverFile {
  readonly sessionId: string | null;
  readonly name: string | null;
  /** The reason why it stays; null when it may go. */
  readonly keptBecause: string | null;
  /** Whether it stays even when that is forced. */
  readonly isNeeded: boolean;
  /** Its loss as a sentence: which command does less, or nothing, after it, or which entries go. Null when none. */
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
  /** Whether they are removed for good. */
  readonly permanent: boolean;
  /** Whether those go too that may be the only copy of something. */
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
 * lock of the session that it belongs to: a leftover whose session another process writes to stays. Wherever a
 * removal that is not for good is interrupted, each file is in its place or in the trash.
 */
export interface Leftovers {
  /** Returns what is left over, the largest first. Reads the sessions that they belong to, and changes nothing. */
  list(wanted: WantedLeftovers, progress?: Progress): Promise<Leftover[]>;
  /**
   * Moves leftovers to one item of our own trash, from which undo brings them back; or removes them for good. Goes on
   * past those that cannot be moved. Throws not_a_session for a path that is not one of a leftover,
   * session_not_found, read_only.
   */
  prune(wanted: WantedLeftovers, how: PruningManner, progress?: Progress): Promise<PrunedLeftovers>;
}
