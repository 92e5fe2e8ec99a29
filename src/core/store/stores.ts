/** The backends by name, and which of them opens a given path. */

import { basename, dirname, isAbsolute, join, relative } from "node:path";
import { SESSION_ID, type SessionHeader } from "../entry.ts";
import type { Env } from "../env.ts";
import { Failure } from "../failure.ts";
import { bytesOf, memberOf, members, parse, skipSpace } from "../json.ts";
import type { LeafMemory } from "../session.ts";
import type { Stores } from "../workspace.ts";
import { type Disk, exists, removeQuietly, storageFailure, takeName, temporaryName, writeAll } from "./disk.ts";
import { lastActivity } from "./figures.ts";
import { makeCatalog } from "./finder.ts";
import { type Durability, jsonlStore } from "./jsonl.ts";
import { leafMemory } from "./leaves.ts";
import type { Locks } from "./lock.ts";
import { memoryStore } from "./memory.ts";
import { absolute, fileFor, folderFor, isSessionName, type Places, sessionFolders } from "./paths.ts";
import type { Store } from "./store.ts";

export interface StoreOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly places: Places;
  readonly durability: Durability;
  readonly locks: Locks;
  /** Working directory of this process, which relative paths of a host refer to. */
  readonly cwd: string;
  /** Backend of new sessions. */
  readonly kind: "jsonl" | "memory";
  readonly readOnly?: boolean;
  /** Only the session folders and these may be touched; anything may when undefined. */
  readonly allowed?: readonly string[];
}

export function makeStores(options: StoreOptions): Stores {
  const { disk, env, places, cwd } = options;
  const jsonl = jsonlStore({
    disk,
    env,
    locks: options.locks,
    cwd,
    quarantine: join(places.state, "quarantine"),
    durability: options.durability,
    fileFor: (header) => fileFor(places, header),
    readOnly: options.readOnly,
  });
  const allowed = (file: string): string => confined(disk, places, options.allowed, absolute(file, cwd));
  const byName: Record<string, Store> = { jsonl, memory: memoryStore() };
  const leaves: LeafMemory = leafMemory(disk, places.state, options.durability === "sync");
  return {
    names: Object.keys(byName),
    forNew: byName[options.kind],
    leaves,
    open: (file, readOnly) => jsonl.open(allowed(file), readOnly),
    absolute: allowed,
    exists: (file) => exists(disk, file),
    isSame: (a, b) => a === b || sameFile(disk, a, b),
    find: (id) => findById(disk, places, id),
    prepareFolder(file) {
      try {
        disk.makeFolder(dirname(file));
      } catch {
        // The first append meets the same obstacle and tells of it.
      }
    },
    writeOutput: (file, pieces, taken) => writeOutput(disk, allowed(file), pieces, taken),
    latest: (workingDirectory) => latestOf(disk, places, workingDirectory),
    made: (key, workingDirectory) => madeWith(disk, places, workingDirectory, key),
    catalog: makeCatalog({ disk, env, places, leaves, openLog: (file) => jsonl.open(file, true) }),
  };
}

/**
 * The path, if it may be used: it lies in a session folder or in an allowed one when every link in it is followed.
 * Throws path_outside_root.
 */
function confined(disk: Disk, places: Places, allowed: readonly string[] | undefined, path: string): string {
  if (allowed === undefined) return path;
  const real = realPathOf(disk, path);
  for (const folder of [places.flat, places.root, ...allowed]) {
    if (folder === undefined) continue;
    const below = relative(realPathOf(disk, folder), real);
    if (below !== "" && !below.startsWith("..") && !isAbsolute(below)) return path;
  }
  throw new Failure("path_outside_root", undefined, { path });
}

/** The real path of what need not exist: that of the nearest folder above it that does. */
function realPathOf(disk: Disk, path: string): string {
  try {
    return disk.realPath(path);
  } catch {
    const above = dirname(path);
    return above === path ? path : join(realPathOf(disk, above), basename(path));
  }
}

function writeOutput(
  disk: Disk,
  path: string,
  pieces: Iterable<string>,
  taken: "refuse" | "rename" | "replace",
): string {
  const temporary = temporaryName(path);
  try {
    const fd = disk.create(temporary);
    try {
      for (const piece of pieces) writeAll(disk, fd, bytesOf(piece));
    } finally {
      disk.close(fd);
    }
    if (taken === "replace") {
      disk.rename(temporary, path);
      return path;
    }
    for (let n = 1; ; n++) {
      const name = n === 1 ? path : path.replace(/(\.[^./\\]*)?$/, `-${n}$1`);
      try {
        takeName(disk, temporary, name);
        return name;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
        if (taken === "refuse")
          throw new Failure(
            "already_exists",
            `There is something at ${path} already. Say overwrite, or name another.`,
            {
              path,
            },
          );
      }
    }
  } catch (error) {
    removeQuietly(disk, temporary);
    throw storageFailure(error, "writing the output");
  }
}

