/**
 * Moves the files of sessions here to the places that the sessions have on other machines. This is not recorded as an
 * operation, because the user did nothing here that could be undone.
 */

import { join, relative } from "node:path";
import { parseSessionHeader as headerInLine } from "../../core/format/entry.ts";
import { makeTimestamp } from "../../core/ports/env.ts";
import type { Log } from "../../core/ports/store.ts";
import { getKnownPath, isBelow } from "../fs/confined-disk.ts";
import { readHeader } from "../fs/header.ts";
import { getArchiveFolder } from "../fs/paths.ts";
import { isOneFile } from "../fs/stamps.ts";
import { type LifecycleDeps, runExclusively } from "./exclusive.ts";
import { getTitleFacts } from "./recorded.ts";
import { adoptDirectory, isInterrupted } from "./relocate.ts";
import { moveToOwnTrash } from "./trash.ts";
import { moveSession } from "./undo-steps.ts";

/** Place of a session: in the archive or not, in the folder of the directory in its header. */
export interface SessionPlace {
  readonly archived: boolean;
  readonly headerLine: Uint8Array;
}

/** Returns whether the file of a session is at its place, or neither in the session folders nor in the archive. */
export function isInPlace(deps: LifecycleDeps, file: string, place: SessionPlace): boolean {
  return journeyOf(deps, file, readHeader(deps.disk, file)?.cwd, place) === undefined;
}

/**
 * Moves the file of a session to its place, and writes the directory of that place into its header, if `isMeant`
 * accepts it under its lock. Returns its path. Throws session_locked, already_exists, storage failures.
 */
export function moveToPlace(
  deps: LifecycleDeps,
  path: string,
  place: SessionPlace,
  isMeant: (log: Log) => Promise<boolean>,
): Promise<string> {
  return runExclusively(deps, path, "bringing the session to its place", async (locked) => {
    const { paths } = deps;
    const { file, log } = locked;
    const journey = (await isMeant(log)) ? journeyOf(deps, file, log.header.cwd, place) : undefined;
    if (journey === undefined) return file;
    const { to, rest, cwd } = journey;
    if (cwd !== undefined)
      return adoptDirectory(deps, locked, cwd, { ...paths, [paths.flat === undefined ? "root" : "flat"]: to });
    return (await moveSession(deps, locked, deps.allowed(join(to, rest)))).movedTo;
  });
}

/** The move of a session to its place. */
interface Journey {
  /** The session folders or the archive. */
  readonly to: string;
  /** Path relative to the folder, of the two, that contains it. */
  readonly rest: string;
  /** The new directory in its header, if it changes. */
  readonly cwd: string | undefined;
}

/** Returns the move of a file to its place; undefined if it is there, or outside our folders. */
function journeyOf(
  { disk, paths }: LifecycleDeps,
  file: string,
  here: unknown,
  place: SessionPlace,
): Journey | undefined {
  const folders = [getArchiveFolder(paths), paths.flat ?? (paths.root as string)];
  const path = getKnownPath(disk, file);
  const at = folders.findIndex((folder) => isBelow(getKnownPath(disk, folder), path));
  if (at < 0) return undefined;
  const wanted = headerInLine(place.headerLine)?.cwd;
  const cwd = typeof wanted === "string" && wanted !== here ? wanted : undefined;
  const goal = place.archived ? 0 : 1;
  const to = folders[goal];
  const rest = relative(getKnownPath(disk, folders[at]), path);
  if (cwd !== undefined || at !== goal) return { to, rest, cwd };
  // After an interrupted move the header may already name the directory.
  const own = { ...paths, [paths.flat === undefined ? "root" : "flat"]: to };
  return typeof wanted === "string" && isInterrupted(disk, own, file, wanted) ? { to, rest, cwd: wanted } : undefined;
}

/**
 * Moves the file of a session to our trash if `isMeant` accepts it under its lock. Of two names from an interrupted
 * move, removes one instead. Returns whether it did.
 */
export function trashIf(deps: LifecycleDeps, path: string, isMeant: (log: Log) => Promise<boolean>): Promise<boolean> {
  return runExclusively(deps, path, "moving the session to the trash", async (locked) => {
    if (!(await isMeant(locked.log))) return false;
    const { file, sessionId } = locked;
    const other = deps.withId(sessionId).find((one) => one !== file && isOneFile(deps.disk, one, file));
    if (other !== undefined) await moveSession(deps, locked, other);
    else await moveToOwnTrash(deps, locked, getTitleFacts(locked.log), { at: makeTimestamp(deps.env) });
    return true;
  });
}
