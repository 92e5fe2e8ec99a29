/** Moves a session to another working directory: only the bytes of its header's cwd change. */

import { basename, dirname, join, resolve } from "node:path";
import { toUnfinishedFailure } from "../../core/errno.ts";
import { BadParams, describeUnchanged, Failure } from "../../core/failure.ts";
import { replaceMember } from "../../core/format/entry.ts";
import { areSameBytes, toBytes } from "../../core/json/json.ts";
import type { MovedSession, MoveOptions, Relocated } from "../../core/ports/lifecycle.ts";
import type { OperationStep, StepOf } from "../../core/ports/operations.ts";
import { DID } from "../../core/session/history.ts";
import { copyBytes, cutBack, hasSameBytes } from "../fs/chunked-io.ts";
import { headerFile, isContainerName } from "../fs/container-paths.ts";
import { type Disk, exists, type FileInfo, getInfoIfPresent, isAbsent, writeAll } from "../fs/disk.ts";
import { addNumber, findLastName, getInfo, useFile, writeTemporary } from "../fs/files.ts";
import type { HeaderPlace } from "../fs/header.ts";
import { getSessionFolder, isSessionName, makeFileName, type StoragePaths } from "../fs/paths.ts";
import { isOneFile, isSameFile, isUnchanged } from "../fs/stamps.ts";
import { isLock, type Lock } from "../locks/contract.ts";
import { locateLockInFolder } from "../locks/lock-paths.ts";
import { keepLeaf } from "../log/leaf-store.ts";
import { type LifecycleDeps, type LockedSession, requireAsSeen } from "./exclusive.ts";
import { getPreviousCwd, readHeaderLine, readHeaderText, requireHeaderText } from "./header-lines.ts";
import { findBelongings, makeTakenFailure, moveTogether, type PathChange, requireFreePaths } from "./move.ts";
import { describeSession, getTitleFacts, runRecorded } from "./recorded.ts";

const RELOCATING = "relocating the session";

/**
 * Gives a session another working directory. The end of a relocation that was interrupted before the last lines came is
 * no operation. Throws BadParams without such a directory, and the errors of `relocate`.
 */
export async function relocateSession(
  deps: LifecycleDeps,
  locked: LockedSession,
  wanted: string,
  allowMissing: boolean,
  options: MoveOptions,
): Promise<Relocated> {
  requireAsSeen(deps, locked, options);
  const cwd = resolve(deps.absolute(wanted));
  if (!allowMissing) requireFolder(deps, cwd);
  const facts = getTitleFacts(locked.log);
  const house = { cwd, place: placeFor(deps, locked, cwd), rewrite: rewriterTo(cwd) };
  const ends = endsOf(deps, locked, house);
  if (isRelocated(ends) && (await finishLate(deps, ends.file))) {
    const { file: movedTo } = ends;
    const { sessionId, file: sessionPath } = locked;
    return { sessionId, sessionPath, movedTo, keptAt: originalOf(deps, movedTo, cwd) };
  }
  requireWork(ends);
  const { file: from, to } = ends;
  const step = {
    do: "relocate" as const,
    from,
    to,
    cwd,
    header: headerBefore(deps, locked, cwd),
  };
  const text = `${DID.relocate} ${facts.title} to ${cwd}.`;
  return runRecorded(
    deps,
    { kind: "relocate", group: options.group, ...describeSession(locked, facts), text, step },
    async ({ id: operationId }) => ({ operationId, ...(await relocate(deps, locked, house)) }),
    ({ movedTo, keptAt }) => ({ step: { ...step, to: movedTo, keptAt } }),
  );
}

/** Relocates a session that was relocated before, as part of another operation. */
export async function relocateAgain(deps: LifecycleDeps, locked: LockedSession, cwd: string): Promise<OperationStep> {
  const header = headerBefore(deps, locked, cwd);
  const house = { cwd, place: placeFor(deps, locked, cwd), rewrite: rewriterTo(cwd) };
  const { sessionPath: from, movedTo: to, keptAt } = await relocate(deps, locked, house);
  return { do: "relocate", from, to, cwd, header, keptAt };
}

