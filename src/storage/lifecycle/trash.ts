/**
 * Deletes and restores sessions. In our trash each session has its own folder, with a record of where it was. A folder
 * without its session file was left by an interrupted deletion and is ignored.
 */

import { basename, dirname, join } from "node:path";
import { Failure } from "../../core/failure.ts";
import { SESSION_ID } from "../../core/format/entry.ts";
import { bytesOf, parse } from "../../core/json/json.ts";
import { timestamp } from "../../core/ports/env.ts";
import type { Deleted, MovedSession, Where } from "../../core/ports/lifecycle.ts";
import { pointerFile } from "../fs/container-paths.ts";
import { type Disk, exists, readWhole, removeQuietly } from "../fs/disk.ts";
import { nth, publishBytes } from "../fs/files.ts";
import { kindOf, namesIn, removeAll } from "../fs/folders.ts";
import { trashFolder } from "../fs/paths.ts";
import { stagingName } from "../fs/staging.ts";
import { isOneFile } from "../fs/stamps.ts";
import { keepLeaf } from "../log/leaf-store.ts";
import { type LifecycleDeps, type LockedSession, requireWritable } from "./exclusive.ts";
import { belongings, moveWith, type PathChange, requireWayFree } from "./move.ts";

const RECORD = "record.json";

interface Record {
  readonly sessionId: string;
  /** The former path of the session file. */
  readonly path: string;
  /** ISO 8601. */
  readonly deletedAt: string;
  /** The leaf, if it was recorded only in our state folder. */
  readonly leafId?: string | null;
}

/** Deletes a session. Throws session_locked, storage_full, storage_failed. */
export async function deleteSession(deps: LifecycleDeps, locked: LockedSession, permanent: boolean): Promise<Deleted> {
  const { disk } = deps;
  const { file, sessionId } = locked;
  const deleted = { sessionId, sessionPath: file };
  if (permanent) {
    await unlink(disk, file, belongings(disk, file, sessionId), locked);
    return { ...deleted, trash: "none" };
  }
  if (deps.desktopTrash) {
    const others = belongings(disk, file, sessionId);
    const movedTo = await deps.desktopTrash([file, ...others]);
    if (kindOf(disk, file) === undefined) {
      locked.forgetLeaf();
      // Files that it left would appear next to the next session of that name.
      const left = others.filter((path) => kindOf(disk, path) !== undefined);
      if (left.length > 0) await toItem(deps, locked, left);
      await disk.syncFolder(dirname(file));
      return { ...deleted, movedTo, trash: "desktop" };
    }
  }
  const item = await toItem(deps, locked, [file, ...belongings(disk, file, sessionId)]);
  locked.forgetLeaf();
  return { ...deleted, movedTo: join(item, basename(file)), trash: "own" };
}

/** Removes a session for good: first its file, or the name by which scanners know a container, in one step. */
async function unlink(disk: Disk, file: string, others: readonly string[], locked: LockedSession): Promise<void> {
  locked.forgetLeaf();
  let rest = others;
  if (kindOf(disk, file) === "folder") {
    const [container, pointer] = [stagingName(file), pointerFile(file)];
    disk.rename(file, container);
    // A container without a pointer may be a session too.
    if (exists(disk, pointer)) disk.remove(pointer);
    rest = [container, ...others.filter((path) => path !== pointer)];
  } else disk.remove(file);
  const left: string[] = [];
  for (const path of rest)
    try {
      removeAll(disk, path);
    } catch {
      left.push(basename(path));
    }
  await disk.syncFolder(dirname(file));
  if (left.length > 0)
    throw new Failure(
      "storage_failed",
      `The session is deleted, but the disk refused to remove what belonged to it: ${left.join(", ")}.`,
      { left },
      { retryable: false },
    );
}

/** Moves files to a folder of the trash, and returns that folder. The first of them moves last. */
async function toItem(deps: LifecycleDeps, locked: LockedSession, paths: readonly string[]): Promise<string> {
  const { disk, env } = deps;
  const at = timestamp(env);
  const record: Record = { sessionId: locked.sessionId, path: locked.file, deletedAt: at, leafId: locked.leafId };
  const item = begunItem(deps, locked) ?? newItem(deps, at, locked.sessionId);
  try {
    if (!exists(disk, join(item, RECORD)))
      publishBytes(disk, join(item, RECORD), bytesOf(JSON.stringify(record)), { sync: true });
    await disk.syncFolder(item);
    const changes = paths.map((path): PathChange => [path, join(item, basename(path))]);
    await moveWith(disk, changes);
  } catch (error) {
    discardEmpty(deps, item);
    throw error;
  }
  return item;
}

