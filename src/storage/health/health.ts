/** Collects findings about this machine and its sessions, and makes safe repairs. */

import { dirname, join } from "node:path";
import { isErrno } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Progress, UnreadFile } from "../../core/ports/catalog.ts";
import {
  type Exposed,
  FIX_KINDS,
  type Fix,
  type Fixed,
  type FixKind,
  type FoundLock,
  type FoundRoot,
  type Health,
  type HealthCheck,
  type LeftoverGroup,
  OLDEST_NODE,
  type SessionRoot,
} from "../../core/ports/health.ts";
import type { LeftoverFile } from "../../core/ports/leftovers.ts";
import type { CatalogOptions } from "../catalog/cached-rows.ts";
import { checkCatalog, discardCatalog } from "../catalog/soundness.ts";
import type { Disk } from "../fs/disk.ts";
import { getInfo, guardErrno } from "../fs/files.ts";
import { listFolderIfAllowed, removeAll } from "../fs/folders.ts";
import { readHeader } from "../fs/header.ts";
import { findOtherArchives } from "../fs/other-archives.ts";
import { listAllFolders } from "../fs/paths.ts";
import { isAbandoned } from "../fs/staging.ts";
import { type LifecycleDeps, requireWritable } from "../lifecycle/exclusive.ts";
import { findLeftoverFiles } from "../lifecycle/leftovers.ts";
import { listTrashed } from "../lifecycle/trash.ts";
import type { Locks } from "../locks/contract.ts";
import { clearLock, findHolders, findLocks, type LockTrace } from "../locks/found-locks.ts";
import { findSessionKeys, findUnlistedContainers, type SessionsDeps, surveySessions, visitAll } from "./sessions.ts";

/** Milliseconds after the last write during which traces of a dead writer are left for the next one. */
const TORN_JUST_NOW = 60_000;

interface HealthDeps extends SessionsDeps, Pick<CatalogOptions, "sqlite"> {
  readonly lifecycle: LifecycleDeps;
  readonly locks: Locks;
  /** Returns the files in other agents' folders that no session can be read from. */
  readonly listUnread: () => UnreadFile[];
  /** Folders in which agents look for sessions. */
  readonly roots: readonly SessionRoot[];
}

export function makeHealth(deps: HealthDeps): HealthCheck {
  return {
    examine: (progress) => guardErrno("looking at the sessions", () => examine(deps, progress)),
    fix: (kinds = FIX_KINDS) => guardErrno("mending", async () => fix(deps, kinds)),
    visitAll: (archived, visit, progress) =>
      guardErrno("looking at the sessions", () => visitAll(deps, archived, visit, progress)),
    notRead: (archived) => guardErrno("looking at the sessions", () => notRead(deps, archived)),
    holders: (sessionPaths) =>
      guardErrno("looking for locks", () => findHolders({ ...deps, stateFolder: deps.paths.state }, sessionPaths)),
  };
}

async function examine(deps: HealthDeps, progress?: Progress): Promise<Health> {
  const { disk, paths, lifecycle } = deps;
  // Checked first, because a list would throw a damaged one away.
  const catalog = checkCatalog({ ...deps, env: lifecycle.env });
  const { hidden, damaged, sameIds, ...counted } = await surveySessions(deps, progress);
  const traces = tracesOf(deps);
  const leftovers = [...findLeftoverFiles(lifecycle)];
  return {
    node: nodeFacts(),
    roots: rootsOf(deps),
    stateFolder: paths.state,
    counts: { ...counted, trashed: listTrashed(lifecycle).length },
    hidden,
    damaged,
    sameIds,
    notRead: notRead(deps, true),
    locks: traces.map((trace) => toFound(disk, trace)),
    leftovers: groupsOf(leftovers),
    exposed: findExposed(disk, listAllFolders(paths, disk), paths.state),
    catalog,
    space: spaceOf(disk, paths.flat ?? (paths.root as string), paths.state),
    fixes: FIX_KINDS.flatMap((kind) => fixesOf(deps, kind).map(({ fix }) => fix)),
  };
}

function notRead(deps: HealthDeps, archived: boolean): UnreadFile[] {
  const others = archived ? findOtherArchives(deps) : [];
  return [...deps.listUnread(), ...findUnlistedContainers(deps, archived), ...others];
}