/**
 * Undoes a relocation: the header gets its old bytes back, unless they changed since, and the file its former path.
 * Kept originals are removed once all their bytes are in the file again.
 */
export async function returnSession(
  deps: LifecycleDeps,
  locked: LockedSession,
  { from, cwd, header, keptAt }: StepOf<"relocate">,
): Promise<OperationStep> {
  const { disk } = deps;
  const before = Buffer.from(header, "latin1");
  const old = getPreviousCwd({ header });
  const rewrite = (line: Uint8Array): Uint8Array => {
    if (areSameBytes(rewriterTo(cwd)(before), line)) return before;
    return old === undefined ? line : rewriterTo(old)(line);
  };
  const place = deps.allowed(from);
  const { sessionPath, movedTo } = await relocate(deps, locked, { cwd: old, place, rewrite });
  await dropRedundant(disk, place, keptAt, [before, rewriterTo(cwd)(before)]);
  return { do: "return", from: sessionPath, to: movedTo, cwd };
}

/**
 * Gives a session the directory that other machines gave it, below the given folders, and returns its path. The
 * original is removed if all its bytes, except the directory's, are in the file.
 */
export async function adoptDirectory(
  deps: LifecycleDeps,
  locked: LockedSession,
  cwd: string,
  paths: StoragePaths,
): Promise<string> {
  const before = Buffer.from(headerBefore({ ...deps, paths }, locked, cwd), "latin1");
  const place = deps.allowed(placeFor({ paths }, locked, cwd));
  const { movedTo, keptAt } = await relocate(deps, locked, { cwd, place, rewrite: rewriterTo(cwd) });
  await dropRedundant(deps.disk, movedTo, keptAt, [before]);
  return movedTo;
}

/** Returns whether a relocation of a file to this directory was interrupted before the file was moved. */
export function isInterrupted(disk: Disk, paths: StoragePaths, file: string, cwd: string): boolean {
  const kept = lastBackup({ disk }, file);
  if (kept === undefined) return false;
  const isIn = (of: string): boolean => isSameName(disk, file, join(getSessionFolder(paths, of), basename(file)));
  try {
    const old = getPreviousCwd({ header: requireHeaderText(disk, kept) });
    return old !== undefined && old !== cwd && isIn(old) && !isIn(cwd);
  } catch {
    return false;
  }
}

/**
 * Removes the originals of a relocation and of its undo, from the first on: those with one of these headers whose
 * entries are the beginning of the file's. Best effort.
 */
async function dropRedundant(
  disk: Disk,
  session: string,
  keptAt: string | null | undefined,
  headers: readonly Uint8Array[],
): Promise<void> {
  const file = isContainerName(session) ? headerFile(session) : session;
  const first = Number(/\.relocated\.bak(?:\.(\d+))?$/.exec(keptAt ?? "")?.[1] ?? 1);
  const kept: string[] = [];
  for (let n = first; exists(disk, backupOf(file, n)); n++) kept.push(backupOf(file, n));
  try {
    for (const path of kept) {
      const found = await comparedWith(disk, path, file);
      const isOurs = headers.some((header) => areSameBytes(header, found.header));
      if (isOurs && isWhole(found) && isUnchanged(disk.info(path), found.old)) disk.remove(path);
    }
    await disk.syncFolder(dirname(file));
  } catch {
    // They stay next to the session, as after a relocation.
  }
}

/** An original next to the session that was made from it. */
interface Compared {
  /** The header's line of the original. */
  readonly header: Uint8Array;
  /** Number of bytes after all those of the session, negative if the session has more; undefined if they differ. */
  readonly rest: number | undefined;
  /** The original, and the session's file. */
  readonly old: FileInfo;
  readonly now: FileInfo;
}

