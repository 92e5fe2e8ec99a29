/** Dependencies of lifecycle operations, and exclusive access to a closed session. */

import { dirname, resolve } from "node:path";
import { Failure } from "../../core/failure.ts";
import type { Env } from "../../core/ports/env.ts";
import type { MoveOptions, Purpose, SeenFacts, Where } from "../../core/ports/lifecycle.ts";
import type { OperationLog } from "../../core/ports/operations.ts";
import type { Log } from "../../core/ports/store.ts";
import type { LeafMemory } from "../../core/ports/stores.ts";
import { getKnownPath, isBelow } from "../fs/confined-disk.ts";
import { type Disk, exists } from "../fs/disk.ts";
import { getInfo, guardErrno, useAndClose } from "../fs/files.ts";
import { getKind } from "../fs/folders.ts";
import { getArchiveFolder, getSessionFolder, type StoragePaths } from "../fs/paths.ts";
import type { Locks } from "../locks/contract.ts";
import { getUnfrozenPath } from "../v2/pointer.ts";

export interface LifecycleDeps {
  readonly disk: Disk;
  readonly env: Env;
  readonly paths: StoragePaths;
  readonly leaves: LeafMemory;
  readonly operations: OperationLog;
  /** The locks used by `open`. */
  readonly locks: Locks;
  /** Moves paths to the desktop's trash. Returns the first one's new path, if it is found. Refused paths stay. */
  readonly desktopTrash?: (paths: readonly string[]) => Promise<string | undefined>;
  readonly readOnly: boolean;
  open(file: string): Log;
  /** Returns the facts about a session for a list; undefined if it cannot be read. */
  factsAt(file: string): SeenFacts | undefined;
  /** Opens one of our files that is not among the sessions yet. */
  openStaged(file: string): Log;
  /** Opens a file that is another agent's session; returns undefined for any other. */
  openForeign(file: string): Log | undefined;
  absolute(path: string): string;
  /** Returns the absolute path, if it may be used. Throws path_outside_root. */
  allowed(path: string): string;
  /** Does the same for a session's path. Throws also not_a_session, for a part of a container. */
  pathOf(path: string): string;
  /** Returns the file of an id, or of a unique beginning of one. Throws session_not_found, ambiguous_id, invalid_id. */
  find(id: string): string;
  /** Returns all session files with exactly this id, including archived ones. */
  withId(id: string): string[];
  /** Throws session_locked where another machine writes to the session with an id. */
  readonly requireFree?: (id: string) => Promise<void>;
  readonly cwd: string;
}

/** An exclusive session: no other process can write to it during the operation. */
export interface LockedSession {
  readonly file: string;
  readonly sessionId: string;
  readonly log: Log;
  /** The leaf, if it is recorded only in our state folder. */
  readonly leafId: string | null | undefined;
  forgetLeaf(): void;
}

export function requireWritable({ readOnly }: LifecycleDeps): void {
  if (readOnly) throw makeReadOnlyFailure();
}

/** Returns the failure of every change in a server that may write nothing. */
export function makeReadOnlyFailure(): Failure {
  return new Failure("read_only", "This server was started with --read-only. Start one without it to change sessions.");
}

/** Runs `run` while this process has the session's lock. Throws session_locked, and errors of opening the session. */
export async function runExclusively<T>(
  deps: LifecycleDeps,
  path: string,
  doing: string,
  run: (locked: LockedSession) => Promise<T>,
): Promise<T> {
  requireWritable(deps);
  const { disk, leaves } = deps;
  return guardErrno(doing, () =>
    useAndClose(deps.open(resolveLink(disk, path)), (log) => {
      // The frozen copy of a session file may only be moved together with its session.
      if (getUnfrozenPath(path) !== null && log.readOnly) throw log.readOnly;
      log.lock.acquire();
      return run({
        // Hosts may still use the path of a file that was migrated.
        file: log.file ?? path,
        sessionId: log.header.id,
        log,
        leafId: leaves.recall(log),
        forgetLeaf() {
          try {
            leaves.forget(log);
          } catch {
            // The leaf position of a removed file is ignored.
          }
        },
      });
    }),
  );
}

/** Returns the path that a link leads to, which is that of the session; any other path unchanged. */
export function resolveLink(disk: Disk, path: string): string {
  return getKind(disk, path) === "link" ? disk.realPath(path) : path;
}

/** Throws content_modified unless a session, whose lock we have, is as it was seen. */
export function requireAsSeen({ factsAt }: LifecycleDeps, { file }: LockedSession, { seen }: MoveOptions): void {
  if (seen === undefined) return;
  const now = factsAt(file);
  if (now?.modified === seen.modified && now.messageCount === seen.messageCount) return;
  const sentence =
    "The session was continued since it was listed. It is where it was; look at it again before you move it.";
  throw new Failure("content_modified", sentence, { sessionPath: file, messageCount: now?.messageCount ?? null });
}

/** Returns the file of a session, by its path or by its whole id. */
export function findSessionFile(deps: LifecycleDeps, { sessionPath, sessionId }: Where, purpose?: Purpose): string {
  if (sessionPath !== undefined) {
    const file = deps.pathOf(sessionPath);
    if (getKind(deps.disk, file) !== undefined && !exists(deps.disk, `${file}.migrated`)) return file;
    // It was migrated or is missing: opening it shows which.
    return useAndClose(deps.open(file), (log) => log.file ?? file);
  }
  const id = sessionId as string;
  const exact = deps.withId(id);
  if (exact.length === 1) return exact[0];
  // An interrupted move leaves two names of one file, or copies on two file systems. It continues from the old one.
  const isOne = new Set(exact.map((file) => getInfo(deps.disk, file)?.size)).size === 1;
  const movable = isOne && purpose ? exact.filter((file) => canMove(deps, file, purpose)) : [];
  if (movable.length === 1) return movable[0];
  // Of several files with the id, it names the paths.
  deps.find(id);
  if (exact.length > 1)
    throw new Failure("ambiguous_id", `${exact.length} files have the id ${id}. Name the one you mean by its path.`, {
      sessionId: id,
      matches: exact.length,
    });
  throw new Failure(
    "ambiguous_id",
    `Moving or deleting a session takes its whole id, and ${id} is only the beginning of one. list_sessions shows them.`,
    { sessionId: id },
  );
}

function canMove({ disk, paths, absolute }: LifecycleDeps, file: string, purpose: Purpose): boolean {
  if (typeof purpose !== "string") return dirname(file) !== getSessionFolder(paths, resolve(absolute(purpose.cwd)));
  return isBelow(getKnownPath(disk, getArchiveFolder(paths)), getKnownPath(disk, file)) === (purpose === "unarchive");
}
