/**
 * Session files under way from one place to another, with what belongs to them. Nothing is overwritten, and a name goes
 * only when the new one is on the medium, so that whatever interrupts it, every byte has a name.
 */

import { basename, dirname, join } from "node:path";
import { isMissing } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { SESSION_ID } from "../../core/format/entry.ts";
import { copyFile, sameContent } from "../fs/chunked-io.ts";
import { isContainerName, pointerFile } from "../fs/container-paths.ts";
import { type Disk, exists, type Named } from "../fs/disk.ts";
import { isSessionName } from "../fs/paths.ts";
import { isLockInContainer } from "../locks/lock-paths.ts";
import { readPointer } from "../v2/documents.ts";
import { originOf } from "../v2/pointer.ts";

/** What the names of a session's own backups have behind that of its file or container. */
const BACKUP = /^\.(?:(?:v\d+|damaged|relocated)\.bak(?:\.\d+)?|migrated)$/;
/** What those of a container have besides: what a migration that was given up left, and containers that were rolled back. */
const ASIDE = /^\.(?:staging|rolled-back(?:\.\d+)?)$/;

/**
 * What lies beside a session and belongs to it, by name: backups, attachments, a container of Session Store V2 with its
 * pointer and the file that it came from, and what pi_agent_rust derives from the file.
 */
export function belongings(disk: Disk, session: string, sessionId: string): string[] {
  const folder = dirname(session);
  const name = basename(session);
  const names = namesIn(disk, folder);
  const bases = [name];
  const own = new Set<string>();
  let container: string | undefined;
  if (isContainerName(name)) {
    container = name;
    own.add(basename(pointerFile(session)));
    const source = sourceOf(disk, session);
    if (source !== null) bases.push(source);
  } else {
    own.add(`${name.replace(/\.[^.]*$/, "")}.v2`);
    // A container is that of the id; where two files have the same, it stays with the other.
    const shared = names.some((other) => other !== name && isSessionName(other) && other.includes(sessionId));
    if (SESSION_ID.test(sessionId) && !shared) {
      container = `${sessionId}.v2`;
      own.add(container).add(basename(pointerFile(join(folder, container))));
      bases.push(container);
    }
  }
  for (const base of bases) own.add(`${base}.blobs`);
  const rest = (other: string, base: string): string => (other.startsWith(base) ? other.slice(base.length) : "");
  const belongs = (other: string): boolean =>
    own.has(other) ||
    bases.some((base) => BACKUP.test(rest(other, base))) ||
    (container !== undefined && ASIDE.test(rest(other, container)));
  return names.filter((other) => other !== name && belongs(other));
}

/** The name of the file that a container was migrated from, if it was and its pointer can be read, or is missing. */
function sourceOf(disk: Disk, container: string): string | null {
  try {
    const origin = readPointer(disk, pointerFile(container)) ?? originOf(disk, container);
    const source = typeof origin === "string" ? null : origin.source;
    return source !== null && basename(source) === source ? source : null;
  } catch {
    return null;
  }
}

/** Nothing where there is no such folder. */
export function namesIn(disk: Disk, folder: string): string[] {
  return entriesIn(disk, folder)
    .map(({ name }) => name)
    .sort();
}