/** Compares the bytes after the headers of an original and of its session. Throws corrupt. */
function comparedWith(disk: Disk, kept: string, file: string): Promise<Compared> {
  return useFile(disk, disk.openRead(kept), (ofOld) =>
    useFile(disk, disk.openRead(file), async (ofNow) => {
      const [old, now] = [disk.infoOf(ofOld), disk.infoOf(ofNow)];
      const [oldHeader, nowHeader] = [
        readHeaderLine(disk, ofOld, old.size, kept),
        readHeaderLine(disk, ofNow, now.size, file),
      ];
      const [oldBody, nowBody] = [oldHeader, nowHeader].map(({ start, line }) => start + line.length);
      const [had, has] = [old.size - oldBody, now.size - nowBody];
      const isPart = await hasSameBytes(disk, [ofOld, oldBody], [ofNow, nowBody], Math.min(had, has));
      return { header: oldHeader.line, rest: isPart ? had - has : undefined, old, now };
    }),
  );
}

/** Returns whether a session file has all bytes after the header of an original. Throws corrupt. */
export async function hasAllBytes(disk: Disk, file: string, kept: string): Promise<boolean> {
  return isWhole(await comparedWith(disk, kept, file));
}

function isWhole({ rest }: Compared): boolean {
  return rest !== undefined && rest <= 0;
}

/**
 * Appends the lines that only the last original has, if a relocation was interrupted before they came. Returns whether
 * there were any.
 */
async function finishLate(deps: LifecycleDeps, session: string): Promise<boolean> {
  const { disk } = deps;
  const kept = lastBackup(deps, session);
  if (kept === undefined || isContainerName(session)) return false;
  // An unreadable original stays next to the session, as before.
  const found = await comparedWith(disk, kept, session).catch(() => undefined);
  if (found?.rest === undefined || found.rest <= 0) return false;
  await copyLateWrites(disk, kept, session, found.old.size - found.rest, (now) => isUnchanged(now, found.now));
  return true;
}

function rewriterTo(cwd: string): (line: Uint8Array) => Uint8Array {
  return (line) => replaceMember(line, "cwd", toBytes(JSON.stringify(cwd)));
}

/**
 * Returns the header line of a session before a relocation, a character for a byte. A relocation to the same directory
 * may have been interrupted: then the session is where the directory in its last original belongs. Elsewhere, as in the
 * archive, that relocation ended, and the session was moved since.
 */
function headerBefore(deps: LifecycleDeps, locked: LockedSession, cwd: string): string {
  const { disk } = deps;
  const { file, log } = locked;
  const kept = log.header.cwd === cwd ? lastBackup(deps, file) : undefined;
  const header = kept === undefined ? undefined : requireHeaderText(disk, kept);
  const old = header === undefined ? undefined : getPreviousCwd({ header });
  const wasCutOff = old !== undefined && isSameName(disk, file, placeFor(deps, locked, old));
  return wasCutOff ? (header as string) : requireHeaderText(disk, file);
}

/** Returns the path of the original of a session that got this directory here; null if it had it before. */
function originalOf(deps: LifecycleDeps, file: string, cwd: string): string | null {
  const kept = lastBackup(deps, file);
  return kept === undefined || getPreviousCwd({ header: readHeaderText(deps, kept) }) === cwd ? null : kept;
}

/** Returns the path of the last original of a relocated session. */
function lastBackup({ disk }: Pick<LifecycleDeps, "disk">, file: string): string | undefined {
  return findLastName(disk, (n) => backupOf(isContainerName(file) ? headerFile(file) : file, n));
}

function placeFor({ paths }: Pick<LifecycleDeps, "paths">, { file, log }: LockedSession, cwd: string): string {
  const called = basename(file);
  return join(
    getSessionFolder(paths, cwd),
    isContainerName(file) || isSessionName(called) ? called : makeFileName(log.header),
  );
}