function nodeFacts(): Health["node"] {
  const version = process.versions.node;
  const [has, needs] = [version, OLDEST_NODE].map((text) => text.split(".").map(Number));
  return {
    version,
    required: OLDEST_NODE,
    supported: has[0] > needs[0] || (has[0] === needs[0] && has[1] >= needs[1]),
  };
}

function rootsOf({ disk, paths, roots }: HealthDeps): FoundRoot[] {
  const own = paths.flat ?? (paths.root as string);
  const all = roots.some(({ path }) => path === own) ? roots : [{ path: own, agents: [] }, ...roots];
  return all.map(({ path, agents }) => ({
    path,
    agents,
    exists: getInfo(disk, path)?.kind === "folder",
    inUse: path === own,
    hasRustIndex: getInfo(disk, join(path, "session-index.sqlite"))?.kind === "file",
  }));
}

function tracesOf(deps: HealthDeps): LockTrace[] {
  const { disk, locks, paths } = deps;
  return findLocks({ disk, locks, stateFolder: paths.state }, findSessionKeys(deps), listAllFolders(paths, disk));
}

function toFound(disk: Disk, { session, holder, noted }: LockTrace): FoundLock {
  const by = holder ?? noted;
  const id = session === null ? undefined : readHeader(disk, session)?.id;
  return {
    sessionPath: session,
    sessionId: typeof id === "string" ? id : null,
    holder: by,
    isStale: holder === null,
    isOwn: by.pid === process.pid,
  };
}

function groupsOf(files: readonly LeftoverFile[]): LeftoverGroup[] {
  const groups = new Map<string, LeftoverGroup>();
  for (const { kind, sizeBytes, since } of files) {
    const { count = 0, sizeBytes: before = 0, oldest = since } = groups.get(kind) ?? {};
    groups.set(kind, { kind, count: count + 1, sizeBytes: before + sizeBytes, oldest: Math.min(oldest, since) });
  }
  return [...groups.values()];
}

/** Returns the space on the file system of the first folder that exists. */
function spaceOf(disk: Disk, ...folders: readonly string[]): Health["space"] {
  const path = folders.find((folder) => getInfo(disk, folder)?.kind === "folder");
  if (path === undefined) return undefined;
  try {
    const found = disk.space?.(path);
    return found && { path, freeBytes: found.free, totalBytes: found.total };
  } catch {
    // This file system does not report it.
    return undefined;
  }
}

// --- repairs ---------------------------------------------------------------------------------------------------------

/** A possible repair. `run` throws a failure if it is not needed any more. */
interface Mending {
  readonly fix: Fix;
  run(): void;
}

function fix(deps: HealthDeps, kinds: readonly FixKind[]): Fixed {
  requireWritable(deps.lifecycle);
  const fixed: Fix[] = [];
  const failed: { fix: Fix; reason: string }[] = [];
  for (const { fix, run } of FIX_KINDS.filter((kind) => kinds.includes(kind)).flatMap((kind) => fixesOf(deps, kind)))
    try {
      run();
      fixed.push(fix);
    } catch (error) {
      if (!isErrno(error) && !(error instanceof Failure)) throw error;
      failed.push({ fix, reason: error instanceof Failure ? error.message : `the disk refused (${error.code})` });
    }
  return { fixed, failed };
}

/** Returns the repairs of one kind. */
function fixesOf(deps: HealthDeps, kind: FixKind): Mending[] {
  if (kind === "state_permissions") return permissionFixes(deps);
  if (kind === "temporary_files") return temporaryFixes(deps);
  return kind === "stale_locks" ? lockFixes(deps) : catalogFixes(deps);
}

function permissionFixes({ disk, paths: { state } }: HealthDeps): Mending[] {
  const { setMode } = disk;
  const [exposed] = findExposed(disk, [], state);
  if (exposed === undefined || setMode === undefined) return [];
  const text = `Close the state folder to other users: its mode becomes 700, and is ${exposed.mode}.`;
  return [{ fix: { kind: "state_permissions", path: state, text }, run: () => setMode.call(disk, state, 0o700) }];
}

