/** A session in another working directory: only the bytes of its header's cwd change. */

import { basename, dirname, join } from "node:path";
import { Failure } from "../../failure.ts";
import { bytesOf, memberOf, members, parse, skipSpace } from "../../json.ts";
import type { Relocated } from "../../lifecycle.ts";
import {
  closeQuietly,
  type Disk,
  exists,
  type FileInfo,
  removeQuietly,
  takeName,
  temporaryName,
  writeAll,
} from "../disk.ts";
import { withMember } from "../jsonl/reader.ts";
import { fileName, folderFor, isSessionName } from "../paths.ts";
import { copyBytes, piecesOf, sameContent } from "../pieces.ts";
import { headerFile, isContainerName } from "../segmented/places.ts";
import type { Hold, Keeping } from "./keeping.ts";
import { alreadyThere, belongings, isInTheWay, isOneFile, moveWith } from "./moving.ts";

/** A longer header is none that is rewritten. */
const MOST_HEADER = 64 << 20;

/** Throws already_exists, corrupt when the header is damaged, content_modified when others keep writing. */
export async function relocateSession(keeping: Keeping, held: Hold, wanted: string): Promise<Relocated> {
  const { disk, places } = keeping;
  const { file, sessionId, log, leafId } = held;
  const cwd = keeping.absolute(wanted);
  const isContainer = isContainerName(file);
  const name = isContainer || isSessionName(basename(file)) ? basename(file) : fileName(log.header);
  const to = join(folderFor(places, cwd), name);
  if (log.header.cwd === cwd && to === file)
    throw new Failure("already_exists", "The session has this working directory already.", { path: file });
  const others = belongings(disk, file, sessionId);
  disk.makeFolder(dirname(to));
  if (isContainer) return relocateContainer(keeping, held, cwd, to);
  const keptAt = backupName(disk, file, to);
  if (to === file) await replace(disk, file, keptAt, cwd);
  else {
    const nameOf = (other: string): string =>
      other.startsWith(basename(file)) ? name + other.slice(basename(file).length) : other;
    const moves = others.map((other) => [join(dirname(file), other), join(dirname(to), nameOf(other))] as const);
    await publishElsewhere(disk, file, to, cwd, keptAt, moves);
  }
  held.forgetLeaf();
  if (leafId !== undefined) await keeping.keepLeaf(to, leafId);
  return { sessionId, sessionPath: file, movedTo: to, keptAt };
}

/** A container keeps its header in a file of its own, which is all that is written anew. */
async function relocateContainer(keeping: Keeping, held: Hold, cwd: string, to: string): Promise<Relocated> {
  const { disk } = keeping;
  const { file, sessionId, leafId } = held;
  const others = belongings(disk, file, sessionId);
  for (const name of [basename(file), ...others])
    if (to !== file && (await isInTheWay(disk, join(dirname(file), name), join(dirname(to), name))))
      throw alreadyThere(join(dirname(to), name));
  const header = headerFile(file);
  const keptAt = backupName(disk, header, header);
  await replace(disk, header, keptAt, cwd);
  if (to !== file)
    try {
      await moveWith(
        disk,
        [file, to],
        others.map((name) => [join(dirname(file), name), join(dirname(to), name)]),
      );
    } catch (error) {
      disk.rename(keptAt, header);
      throw error;
    }
  held.forgetLeaf();
  if (leafId !== undefined) await keeping.keepLeaf(to, leafId);
  return { sessionId, sessionPath: file, movedTo: to, keptAt: join(to, basename(keptAt)) };
}

/** Puts the session with another cwd in the place of its file, which gets another name. */
async function replace(disk: Disk, file: string, keptAt: string, cwd: string): Promise<void> {
  const temporary = temporaryName(file);
  try {
    const copied = await writeWith(disk, file, temporary, cwd);
    if (!exists(disk, keptAt)) disk.link(file, keptAt);
    await disk.syncFolder(dirname(file));
    disk.rename(temporary, file);
    await disk.syncFolder(dirname(file));
    await takeLateWrites(disk, keptAt, file, copied.size);
  } catch (error) {
    removeQuietly(disk, temporary);
    if (exists(disk, keptAt)) {
      // Two names of one file stay two names when one is renamed to the other.
      if (isOneFile(disk, file, keptAt)) disk.remove(keptAt);
      else disk.rename(keptAt, file);
    }
    throw error;
  }
}