/** A working directory, the path that belongs to it, and the header line that names it. */
interface Destination {
  readonly cwd: string | undefined;
  readonly place: string;
  readonly rewrite: (line: Uint8Array) => Uint8Array;
}

/** The old and new path of a session, and whether its header is the wanted one. */
interface RelocationEnds {
  readonly file: string;
  readonly to: string;
  readonly isRewritten: boolean;
}

/** Returns the work of a relocation. Throws already_exists for a session with a name that an interrupted move left. */
function endsOf(deps: LifecycleDeps, locked: LockedSession, { cwd, place }: Destination): RelocationEnds {
  const { header } = locked.log;
  const isRewritten = header.cwd === cwd;
  // A folder may have two paths; the session is not moved from one to the other.
  const isThere = isSameName(deps.disk, locked.file, place);
  const other = otherName(deps, locked);
  if (other !== undefined && !isRewritten)
    throw new Failure(
      "already_exists",
      `The session also has the name ${other}, left by an interrupted move. Relocate it to ${header.cwd} once more, ` +
        "or remove that name, first.",
      { path: other },
    );
  const file = isThere ? (other ?? locked.file) : locked.file;
  const to = isThere && other === undefined ? locked.file : place;
  return { file, to, isRewritten };
}

/** Returns whether there is nothing to do. */
function isRelocated({ file, to, isRewritten }: RelocationEnds): boolean {
  return isRewritten && to === file;
}

/** Throws already_exists if there is nothing to do. */
function requireWork(ends: RelocationEnds): void {
  if (isRelocated(ends))
    throw new Failure("already_exists", "The session has this working directory already.", { path: ends.file });
}

/**
 * Gives a session another header and path: first rewrites its header in place, then moves it. So at any time there is
 * one session, or two names of one, and the same request continues after an interruption. Throws already_exists,
 * corrupt if the header is damaged, content_modified if another program keeps writing.
 */
async function relocate(
  deps: LifecycleDeps,
  locked: LockedSession,
  house: Destination,
): Promise<MovedSession & { readonly keptAt: string }> {
  const { disk } = deps;
  const { sessionId, leafId } = locked;
  const { rewrite } = house;
  const isContainer = isContainerName(locked.file);
  const ends = endsOf(deps, locked, house);
  requireWork(ends);
  const { file, to, isRewritten } = ends;
  const [oldName, newName] = [basename(file), basename(to)];
  const newPath = (path: string): string => {
    const name = basename(path);
    return join(dirname(to), name.startsWith(oldName) ? newName + name.slice(oldName.length) : name);
  };
  const changeOf = (path: string): PathChange => [path, newPath(path)];
  const others = findBelongings(disk, file, sessionId);
  if (to !== file) await requireFreePaths(disk, [file, ...others].map(changeOf));
  // A container has its header in a separate file, and only that is rewritten.
  const rewritten = isContainer ? headerFile(file) : file;
  const isInUse = (backup: string): boolean => !isContainer && to !== file && !isAbsent(disk, newPath(backup));
  const earlier = isRewritten ? lastBackup(deps, file) : undefined;
  if (earlier !== undefined) await finishLate(deps, file);
  const backup = earlier ?? freeBackup(disk, rewritten, isInUse);
  let lock: Lock | undefined;
  try {
    // Our lock is that of the file being replaced. The one in a container belongs to the container.
    const claim = (written: FileInfo): void => {
      if (!isContainer) lock = claimed(deps, file, written);
    };
    const made = earlier === undefined ? await replace(disk, rewritten, backup, { rewrite, claim }) : undefined;
    if (to !== file)
      try {
        disk.makeFolder(dirname(to));
        const along = isContainer ? others : new Set([...others, join(dirname(file), basename(backup))]);
        await moveTogether(disk, [file, ...along].map(changeOf));
      } catch (error) {
        if (made === undefined || putBack(disk, backup, rewritten, made, to)) throw error;
        throw toUnfinishedFailure(
          error,
          RELOCATING,
          `${file} has the new directory in its header already, and is not in that directory's folder. Relocate it there once more.`,
        );
      }
  } finally {
    lock?.release();
  }
  locked.forgetLeaf();
  await keepLeaf(deps.leaves, leafId, () => deps.open(to));
  const keptAt = isContainer ? join(to, basename(backup)) : newPath(backup);
  return { sessionId, sessionPath: file, movedTo: to, keptAt };
}