function temporaryFixes({ disk, lifecycle }: HealthDeps): Mending[] {
  const now = lifecycle.env.now();
  const found = [...findLeftoverFiles(lifecycle)].filter(
    ({ kind, path }) => kind === "temporary" && isAbandoned(disk, path, now),
  );
  return found.map(({ path, sizeBytes }) => ({
    fix: {
      kind: "temporary_files",
      path,
      text: `Remove what a process was writing when it ended (${sizeBytes} bytes, never part of a session).`,
    },
    run() {
      if (isAbandoned(disk, path, now)) removeAll(disk, path);
    },
  }));
}

function lockFixes(deps: HealthDeps): Mending[] {
  const { disk, locks, paths, lifecycle } = deps;
  // The note shows the next writer that a line torn just now will not be continued.
  const isStill = ({ session }: LockTrace): boolean =>
    session === null || lifecycle.env.now() - (getInfo(disk, session)?.modified ?? 0) > TORN_JUST_NOW;
  return tracesOf(deps)
    .filter((trace) => trace.holder === null && isStill(trace))
    .map((trace) => ({
      fix: {
        kind: "stale_locks",
        path: trace.place?.path ?? trace.note ?? paths.state,
        text: `Clear the lock that process ${trace.noted.pid} left when it ended.`,
      },
      run() {
        const holder = clearLock(locks, trace);
        if (holder) throw new Failure("session_locked", `Process ${holder.pid} has the lock now.`);
      },
    }));
}

function catalogFixes(deps: HealthDeps): Mending[] {
  const looked = { ...deps, env: deps.lifecycle.env };
  const { state, path, reason } = checkCatalog(looked);
  if (state !== "damaged" || path === null) return [];
  const text = `Throw the damaged catalog away (${reason}); the next list builds it anew from the sessions.`;
  return [{ fix: { kind: "catalog", path, text }, run: () => discardCatalog(looked, path) }];
}

// --- what other users can read ------------------------------------------------------------------------------------------

/** Permission bits of the group and of everybody else, and of those the right to read and to enter. */
const [GROUP, OTHERS] = [0o070, 0o007];
const [READ, ENTER] = [0o044, 0o011];

/** Returns what other users can read in folders of sessions, and in our state folder, which only this user needs. */
function findExposed(disk: Disk, folders: Iterable<string>, stateFolder: string): Exposed[] {
  if (process.platform === "win32") return [];
  const found: Exposed[] = [];
  const state = getInfo(disk, stateFolder);
  if (state !== null && (state.mode & (GROUP | OTHERS)) !== 0)
    found.push({ path: stateFolder, mode: octal(state.mode), isOwn: true, fileCount: 0 });
  for (const path of folders) {
    const info = getInfo(disk, path);
    const reach = info === null ? 0 : info.mode & reachOf(disk, path);
    if (info === null || (reach & (READ | ENTER)) === 0) continue;
    // A user who may enter a folder can read the files in it by their names.
    const within = enteredBy(reach);
    const modes = listFolderIfAllowed(disk, path)
      .filter(({ kind }) => kind === "file")
      .map(({ name }) => (getInfo(disk, join(path, name), true)?.mode ?? 0) & within & READ)
      .filter((mode) => mode !== 0);
    if ((reach & READ) === 0 && modes.length === 0) continue;
    found.push({ path, mode: octal(info.mode), isOwn: false, fileCount: modes.length });
  }
  return found;
}

/** Returns the bits of users who may enter all folders above a path. An unreadable folder counts as open. */
function reachOf(disk: Disk, path: string): number {
  let reach = GROUP | OTHERS;
  for (let at = dirname(path); ; at = dirname(at)) {
    const info = getInfo(disk, at);
    if (info !== null) reach &= enteredBy(info.mode);
    if (at === dirname(at)) return reach;
  }
}

/** Returns the bits of users who may enter a folder with this mode. */
function enteredBy(mode: number): number {
  return ((mode & 0o010) === 0 ? 0 : GROUP) | ((mode & 0o001) === 0 ? 0 : OTHERS);
}

function octal(mode: number): string {
  return (mode & 0o777).toString(8).padStart(3, "0");
}
