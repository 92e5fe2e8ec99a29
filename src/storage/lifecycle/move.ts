/**
 * Moves session files with the files that belong to them. Overwrites nothing, and removes an old name only when the new
 * one is on the medium, so that every byte has a name whenever a move is interrupted; and only if the old name still
 * means the moved file: programs that ignore locks may have replaced it.
 */

import { basename, dirname, join } from "node:path";
import { toDoneFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { SESSION_ID } from "../../core/format/entry.ts";
import { hasSameContent, linkOrCopy } from "../fs/chunked-io.ts";
import { CONTAINER, getPointerFile, headerFile, isContainerName } from "../fs/container-paths.ts";
import { type Disk, exists, type FileInfo, type Named, removeIfSame } from "../fs/disk.ts";
import { getInfo, readIfPresent } from "../fs/files.ts";
import { getKind, listFolder, listNames } from "../fs/folders.ts";
import { isSameFile, isUnchanged } from "../fs/stamps.ts";
import { isLockInContainer } from "../locks/lock-paths.ts";
import { readPointer } from "../v2/documents.ts";
import { findFileInLedger, getFrozenName, readContainerPointer, readOrigin } from "../v2/pointer.ts";

/** Suffixes of a session's backups, after the name of its file or container. */
const BACKUP = /^\.(?:(?:v\d+|damaged|repaired|spoilt|relocated)\.bak(?:\.\d+)?|migrated)$/;
/** Further suffixes of a container's name: of an abandoned migration, and of containers that were rolled back. */
const CONTAINER_LEFTOVER = /^\.(?:staging|rolled-back(?:\.\d+)?)$/;
/** The old and the new path of a file. */
export type PathChange = readonly [from: string, to: string];

/**
 * Returns the paths in a session's folder that belong to it: backups, attachments, a container of Session Store V2 with
 * its pointer and the file that it came from, and the container that pi_agent_rust derives from the file. The pointer
 * shows which file and which container are one session; the same id does not, because one may be a copy.
 */
export function findBelongings(disk: Disk, session: string, sessionId: string): string[] {
  const belongs = isContainerName(session) ? ofContainer(disk, session, sessionId) : ofFile(disk, session, sessionId);
  const folder = dirname(session);
  return listNames(disk, folder)
    .filter((other) => other !== basename(session) && belongs(other))
    .map((other) => join(folder, other));
}

/** True if a name is that of another file or folder of a session. */
type Belongs = (name: string) => boolean;

/** Returns the rest of a name that begins with another; an empty text for any other. */
function rest(name: string, base: string): string {
  return name.startsWith(base) ? name.slice(base.length) : "";
}

/** Returns whether a name is that of a backup of a file or container, or of the folder of its attachments. */
function isRelatedName(name: string, base: string): boolean {
  return name === `${base}.blobs` || BACKUP.test(rest(name, base));
}

function ofContainer(disk: Disk, container: string, sessionId: string): Belongs {
  const own = basename(container);
  const pointer = basename(getPointerFile(container));
  const isOwn: Belongs = (name) =>
    name === pointer || isRelatedName(name, own) || CONTAINER_LEFTOVER.test(rest(name, own));
  // In a copy, the pointer names what belongs to the original.
  const origin = own === `${sessionId}${CONTAINER}` ? originIn(disk, container) : undefined;
  if (origin === undefined) return isOwn;
  const { source, isSettled } = origin;
  // An interrupted rollback or migration left the file. Later, another program made it: it is another session.
  if (isSettled && exists(disk, join(dirname(container), source)))
    return (name) => isOwn(name) || name === getFrozenName(source);
  return (name) => isOwn(name) || name === source || isRelatedName(name, source);
}

function ofFile(disk: Disk, file: string, sessionId: string): Belongs {
  const own = basename(file);
  const derived = `${own.replace(/\.[^.]*$/, "")}${CONTAINER}`;
  const hasDerived = isDerived(disk, join(dirname(file), derived));
  const isOwn: Belongs = (name) => isRelatedName(name, own) || (hasDerived && name === derived);
  if (!SESSION_ID.test(sessionId)) return isOwn;
  const container = join(dirname(file), `${sessionId}${CONTAINER}`);
  const pointer = readContainerPointer(disk, container);
  const isOf: Belongs = (name) =>
    (pointer ? pointer.source : findFileInLedger(disk, join(dirname(file), name))) === own;
  return (name) => {
    if (isOwn(name)) return true;
    if (name === basename(getPointerFile(container))) return isOf(basename(container));
    const after = rest(name, basename(container));
    const isPart = name === basename(container) || BACKUP.test(after) || CONTAINER_LEFTOVER.test(after);
    return isPart && isOf(name);
  };
}

/** Returns whether a container was derived by pi_agent_rust: one of ours has a header, and a pointer next to it. */
function isDerived(disk: Disk, container: string): boolean {
  return ![headerFile(container), getPointerFile(container)].some((path) => exists(disk, path));
}

/** Returns the name of the file that a container came from, and whether no migration or rollback of it is under way. */
function originIn(disk: Disk, container: string): { source: string; isSettled: boolean } | undefined {
  try {
    const pointer = readPointer(disk, getPointerFile(container));
    const origin = pointer ?? readOrigin(disk, container);
    const source = typeof origin === "string" ? null : origin.source;
    if (source === null || basename(source) !== source) return undefined;
    return { source, isSettled: pointer === null || pointer.phase === "completed" };
  } catch {
    return undefined;
  }
}

/**
 * Moves a file, or a folder with its content. A file that an interrupted move left at the new path is kept if it has
 * the same content. Throws EEXIST if something else has the path, content_modified if another program changed the moved
 * file, and other errno errors.
 */
export async function movePath(disk: Disk, from: string, to: string): Promise<void> {
  const kind = getKind(disk, from);
  if (kind === undefined) throw Object.assign(new Error("nothing to move"), { code: "ENOENT" });
  if (kind === "folder") await moveFolder(disk, from, to);
  else if (kind === "link") {
    // A link at the new path counts even if it leads nowhere.
    if (kindAt(disk, to) !== undefined) throw taken();
    disk.rename(from, to);
  } else {
    const named = await nameFile(disk, from, to);
    await disk.syncFolder(dirname(to));
    removeOldName(disk, from, to, named);
  }
  await disk.syncFolder(dirname(to));
  await disk.syncFolder(dirname(from));
}

/**
 * Moves a session, which comes first, with its belongings. They get their new names before the session moves, and lose
 * their old names after it, so that the session has them at any interruption. Only links, which have one name, are
 * renamed before it. A failure restores everything or, if the disk refuses that too, leaves everything at the new
 * place.
 */
export async function moveTogether(disk: Disk, [[from, to], ...others]: readonly PathChange[]): Promise<void> {
  const steps = noSteps();
  try {
    for (const [source, target] of others) await moveOne(disk, source, target, steps);
    for (const folder of new Set(others.map(([, target]) => dirname(target)))) await disk.syncFolder(folder);
    await movePath(disk, from, to);
  } catch (error) {
    await moveBack(disk, from, to);
    // The rest of a container without its header is no session.
    const isAt = (path: string) => getInfo(disk, isContainerName(path) ? headerFile(path) : path, true) !== null;
    if (!isAt(from) && isAt(to)) {
      runQuietly(steps.end);
      throw toDoneFailure(error, "moving it", `It is at ${to} now.`);
    }
    // A failed removal leaves only a second name: the original is still in its place.
    runQuietly(steps.undo.reverse());
    throw error;
  }
  // Everything is at the new place; the files here belong to no session.
  runQuietly(steps.end);
  const folders = new Set(others.map(([source]) => dirname(source)));
  for (const folder of folders) await disk.syncFolder(folder).catch(() => {});
}

/** Steps that undo a move, the last one first, and steps that end it by removing old names. */
interface Steps {
  readonly undo: (() => void)[];
  /** Throw content_modified if another program changed the moved files. */
  readonly check: (() => void)[];
  readonly end: (() => void)[];
  /** Links that could be given no other name. */
  readonly unmovable: string[];
}

function noSteps(): Steps {
  return { undo: [], check: [], end: [], unmovable: [] };
}

function runQuietly(steps: readonly (() => void)[]): void {
  for (const step of steps)
    try {
      step();
    } catch {
      // The caller knows why the failure is harmless.
    }
}

/**
 * Gives a file, or every file in a folder, a second name. Existing files with the same content are kept. Anything else,
 * such as a link, is renamed, and stays if it cannot be.
 */
async function moveOne(disk: Disk, from: string, to: string, steps: Steps, kind = getKind(disk, from)): Promise<void> {
  const { undo, check, end, unmovable } = steps;
  if (kind === "folder") {
    requireFolderOrNothing(disk, to);
    for (const path of disk.makeFolder(to)) undo.push(() => disk.removeFolder(path));
    // We hold the lock of a container that we move, and only its holder may remove the lock file.
    for (const { name, kind } of headerLast(listFolder(disk, from)))
      if (isLockName(from, name)) end.unshift(() => disk.remove(join(from, name)));
      else await moveOne(disk, join(from, name), join(to, name), steps, kind);
    await disk.syncFolder(to);
    end.push(() => disk.removeFolder(from));
  } else if (kind === "file") {
    const named = await nameFile(disk, from, to);
    if (named.isNew) undo.push(() => removeIfSame(disk, to, named.made));
    const requireMoved = (): void => requireBoth(disk, from, to, named);
    check.push(requireMoved);
    end.unshift(() => {
      requireMoved();
      disk.remove(from);
    });
  } else if (kind !== undefined)
    if (getKind(disk, to) === undefined && rename(disk, from, to)) undo.push(() => disk.rename(to, from));
    else unmovable.push(from);
}

/** Returns the names of a folder so that a container's header comes last: a part of a container is no session. */
function headerLast(names: readonly Named[]): Named[] {
  const isHeader = ({ name }: Named): number => Number(name === basename(headerFile("")));
  return [...names].sort((a, b) => isHeader(a) - isHeader(b));
}

/** Renames a file, unless its new path is on another file system. Returns whether it did. */
function rename(disk: Disk, from: string, to: string): boolean {
  try {
    disk.rename(from, to);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EXDEV") throw error;
    return false;
  }
}

/** The facts about a file under its old name before the new one was given or compared, and under the new one since. */
interface TwoNames {
  readonly old: FileInfo;
  readonly made: FileInfo;
  /** True if the new name was given here, and not found with the same content. */
  readonly isNew: boolean;
}

/** Gives a file another name, unless that exists already with the same content. Throws EEXIST. */
async function nameFile(disk: Disk, from: string, to: string): Promise<TwoNames> {
  const old = disk.info(from, true);
  const there = readIfPresent(() => disk.info(to, true));
  if (there === null) {
    await linkOrCopy(disk, from, to);
    // Some file systems give each name of a file its own number.
    return { old, made: disk.info(to, true), isNew: true };
  }
  if (there.kind !== "file" || !(await hasSameContent(disk, from, to))) throw taken();
  return { old, made: there, isNew: false };
}

/**
 * Throws content_modified unless both names have their files: one file, or a file that has not changed since and its
 * copy. Removing the old name would lose the bytes that another program wrote there.
 */
function requireBoth(disk: Disk, from: string, to: string, { old, made }: TwoNames): void {
  const [now, there] = [disk.info(from, true), disk.info(to, true)];
  if (isSameFile(there, made) && (isSameFile(now, there) || isUnchanged(now, old))) return;
  const sentence = `Another program changed ${from} while it was moved. Its lines stay there; try again.`;
  throw new Failure("content_modified", sentence, { path: from }, { retryable: true });
}

/** Removes the old name of a file; or the new one, if it was given here and another program changed either. */
function removeOldName(disk: Disk, from: string, to: string, named: TwoNames): void {
  try {
    requireBoth(disk, from, to, named);
  } catch (error) {
    if (named.isNew) removeIfSame(disk, to, named.made);
    throw error;
  }
  disk.remove(from);
}

async function moveBack(disk: Disk, from: string, to: string): Promise<void> {
  try {
    if (getKind(disk, to) === undefined) return;
    if (getKind(disk, from) === undefined) await movePath(disk, to, from);
    else if (getKind(disk, to) === "file") removeOldName(disk, to, from, await nameFile(disk, to, from));
  } catch {
    // It has one name or the other; the same request again continues from there.
  }
}

async function moveFolder(disk: Disk, from: string, to: string): Promise<void> {
  requireFolderOrNothing(disk, to);
  if (kindAt(disk, to) === undefined && rename(disk, from, to)) return;
  // On another file system, all files are there before any is removed here: half of a container is no session.
  const steps = noSteps();
  try {
    await moveOne(disk, from, to, steps, "folder");
    if (steps.unmovable.length > 0) throw Object.assign(new Error("a link cannot be moved there"), { code: "EXDEV" });
    await disk.syncFolder(dirname(to));
    for (const check of steps.check) check();
    // A container's header goes first; the rest is no session then.
    steps.end.shift()?.();
  } catch (error) {
    runQuietly(steps.undo.reverse());
    throw error;
  }
  // Files that another program adds from now on stay here.
  runQuietly(steps.end);
}

/**
 * Returns whether a name is that of the lock in a container, or of the lock's note. Neither is moved: opening the lock
 * file and closing it again, to copy or compare it, would release the lock.
 */
function isLockName(folder: string, name: string): boolean {
  return isContainerName(basename(folder)) && isLockInContainer(name);
}

/** Throws already_exists if something else has a new path; files left by an interrupted move do not count. */
export async function requireFreePaths(
  disk: Disk,
  changes: readonly PathChange[],
  details: object = {},
): Promise<void> {
  for (const [from, to] of changes) if (await isInTheWay(disk, from, to)) throw makeTakenFailure(to, details);
}

async function isInTheWay(disk: Disk, from: string, to: string): Promise<boolean> {
  const there = kindAt(disk, to);
  if (there === undefined) return false;
  const kind = getKind(disk, from);
  const isFolder = kind === "folder";
  if (isFolder !== (there === "folder")) return true;
  // Only a file can be a second name, and opening a link that leads nowhere would fail.
  if (!isFolder) return kind !== "file" || there !== "file" || !(await hasSameContent(disk, from, to));
  for (const name of listNames(disk, to)) {
    const isOther = isLockName(to, name) || kindAt(disk, join(from, name)) === undefined;
    if (!isOther && (await isInTheWay(disk, join(from, name), join(to, name)))) return true;
  }
  return false;
}

/** Throws EEXIST unless a path is a folder or missing; a link that leads nowhere is neither. */
function requireFolderOrNothing(disk: Disk, path: string): void {
  const there = kindAt(disk, path);
  if (there !== undefined && there !== "folder") throw taken();
}

/** Returns the kind of a path itself without listing its folder, which may hold thousands. Throws errno errors. */
function kindAt(disk: Disk, path: string): FileInfo["kind"] | undefined {
  return readIfPresent(() => disk.info(path, true))?.kind;
}

function taken(): Error {
  return Object.assign(new Error("the name is taken"), { code: "EEXIST" });
}

export function makeTakenFailure(path: string, details: object = {}): Failure {
  const sentence = `Something exists at ${path} already. Move it away or delete it first.`;
  return new Failure("already_exists", sentence, { ...details, path });
}