/** Takes the lock of a file that is about to become a session's; undefined if it is refused, which is harmless. */
function claimed({ locks }: LifecycleDeps, file: string, { device, inode }: FileInfo): Lock | undefined {
  try {
    const lock = locks.acquire({ device, inode }, locateLockInFolder(dirname(file), inode));
    return isLock(lock) ? lock : undefined;
  } catch {
    return undefined;
  }
}

function requireFolder({ disk, allowed }: LifecycleDeps, cwd: string): void {
  try {
    allowed(cwd);
  } catch {
    // A confined server reads nothing outside its folders, and the working directory need not lie in them.
    return;
  }
  const found = getInfoIfPresent(disk, cwd);
  if (found?.kind === "folder") return;
  const reason = found === null ? `there is no folder ${cwd}` : `${cwd} is not a folder`;
  const message = `${reason}. Correct the path or create the folder first; allowMissing accepts the path of another machine as it is.`;
  throw new BadParams([{ path: "cwd", message }]);
}

/** Returns the second name of a session file, which an interrupted move left in another folder. */
function otherName({ disk, withId }: LifecycleDeps, { file, sessionId }: LockedSession): string | undefined {
  if (isContainerName(file) || disk.info(file).links === 1) return undefined;
  return withId(sessionId).find(
    (other) => dirname(other) !== dirname(file) && !isSameName(disk, other, file) && isOneFile(disk, other, file),
  );
}

/** Returns whether two paths are one name in one folder. */
function isSameName(disk: Disk, a: string, b: string): boolean {
  if (basename(a) !== basename(b)) return false;
  if (dirname(a) === dirname(b)) return true;
  try {
    return disk.realPath(dirname(a)) === disk.realPath(dirname(b));
  } catch {
    // One of the folders is missing.
    return false;
  }
}

/**
 * Restores a file from its backup, unless another program wrote to our new file or to its new name. Returns whether our
 * file is gone from there.
 */
function putBack(disk: Disk, backup: string, file: string, made: FileInfo, to: string): boolean {
  try {
    const now = getInfoIfPresent(disk, file);
    if (now === null || !isSameFile(now, made)) return true;
    if (now.size !== made.size || !isAbsent(disk, to)) return false;
    disk.rename(backup, file);
    return true;
  } catch {
    // If the disk refuses that too, the same request continues from there.
    return false;
  }
}

interface Rewriting extends Pick<Destination, "rewrite"> {
  /** Is called with the new file before that becomes the session's. */
  claim(written: FileInfo): void;
}

/**
 * Replaces a file by a copy with another cwd, and renames the old file. Returns the new one. A failure restores the old
 * file, unless another program wrote to the copy. Throws content_modified if one replaced it.
 */