/** Returns the trash folder that an interrupted deletion of the same file left. */
function begunItem(deps: LifecycleDeps, { file, sessionId }: LockedSession): string | undefined {
  const { disk } = deps;
  for (const { item, file: there, record } of itemsIn(deps))
    if (record.sessionId === sessionId && record.path === file)
      if (!exists(disk, there) || isOneFile(disk, file, there)) return item;
  return undefined;
}

/** Removes a trash folder that contains only its record. */
function discardEmpty({ disk }: LifecycleDeps, item: string): void {
  try {
    if (namesIn(disk, item).some((name) => name !== RECORD)) return;
    removeQuietly(disk, join(item, RECORD));
    disk.removeFolder(item);
  } catch {
    // The folder is ignored without its session.
  }
}

function newItem({ disk, paths }: LifecycleDeps, at: string, sessionId: string): string {
  const name = `${at.replace(/[:.]/g, "-")}_${SESSION_ID.test(sessionId) ? sessionId : "session"}`;
  for (let n = 1; ; n++) {
    const item = join(trashFolder(paths), nth(name, n, "-"));
    if (disk.makeFolder(item).includes(item)) return item;
  }
}

/** Restores a session. Throws session_not_found, already_exists, path_outside_root, storage_full, storage_failed. */
export async function restoreSession(deps: LifecycleDeps, where: Where): Promise<MovedSession> {
  const { disk } = deps;
  requireWritable(deps);
  const found = findItem(deps, where);
  if (!found)
    throw new Failure(
      "session_not_found",
      "The server's own trash has no such session. What the trash command took can be restored from the desktop's trash.",
      { ...where },
    );
  const { item, file: from, record } = found;
  const to = deps.allowed(record.path);
  const others = namesIn(disk, item).filter((name) => name !== RECORD && name !== basename(to));
  const changes = [basename(to), ...others].map((name): PathChange => [join(item, name), join(dirname(to), name)]);
  await requireWayFree(disk, changes);
  disk.makeFolder(dirname(to));
  await moveWith(disk, changes);
  await keepLeaf(deps.leaves, record.leafId, () => deps.open(to));
  discardEmpty(deps, item);
  return { sessionId: record.sessionId, sessionPath: from, movedTo: to };
}

/** A folder in the trash, with the session in it and its record. */
interface TrashItem {
  readonly item: string;
  readonly file: string;
  readonly record: Record;
}

/** Returns the most recently deleted session that fits. */
function findItem(deps: LifecycleDeps, { sessionPath, sessionId }: Where): TrashItem | undefined {
  const path = sessionPath === undefined ? undefined : deps.absolute(sessionPath);
  let newest: TrashItem | undefined;
  for (const found of itemsIn(deps)) {
    const { item, file, record } = found;
    const fits = path === undefined ? record.sessionId === sessionId : [record.path, file, item].includes(path);
    if (!fits || !exists(deps.disk, file)) continue;
    if (newest === undefined || record.deletedAt >= newest.record.deletedAt) newest = found;
  }
  return newest;
}

function* itemsIn({ disk, paths }: LifecycleDeps): Generator<TrashItem> {
  const trash = trashFolder(paths);
  for (const item of namesIn(disk, trash).map((name) => join(trash, name))) {
    const record = readRecord(disk, item);
    if (record) yield { item, file: join(item, basename(record.path)), record };
  }
}

function readRecord(disk: Disk, item: string): Record | undefined {
  try {
    const record = parse(readWhole(disk, join(item, RECORD))) as Partial<Record> | null;
    const { sessionId, path, deletedAt } = record ?? {};
    const whole = [sessionId, path, deletedAt].every((value) => typeof value === "string");
    return whole ? (record as Record) : undefined;
  } catch {
    // Not a folder of ours, or one that a crash left without its record.
    return undefined;
  }
}