function sameFile(disk: Disk, a: string, b: string): boolean {
  try {
    const first = disk.info(a);
    const second = disk.info(b);
    return first.device === second.device && first.inode === second.inode;
  } catch {
    return false;
  }
}

/** The file of the session with an id, or with the only id that begins so. Throws session_not_found, ambiguous_id. */
function findById(disk: Disk, places: Places, id: string): string {
  if (!SESSION_ID.test(id)) throw new Failure("invalid_id", undefined, { sessionId: id });
  const exact: string[] = [];
  const prefixed: string[] = [];
  for (const folder of sessionFolders(places, disk))
    for (const name of disk.names(folder)) {
      if (!isSessionName(name)) continue;
      const file = join(folder, name);
      // A file of ours or of the TypeScript Pi bears its id; of any other only the header tells.
      const named = basename(name, ".jsonl").split("_").pop() ?? "";
      const found =
        named === id
          ? id
          : named.startsWith(id) || id.startsWith(named) || !SESSION_ID.test(named)
            ? readId(disk, file)
            : named;
      if (found === id) exact.push(file);
      else if (found?.startsWith(id)) prefixed.push(file);
    }
  const found = exact.length > 0 ? exact : prefixed;
  if (found.length === 0)
    throw new Failure("session_not_found", `No session has the id ${id}. list_sessions shows those that exist.`, {
      sessionId: id,
    });
  if (found.length > 1) throw new Failure("ambiguous_id", undefined, { sessionId: id, matches: found.length });
  return found[0];
}

/** How much of a file is read to find its header; headers are a few hundred bytes. */
const HEADER_BYTES = 1 << 16;

/** What the header of a session file says, or undefined when the file is no session. */
export function readHeader(disk: Disk, file: string): Partial<Record<keyof SessionHeader, unknown>> | undefined {
  let fd: number;
  try {
    fd = disk.openRead(file);
  } catch {
    return undefined;
  }
  try {
    if (disk.infoOf(fd).kind !== "file") return undefined;
    const bytes = new Uint8Array(HEADER_BYTES);
    const count = disk.read(fd, bytes, 0, bytes.length, 0);
    // A byte order mark and blank lines may stand before it.
    const start = skipSpace(bytes, bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0, count);
    const end = bytes.indexOf(0x0a, start);
    const line = bytes.subarray(start, end >= 0 && end < count ? end : count);
    const found = members(line);
    const type = found && memberOf(found, "type");
    if (!type || parse(line, type.start, type.end) !== "session") return undefined;
    return parse(line) as Partial<Record<keyof SessionHeader, unknown>>;
  } catch {
    return undefined;
  } finally {
    disk.close(fd);
  }
}

function readId(disk: Disk, file: string): string | undefined {
  const id = readHeader(disk, file)?.id;
  return typeof id === "string" ? id : undefined;
}

/** How many of the youngest files are looked at for the one that a repeated request made before. */
const YOUNGEST = 200;

/** The session file whose header has an idempotency key. File names begin with the time of their making. */
function madeWith(disk: Disk, places: Places, cwd: string, key: string): string | undefined {
  const folder = folderFor(places, cwd);
  if (!exists(disk, folder)) return undefined;
  const names = disk.names(folder).filter(isSessionName).sort().reverse().slice(0, YOUNGEST);
  return names.map((name) => join(folder, name)).find((file) => readHeader(disk, file)?.idempotencyKey === key);
}

/** The working directory's session in which something was said last, as list_sessions orders them, or undefined. */
function latestOf(disk: Disk, places: Places, cwd: string): string | undefined {
  const folder = folderFor(places, cwd);
  if (!exists(disk, folder)) return undefined;
  let latest: { file: string; activity: number } | undefined;
  for (const name of disk.names(folder)) {
    if (!isSessionName(name)) continue;
    const file = join(folder, name);
    const header = readHeader(disk, file);
    // Folder names collide, so only the header tells whose session it is.
    if (header?.cwd !== cwd) continue;
    try {
      const activity = lastActivity(disk, file, header) ?? Number.NEGATIVE_INFINITY;
      const isLater =
        latest === undefined || activity > latest.activity || (activity === latest.activity && file > latest.file);
      if (isLater) latest = { file, activity };
    } catch {
      // It went away between the listing and the look.
    }
  }
  return latest?.file;
}

/** The session file of a folder that was written last among those whose header fits, or undefined. */
export function latestIn(
  disk: Disk,
  folder: string,
  fits: (header: Partial<Record<keyof SessionHeader, unknown>>) => boolean,
): string | undefined {
  if (!exists(disk, folder)) return undefined;
  const files: { file: string; modified: number }[] = [];
  for (const name of disk.names(folder)) {
    if (!isSessionName(name)) continue;
    const file = join(folder, name);
    try {
      files.push({ file, modified: disk.info(file).modified });
    } catch {
      // It went away between the listing and the look.
    }
  }
  files.sort((a, b) => b.modified - a.modified);
  return files.find(({ file }) => {
    const header = readHeader(disk, file);
    return header !== undefined && fits(header);
  })?.file;
}