async function replace(disk: Disk, file: string, keptAt: string, { rewrite, claim }: Rewriting): Promise<FileInfo> {
  let made: FileInfo | undefined;
  let old: FileInfo | undefined;
  try {
    let size = 0;
    const fill = (copy: number): Promise<void> =>
      useFile(disk, disk.openRead(file), async (source) => {
        old = disk.infoOf(source);
        size = old.size;
        const header = readHeaderLine(disk, source, size, file);
        const line = rewrite(header.line);
        disk.copyMode(file, copy);
        await copySession(disk, [source, copy], size, header, line);
        await disk.sync(copy);
        requireOld(disk.infoOf(source), old);
      });
    await writeTemporary(disk, file, fill, { sync: false }, async (temporary) => {
      if (isAbsent(disk, keptAt)) disk.link(file, keptAt);
      else if (!isOneFile(disk, file, keptAt)) throw makeTakenFailure(keptAt);
      await disk.syncFolder(dirname(file));
      const written = disk.info(temporary);
      claim(written);
      requireOld(disk.info(file), old);
      disk.rename(temporary, file);
      made = written;
    });
    await disk.syncFolder(dirname(file));
    const isMade = (found: FileInfo): boolean => made !== undefined && isSameFile(found, made);
    await copyLateWrites(disk, keptAt, file, size, isMade);
    const now = disk.info(file);
    if (!isMade(now)) throw rewritten();
    return now;
  } catch (error) {
    if (made) {
      const now = getInfo(disk, file);
      const isAsMade = now !== null && isSameFile(now, made) && now.size === made.size;
      if (!isAsMade) throw toUnfinishedFailure(error, RELOCATING, writtenSince(file, keptAt), { keptAt });
      disk.rename(keptAt, file);
    } else {
      // The file has its name still, or had it until another program replaced it.
      const kept = getInfo(disk, keptAt);
      const others = [old, getInfo(disk, file)];
      if (kept && others.some((other) => other && isSameFile(kept, other))) disk.remove(keptAt);
    }
    throw error;
  }
}

/** Throws content_modified unless a file is the copied one, and has changed only by appended bytes. */
function requireOld(now: FileInfo, old: FileInfo | undefined): void {
  const isOld = old !== undefined && isSameFile(now, old) && (now.size > old.size || isUnchanged(now, old));
  if (!isOld) throw rewritten();
}

function rewritten(): Failure {
  return new Failure("content_modified", describeUnchanged("Another program rewrote the session meanwhile."));
}

function writtenSince(file: string, keptAt: string): string {
  return `${file} stays as it is, because another program wrote to it after it got the new directory; as it was before, it is at ${keptAt}. Relocate the session once more.`;
}

/** Copies an open session file of this size to another, with another header line. */
export async function copySession(
  disk: Disk,
  [source, copy]: readonly [number, number],
  size: number,
  { start, line }: HeaderPlace,
  header: Uint8Array,
  done?: (at: number) => void,
): Promise<void> {
  await copyBytes(disk, source, copy, 0, start);
  writeAll(disk, copy, header);
  await copyBytes(disk, source, copy, start + line.length, size, done);
}

/**
 * Appends the bytes that programs without our locks wrote to the old file, from this offset on, until it lost its name;
 * none of them after a failure. Throws content_modified if the file was replaced.
 */
function copyLateWrites(
  disk: Disk,
  old: string,
  file: string,
  size: number,
  isMeant: (found: FileInfo) => boolean,
): Promise<void> {
  return useFile(disk, disk.openRead(old), async (source) => {
    const now = disk.infoOf(source).size;
    if (now <= size) return;
    await useFile(disk, disk.openAppend(file), async (target) => {
      const found = disk.infoOf(target);
      if (!isMeant(found)) throw rewritten();
      try {
        await copyBytes(disk, source, target, size, now);
        await disk.sync(target);
      } catch (error) {
        await cutBack(disk, [source, size], target, found.size);
        throw error;
      }
    });
  });
}

function backupOf(file: string, n: number): string {
  return addNumber(`${file}.relocated.bak`, n);
}

/** Returns a free name for the backup of a file, or the one from an earlier attempt. */
function freeBackup(disk: Disk, file: string, isInUse: (backup: string) => boolean): string {
  for (let n = 1; ; n++) {
    const backup = backupOf(file, n);
    if (isAbsent(disk, backup) ? !isInUse(backup) : isOneFile(disk, file, backup)) return backup;
  }
}
