/** What moving sessions needs of the stores around it, and the hold on a session while it is moved. */

import { dirname, isAbsolute, relative, resolve } from "node:path";
import { storageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Purpose, Where } from "../../core/ports/lifecycle.ts";
import type { Log } from "../../core/ports/store.ts";
import type { LeafMemory } from "../../core/ports/stores.ts";
import { type Disk, exists } from "../fs/disk.ts";
import { folderFor, type Places } from "../fs/paths.ts";
import { frozenFrom } from "../v2/pointer.ts";
import { kindOf, realPathOr, withoutLink } from "./moving.ts";

export interface Keeping {
  readonly disk: Disk;
  readonly env: Env;
  readonly places: Places;
  readonly leaves: LeafMemory;
  /** Folder of our own trash. */
  readonly trash: string;
  /** Folder of the archived sessions of these places. */
  readonly archive: string;
  /**
   * Moves paths to the desktop's trash, where there is a command for that; answers where the first lies now, if it
   * tells. What it could not move stays where it was.
   */
  readonly desktopTrash?: (paths: readonly string[]) => Promise<string | undefined>;
  readonly readOnly: boolean;
  open(file: string): Log;
  absolute(path: string): string;
  /** The path, if it may be used. Throws path_outside_root. */
  allowed(path: string): string;
  /** The session file with an id, or with the only one that begins so. Throws session_not_found, ambiguous_id, invalid_id. */
  find(id: string): string;
  /** All session files with exactly this id, archived ones too. */
  withId(id: string): string[];
  /** Working directory of this process. */
  readonly cwd: string;
  /** Records the leaf of a session that came to lie in another file, if that can be done. */
  keepLeaf(file: string, leafId: string | null): Promise<void>;
}

/** A session that nobody else can write to meanwhile. */
export interface Hold {
  readonly file: string;
  readonly sessionId: string;
  readonly log: Log;
  /** The leaf, if only our state folder tells it. */
  readonly leafId: string | null | undefined;
  forgetLeaf(): void;
}

/** Throws read_only. */
export function demandWritable({ readOnly }: Keeping): void {
  if (!readOnly) return;
  throw new Failure("read_only", "This server was started with --read-only. Start one without it to change sessions.");
}

/** Runs something while this process is the session's writer. Throws what opening it throws, and session_locked. */
export async function holding<T>(
  keeping: Keeping,
  path: string,
  doing: string,
  run: (held: Hold) => Promise<T>,
): Promise<T> {
  demandWritable(keeping);
  const { disk, leaves } = keeping;
  let log: Log | undefined;
  try {
    log = keeping.open(withoutLink(disk, path));
    // The frozen copy of a session file goes where its session goes.
    if (frozenFrom(path) !== null && log.readOnly) throw log.readOnly;
    log.takeLock();
    const held = log;
    return await run({
      // A file that was migrated is named by many who do not know that.
      file: held.file ?? path,
      sessionId: held.header.id,
      log: held,
      leafId: leaves.recall(held),
      forgetLeaf() {
        try {
          leaves.forget(held);
        } catch {
          // A position of a file that is gone means nothing.
        }
      },
    });
  } catch (error) {
    throw storageFailure(error, doing);
  } finally {
    log?.close();
  }
}

/** Returns the file of a session that is named by its path or by its whole id. */
export function locate(keeping: Keeping, { sessionPath, sessionId }: Where, purpose?: Purpose): string {
  if (sessionPath !== undefined) {
    const file = keeping.allowed(sessionPath);
    if (kindOf(keeping.disk, file) !== undefined && !exists(keeping.disk, `${file}.migrated`)) return file;
    // It was migrated, or is not there, which opening it tells.
    const log = keeping.open(file);
    log.close();
    return log.file ?? file;
  }
  const id = sessionId as string;
  const exact = keeping.withId(id);
  if (exact.length === 1) return exact[0];
  // Names of one file, or copies on two file systems, are what a move that was cut off leaves; it goes on from the old.
  const isOne = new Set(exact.map((file) => sizeOf(keeping.disk, file))).size === 1;
  const movable = isOne && purpose ? exact.filter((file) => canMove(keeping, file, purpose)) : [];
  if (movable.length === 1) return movable[0];
  if (exact.length > 1)
    throw new Failure("ambiguous_id", `${exact.length} files have the id ${id}. Name the one you mean by its path.`, {
      sessionId: id,
      matches: exact.length,
    });
  keeping.find(id);
  throw new Failure(
    "ambiguous_id",
    `A session is moved or deleted by its whole id, and ${id} is only the beginning of one. list_sessions shows them.`,
    { sessionId: id },
  );
}

function sizeOf(disk: Disk, file: string): number | undefined {
  return exists(disk, file) ? disk.info(file).size : undefined;
}

function canMove({ disk, places, archive, absolute }: Keeping, file: string, purpose: Purpose): boolean {
  if (typeof purpose !== "string") return dirname(file) !== folderFor(places, resolve(absolute(purpose.cwd)));
  const below = relative(realPathOr(disk, archive), realPathOr(disk, file));
  return (below.startsWith("..") || isAbsolute(below)) === (purpose === "archive");
}