/** Writes the session with another cwd to a new file, and moves what there was. */
async function publishElsewhere(
  disk: Disk,
  file: string,
  to: string,
  cwd: string,
  keptAt: string,
  others: readonly (readonly [string, string])[],
): Promise<void> {
  const temporary = temporaryName(to);
  let made = false;
  try {
    const copied = await writeWith(disk, file, temporary, cwd);
    made = await takeNameOrFind(disk, temporary, to);
    await disk.syncFolder(dirname(to));
    await moveWith(disk, [file, keptAt], others);
    try {
      await takeLateWrites(disk, keptAt, to, copied.size);
    } catch (error) {
      await moveWith(
        disk,
        [keptAt, file],
        others.map(([from, to]) => [to, from]),
      );
      throw error;
    }
  } catch (error) {
    removeQuietly(disk, temporary);
    // The old one is in its place again, or still.
    if (made && exists(disk, file)) removeQuietly(disk, to);
    throw error;
  }
}

/** Writes the session with another cwd to a new file, durably; answers what the session file was like then. */
async function writeWith(disk: Disk, file: string, temporary: string, cwd: string): Promise<FileInfo> {
  const source = disk.openRead(file);
  try {
    const before = disk.infoOf(source);
    const { start, line } = headerIn(disk, source, before.size, file);
    const fd = disk.create(temporary);
    try {
      disk.copyMode(file, fd);
      await copyBytes(disk, source, fd, 0, start);
      writeAll(disk, fd, withMember(line, "cwd", bytesOf(JSON.stringify(cwd))));
      await copyBytes(disk, source, fd, start + line.length, before.size);
      await disk.sync(fd);
    } finally {
      closeQuietly(disk, fd);
    }
    const after = disk.infoOf(source);
    if (after.size < before.size)
      throw new Failure("content_modified", "Another program wrote the session anew meanwhile. Ask again.");
    return before;
  } finally {
    closeQuietly(disk, source);
  }
}

/** The header's line in an open session file, and where it begins. Throws corrupt. */
export function headerIn(disk: Disk, fd: number, size: number, file: string): { start: number; line: Uint8Array } {
  const pieces: Uint8Array[] = [];
  for (const piece of piecesOf(disk, fd, 0, Math.min(size, MOST_HEADER))) {
    pieces.push(Uint8Array.from(piece));
    const bytes = Buffer.concat(pieces);
    // A byte order mark and blank lines may stand before it.
    const mark = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
    const start = skipSpace(bytes, mark, bytes.length);
    const feed = bytes.indexOf(0x0a, start);
    if (feed < 0 && bytes.length < size) continue;
    const end = feed < 0 ? bytes.length : feed;
    const line = bytes.subarray(start, bytes[end - 1] === 0x0d ? end - 1 : end);
    const type = memberOf(members(line) ?? [], "type");
    if (type && parse(line, type.start, type.end) === "session") return { start, line };
    break;
  }
  throw new Failure("corrupt", "The session's header is damaged. repair_session mends it.", { sessionPath: file });
}

/** Gives the file its name, unless it has it already from an earlier try. Answers whether it is new. */
async function takeNameOrFind(disk: Disk, temporary: string, to: string): Promise<boolean> {
  if (exists(disk, to)) {
    if (!(await sameContent(disk, temporary, to))) throw alreadyThere(to);
    disk.remove(temporary);
    return false;
  }
  takeName(disk, temporary, to);
  return true;
}

/** Programs that know no lock may have written to the old file until it lost its name. */
async function takeLateWrites(disk: Disk, old: string, file: string, size: number): Promise<void> {
  const source = disk.openRead(old);
  try {
    const now = disk.infoOf(source).size;
    if (now <= size) return;
    const target = disk.openAppend(file);
    try {
      await copyBytes(disk, source, target, size, now);
      await disk.sync(target);
    } finally {
      closeQuietly(disk, target);
    }
  } finally {
    closeQuietly(disk, source);
  }
}

/** A free name for the file as it is, or the one that an earlier try gave it. */
function backupName(disk: Disk, file: string, to: string): string {
  for (let n = 1; ; n++) {
    const path = `${to}.relocated.bak${n === 1 ? "" : `.${n}`}`;
    if (!exists(disk, path) || isOneFile(disk, file, path)) return path;
  }
}
