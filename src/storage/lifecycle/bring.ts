/**
 * Brings the files of sessions to where the sessions are for other machines. That is no operation: nobody here did anything,
 * so that nothing here is to be taken back.
 */

import { join, relative } from "node:path";
import { headerIn as headerInLine } from "../../core/format/entry.ts";
import { timestamp } from "../../core/ports/env.ts";
import type { Log } from "../../core/ports/store.ts";
import { isBelow, knownPath } from "../fs/confined-disk.ts";
import { archiveFolder } from "../fs/paths.ts";
import { isOneFile } from "../fs/stamps.ts";
import { exclusively, type LifecycleDeps } from "./exclusive.ts";
import { factsOf } from "./recorded.ts";
import { rehouseFor } from "./relocate.ts";
import { moveTo } from "./take-back.ts";
import { toOwnTrash } from "./trash.ts";

/** Where a session is: in the archive or not, in the folder of the directory that its header names. */
export interface SessionPlace {
  readonly archived: boolean;
  readonly headerLine: Uint8Array;
}

/**
 * Brings the file of a session to its place, with the directory of that place in its header. Returns its path. One that is
 * neither in the session folders nor in the archive stays as it is. Throws session_locked, already_exists, storage failures.
 */
export function bringTo(deps: LifecycleDeps, path: string, { archived, headerLine }: SessionPlace): Promise<string> {
  return exclusively(deps, path, "bringing the session to its place", async (locked) => {
    const { disk, paths } = deps;
    const { file, log } = locked;
    const archive = archiveFolder(paths);
    const home = paths.flat ?? (paths.root as string);
    const [there, now] = [knownPath(disk, file), knownPath(disk, archive)];
    const isArchived = isBelow(now, there);
    const from = isArchived ? now : knownPath(disk, home);
    if (!isBelow(from, there)) return file;
    const to = archived ? archive : home;
    const cwd = headerInLine(headerLine)?.cwd;
    if (typeof cwd === "string" && cwd !== log.header.cwd)
      return rehouseFor(deps, locked, cwd, { ...paths, [paths.flat === undefined ? "root" : "flat"]: to });
    if (isArchived === archived) return file;
    return (await moveTo(deps, locked, deps.allowed(join(to, relative(from, there))))).movedTo;
  });
}

/**
 * Moves the file of a session to our trash if, under its lock, it is what was to be moved. One of two names that an
 * interrupted move left goes for the other. Returns whether it did.
 */
export function setAside(deps: LifecycleDeps, path: string, isMeant: (log: Log) => Promise<boolean>): Promise<boolean> {
  return exclusively(deps, path, "moving the session to the trash", async (locked) => {
    if (!(await isMeant(locked.log))) return false;
    const { file, sessionId } = locked;
    const other = deps.withId(sessionId).find((one) => one !== file && isOneFile(deps.disk, one, file));
    if (other !== undefined) await moveTo(deps, locked, other);
    else await toOwnTrash(deps, locked, factsOf(locked.log), { at: timestamp(deps.env) });
    return true;
  });
}