/** What stands in a folder; links are told as such. */
function entriesIn(disk: Disk, folder: string): Named[] {
  try {
    if (disk.list) return disk.list(folder);
    return disk.names(folder).map((name) => ({ name, kind: disk.info(join(folder, name)).kind }));
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

/** What a path is itself, not what it may link to; undefined when there is nothing. */
export function kindOf(disk: Disk, path: string): Named["kind"] | undefined {
  return entriesIn(disk, dirname(path)).find(({ name }) => name === basename(path))?.kind;
}

/**
 * Moves a file or a folder with all that is in it. What an interrupted move left at the new place is taken as it is
 * when it is the same. Throws EEXIST when something else stands there, and other errno errors.
 */
export async function move(disk: Disk, from: string, to: string, kind = kindOf(disk, from)): Promise<void> {
  if (kind === undefined) throw Object.assign(new Error("nothing to move"), { code: "ENOENT" });
  if (kind === "folder") await moveFolder(disk, from, to);
  else if (kind === "link") disk.rename(from, free(disk, to));
  else await moveFile(disk, from, to);
  await disk.syncFolder(dirname(to));
  await disk.syncFolder(dirname(from));
}

/**
 * Moves something with what belongs to it: that is at the new place before it comes, and leaves the old one after it
 * went, so that wherever this is interrupted nothing is where the rest of it is not. When something fails, all is as
 * before.
 */
export async function moveWith(
  disk: Disk,
  [from, to]: readonly [from: string, to: string],
  others: readonly (readonly [from: string, to: string])[],
): Promise<void> {
  const made: { path: string; isFolder: boolean }[] = [];
  try {
    for (const [source, target] of others) await bring(disk, source, target, made);
    for (const folder of new Set(others.map(([, target]) => dirname(target)))) await disk.syncFolder(folder);
    await move(disk, from, to);
  } catch (error) {
    await moveBack(disk, from, to);
    for (const { path, isFolder } of made.reverse())
      try {
        if (isFolder) disk.removeFolder(path);
        else disk.remove(path);
      } catch {
        // A second name of what is still in its place.
      }
    throw error;
  }
  for (const [source] of others)
    try {
      removeTree(disk, source);
    } catch {
      // All of it is at the new place; what stays here belongs to nothing.
    }
  const folders = new Set(others.map(([source]) => dirname(source)));
  for (const folder of folders) await disk.syncFolder(folder).catch(() => {});
}

/** Gives a file a second name, or every file of a folder; what is the same there already is left alone. */
async function bring(
  disk: Disk,
  from: string,
  to: string,
  made: { path: string; isFolder: boolean }[],
  kind = kindOf(disk, from),
): Promise<void> {
  if (kind === "folder") {
    for (const path of disk.makeFolder(to)) made.push({ path, isFolder: true });
    for (const entry of entriesIn(disk, from))
      if (!staysHere(from, entry.name))
        await bring(disk, join(from, entry.name), join(to, entry.name), made, entry.kind);
    await disk.syncFolder(to);
  } else if (kind === "file") {
    if (exists(disk, to)) {
      if (!(await sameContent(disk, from, to))) throw taken();
      return;
    }
    await giveName(disk, from, to);
    made.push({ path: to, isFolder: false });
  }
}

async function moveBack(disk: Disk, from: string, to: string): Promise<void> {
  try {
    if (kindOf(disk, to) === undefined) return;
    if (kindOf(disk, from) === undefined) await move(disk, to, from);
    else if (kindOf(disk, to) === "file" && (await sameContent(disk, from, to))) disk.remove(to);
  } catch {
    // It has one name or the other; the same request again goes on from there.
  }
}

async function moveFile(disk: Disk, from: string, to: string): Promise<void> {
  if (exists(disk, to)) {
    if (!(await sameContent(disk, from, to))) throw taken();
  } else await giveName(disk, from, to);
  await disk.syncFolder(dirname(to));
  disk.remove(from);
}

/** Gives a file another name that is free, on another file system by a copy. */
async function giveName(disk: Disk, from: string, to: string): Promise<void> {
  try {
    disk.link(from, to);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EEXIST") throw error;
    // Another file system, or one without hard links.
    await copyFile(disk, from, to, true);
  }
}

async function moveFolder(disk: Disk, from: string, to: string): Promise<void> {
  if (!exists(disk, to))
    try {
      disk.rename(from, to);
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EXDEV") throw error;
    }
  disk.makeFolder(to);
  // Whoever moves a container holds its lock, and nobody else may remove that.
  for (const { name, kind } of entriesIn(disk, from))
    if (staysHere(from, name)) disk.remove(join(from, name));
    else await move(disk, join(from, name), join(to, name), kind);
  disk.removeFolder(from);
}

/**
 * Whether something is the lock in a container, which no other container gets, or the note about it. Opening it and
 * closing it again to copy or compare it would let go of the lock.
 */
function staysHere(folder: string, name: string): boolean {
  return isContainerName(basename(folder)) && isLockInContainer(name);
}

/** Whether something else stands at the new place of what is to be moved; what an interrupted move left there is not. */
export async function isInTheWay(disk: Disk, from: string, to: string): Promise<boolean> {
  if (!exists(disk, to)) return false;
  const kind = kindOf(disk, from);
  if (kind !== "folder" || kindOf(disk, to) !== "folder")
    return kind === "folder" || kindOf(disk, to) === "folder" || !(await sameContent(disk, from, to));
  for (const name of namesIn(disk, to))
    if (
      !staysHere(to, name) &&
      exists(disk, join(from, name)) &&
      (await isInTheWay(disk, join(from, name), join(to, name)))
    )
      return true;
  return false;
}

export function isOneFile(disk: Disk, a: string, b: string): boolean {
  const [first, second] = [disk.info(a), disk.info(b)];
  return first.device === second.device && first.inode === second.inode;
}

/** Removes a file, or a folder with all that is in it; links are removed, not followed. */
export function removeTree(disk: Disk, path: string, kind = kindOf(disk, path)): void {
  if (kind !== "folder") {
    disk.remove(path);
    return;
  }
  for (const entry of entriesIn(disk, path)) removeTree(disk, join(path, entry.name), entry.kind);
  disk.removeFolder(path);
}

function free(disk: Disk, path: string): string {
  if (exists(disk, path)) throw taken();
  return path;
}

function taken(): Error {
  return Object.assign(new Error("the name is taken"), { code: "EEXIST" });
}

/** The path of a session that is to be moved: where it really lies, if the name is a link. */
export function withoutLink(disk: Disk, file: string): string {
  return kindOf(disk, file) === "link" ? disk.realPath(file) : file;
}

/** Returns a path without links in it, or as it is where nothing has it. */
export function realPathOr(disk: Disk, path: string): string {
  try {
    return disk.realPath(path);
  } catch {
    return path;
  }
}

export function alreadyThere(path: string): Failure {
  return new Failure("already_exists", `There is something at ${path} already. Move that away, or delete it, first.`, {
    path,
  });
}
