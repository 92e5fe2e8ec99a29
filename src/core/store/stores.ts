/** The backends by name, and which of them opens a given path. */

import { basename, dirname, isAbsolute, join, relative } from "node:path";
import { SESSION_ID, type SessionHeader } from "../entry.ts";
import type { Env } from "../env.ts";
import { Failure } from "../failure.ts";
import { memberOf, members, parse, skipSpace } from "../json.ts";
import type { LeafMemory } from "../session.ts";
import type { Stores } from "../workspace.ts";
import { activityOf, lastActivity, moment } from "./catalog/figures.ts";
import { makeCatalog } from "./catalog/finder.ts";
import { type Disk, exists, storageFailure } from "./disk.ts";
import { type Durability, type JsonlOptions, jsonlStore } from "./jsonl/log.ts";
import { sideIndexes } from "./jsonl/side-index.ts";
import { keptSpines } from "./kept-spines.ts";
import { leafMemory } from "./leaves.ts";
import type { Keeping } from "./lifecycle/keeping.ts";
import { makeLifeCycle } from "./lifecycle/life.ts";
import type { Locks } from "./lock.ts";
import { memoryStore } from "./memory.ts";
import { storedBytes, writeOutput } from "./output.ts";
import {
  absolute,
  archiveFolder,
  fileFor,
  fileName,
  folderFor,
  isSessionName,
  type Places,
  sessionFolders,
} from "./paths.ts";
import { containerOf, frozenFrom, isActive } from "./segmented/active.ts";
import { isDatabase, linesOf, withBytes } from "./segmented/database.ts";
import { makeMigrations } from "./segmented/migrations.ts";
import { headerFile, isContainerName } from "./segmented/places.ts";
import { standsAt } from "./segmented/site.ts";
import { segmentedStore } from "./segmented/store.ts";
import type { Beginning, Log, Store } from "./store.ts";

export interface StoreOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly places: Places;
  readonly durability: Durability;
  readonly locks: Locks;
  /** Working directory of this process, which relative paths of a host refer to. */
  readonly cwd: string;
  /** Backend of new sessions. */
  readonly kind: "jsonl" | "v2" | "memory";
  readonly readOnly?: boolean;
  /** See Keeping; where it is missing, what is deleted goes to our own trash. */
  readonly desktopTrash?: Keeping["desktopTrash"];
  /** Only the session folders and these may be touched; anything may when undefined. */
  readonly allowed?: readonly string[];
}

export function makeStores(options: StoreOptions): Stores {
  const { disk, env, places, cwd } = options;
  const files: JsonlOptions = {
    disk,
    env,
    locks: options.locks,
    cwd,
    quarantine: join(places.state, "quarantine"),
    durability: options.durability,
    fileFor: (header) => fileFor(places, header),
    readOnly: options.readOnly,
    sideIndexes: sideIndexes({ disk, env, stateFolder: places.state }),
  };
  const jsonl = jsonlStore(files);
  const v2 = segmentedStore({
    disk,
    env,
    locks: options.locks,
    quarantine: join(places.state, "quarantine"),
    durability: options.durability,
    containerFor: (header) => join(folderFor(places, header.cwd ?? ""), `${header.id}.v2`),
    readOnly: options.readOnly,
    spines: keptSpines(disk, places.state),
  });
  const at = (file: string): Store => (isContainerName(file) ? v2 : jsonl);
  /** A session file, or a database as the session file that it would be. */
  const openSource = (file: string, readOnly?: boolean): Log =>
    isDatabase(disk, file)
      ? jsonlStore({ ...files, disk: withBytes(disk, file, linesOf(disk, file)), sideIndexes: undefined }).open(
          file,
          true,
        )
      : jsonl.open(file, readOnly);
  const openLog = (file: string, readOnly?: boolean): Log => {
    try {
      return openActive(disk, at, file, readOnly);
    } catch (error) {
      throw toldOfDatabase(disk, file, error);
    }
  };
  const allowed = (file: string): string => confined(disk, places, options.allowed, nameable(absolute(file, cwd)));
  const byName: Record<string, Store> = { jsonl, v2, memory: memoryStore() };
  const leaves: LeafMemory = leafMemory(disk, places.state, options.durability === "sync");
  return {
    names: Object.keys(byName),
    forNew: options.kind === "memory" ? byName.memory : byPath(byName[options.kind], at),
    leaves,
    open: (file, readOnly) => openLog(allowed(file), readOnly),
    absolute: allowed,
    exists: (file) => exists(disk, file),
    holds(path) {
      const file = allowed(path);
      return exists(disk, file) || nowAt(disk, file) !== file;
    },
    isSame: (a, b) => a === b || sameFile(disk, a, b),
    find: (id) => findById(disk, sessionFolders(places, disk), id),
    prepareFolder(file) {
      try {
        disk.makeFolder(dirname(file));
      } catch {
        // The first append meets the same obstacle and tells of it.
      }
    },
    writeOutput: (file, pieces, taken, attachmentsOf) => writeOutput(disk, allowed(file), pieces, taken, attachmentsOf),
    bytesOf: (log) => storedBytes(disk, log),
    latest: (workingDirectory) => latestOf(disk, places, workingDirectory, openLog),
    made: (key, workingDirectory) => madeWith(disk, places, workingDirectory, key),
    lifeCycle: makeLifeCycle({
      disk,
      env,
      places,
      leaves,
      desktopTrash: options.desktopTrash,
      readOnly: options.readOnly === true,
      cwd,
      open: (file) => openLog(allowed(file)),
      absolute: (path) => absolute(path, cwd),
      allowed,
      find: (id, folders) => findById(disk, folders, id),
      named: (id, folders) => filesOf(disk, folders, id).exact,
      idIn: (file) => readId(disk, file),
    }),
    migrations: makeMigrations(
      {
        disk,
        env,
        locks: options.locks,
        openFile: openSource,
        openContainer: (container, readOnly) => v2.open(container, readOnly),
        fileFor: (header, folder) => join(folder, fileName(header)),
        leaves,
      },
      allowed,
      options.readOnly === true,
    ),
    catalog: makeCatalog({
      disk,
      env,
      places,
      leaves,
      openLog: (file) => openLog(file, true),
      indexAhead: true,
    }),
  };
}

/** Opens what is the session now: one that was migrated or rolled back is named by many who do not know that. */
function openActive(disk: Disk, at: (file: string) => Store, file: string, readOnly?: boolean): Log {
  if (frozenFrom(file) !== null) return openFrozen(disk, at(file), file);
  if (isContainerName(file) || !exists(disk, file)) {
    const moved = nowAt(disk, file);
    if (moved !== file) return at(moved).open(moved, readOnly);
  }
  const log = at(file).open(file, readOnly);
  // Between the commit marker of a migration and the freezing of the file both stand there.
  let container: string | null;
  try {
    container = isContainerName(file) ? null : containerOf(disk, file, log.header.id);
  } catch (error) {
    log.close();
    throw error;
  }
  if (container === null) return log;
  log.close();
  return at(container).open(container, readOnly);
}

/** What opening a file failed with; of a database it is said how it becomes a session that can be opened. */
function toldOfDatabase(disk: Disk, file: string, error: unknown): unknown {
  if (!(error instanceof Failure) || error.name !== "not_a_session" || !isDatabase(disk, file)) return error;
  return new Failure(
    "not_a_session",
    `${file} is an SQLite database. If it is a session of pi_agent_rust, migrate_session (pi-session-server migrate --apply) moves it into a container, which can be opened.`,
    error.details,
  );
}

/** Where the session is now that is named by a path. Throws storage failures. */
function nowAt(disk: Disk, file: string): string {
  try {
    return standsAt(disk, file);
  } catch (error) {
    throw storageFailure(error, "looking for the session");
  }
}

/** Opens the frozen copy of a session file, which rolling back must find as it is: for reading only. */
function openFrozen(disk: Disk, store: Store, file: string): Log {
  const log = store.open(file, true);
  const source = frozenFrom(file) as string;
  const now = exists(disk, source) ? source : containerOf(disk, source, log.header.id);
  const [where, out] =
    now === null
      ? ["the session is not beside it any more", `Rename it to ${basename(source)} to go on with it`]
      : [`the session is ${now}`, "Open that one"];
  const sentence = `This is a session file as it was when it was migrated; ${where}. ${out}; here nothing is written.`;
  return Object.assign(log, { readOnly: new Failure("read_only", sentence, { sessionPath: now ?? source }) });
}

/** A store for new sessions that goes by the name of the file where one is given. */
function byPath(store: Store, at: (file: string) => Store): Store {
  const storeOf = ({ file }: Beginning): Store => (file === undefined ? store : at(file));
  return {
    ...store,
    create: (beginning) => storeOf(beginning).create(beginning),
    publish: (beginning, content) => storeOf(beginning).publish(beginning, content),
  };
}

/** Whether a name in a folder is that of a session. */
function isSessionIn(disk: Disk, folder: string, name: string): boolean {
  return isSessionName(name) || (isContainerName(name) && isActive(disk, join(folder, name)));
}

/**
 * The path, if it may be used: it lies in a session folder or in an allowed one when every link in it is followed.
 * Throws path_outside_root.
 */
function confined(disk: Disk, places: Places, allowed: readonly string[] | undefined, path: string): string {
  if (allowed === undefined) return path;
  const real = realPathOf(disk, path);
  for (const folder of [places.flat, places.root, archiveFolder(places), ...allowed]) {
    if (folder === undefined) continue;
    const below = relative(realPathOf(disk, folder), real);
    if (below !== "" && !below.startsWith("..") && !isAbsolute(below)) return path;
  }
  throw new Failure("path_outside_root", undefined, { path });
}

/** The path, if a file can have it. Throws storage_failed. */
function nameable(path: string): string {
  if (!path.includes("\0")) return path;
  const sentence = "The path holds a NUL character, which no name of a file can. Give another one.";
  throw new Failure("storage_failed", sentence, { errno: "EINVAL" }, { retryable: false });
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
function findById(disk: Disk, folders: Iterable<string>, id: string): string {
  if (!SESSION_ID.test(id)) throw new Failure("invalid_id", undefined, { sessionId: id });
  const { exact, prefixed } = filesOf(disk, folders, id);
  let found = exact.length > 0 ? exact : prefixed;
  // While a migration or a rollback is under way, or was cut off, a session has a file and a container.
  if (found.length > 1) found = [...new Set(found.map((file) => nowAt(disk, file)))];
  if (found.length === 0)
    throw new Failure("session_not_found", `No session has the id ${id}. list_sessions shows those that exist.`, {
      sessionId: id,
    });
  if (found.length > 1) throw new Failure("ambiguous_id", undefined, { sessionId: id, matches: found.length });
  return found[0];
}

/** The session files with an id, and those with one that begins so. */
function filesOf(disk: Disk, folders: Iterable<string>, id: string): { exact: string[]; prefixed: string[] } {
  const exact: string[] = [];
  const prefixed: string[] = [];
  for (const folder of folders)
    for (const name of disk.names(folder)) {
      if (!isSessionIn(disk, folder, name)) continue;
      const file = join(folder, name);
      // A file of ours or of the TypeScript Pi bears its id; of any other only the header tells.
      const [, named = ""] = /^\d{4}-\d\d-\d\dT[^_]*_(.+)\.jsonl$/.exec(name) ?? [];
      const found =
        named === id
          ? id
          : named.startsWith(id) || id.startsWith(named) || !SESSION_ID.test(named)
            ? readId(disk, file)
            : named;
      if (found === id) exact.push(file);
      else if (found?.startsWith(id)) prefixed.push(file);
    }
  return { exact, prefixed };
}

/** How much of a file is read to find its header; headers are a few hundred bytes. */
const HEADER_BYTES = 1 << 16;

/** What the header of a session file says, or undefined when the file is no session. */
export function readHeader(disk: Disk, file: string): Partial<Record<keyof SessionHeader, unknown>> | undefined {
  let fd: number;
  try {
    fd = disk.openRead(isContainerName(file) ? headerFile(file) : file);
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
  const names = disk.names(folder).sort().reverse();
  // Names of containers begin with the id, which is in the order of time, too.
  const youngest = [
    ...names.filter(isSessionName).slice(0, YOUNGEST),
    ...names.filter(isContainerName).slice(0, YOUNGEST),
  ].filter((name) => isSessionIn(disk, folder, name));
  return youngest.map((name) => join(folder, name)).find((file) => readHeader(disk, file)?.idempotencyKey === key);
}

/** The working directory's session in which something was said last, as list_sessions orders them, or undefined. */
function latestOf(
  disk: Disk,
  places: Places,
  cwd: string,
  openLog: (file: string, readOnly: boolean) => Log,
): string | undefined {
  // Folder names collide, so only the header tells whose session it is.
  return latestIn(disk, folderFor(places, cwd), (header) => header.cwd === cwd, openLog);
}

/** The time of the last message of a person or a model; the header's when nothing was said. Closes the log. */
function activityIn(log: Log): number | null {
  try {
    for (let position = log.nodes.count - 1; position >= 0; position--) {
      const role = log.nodes.role(position);
      const activity = role === "user" || role === "assistant" ? activityOf(parse(log.read(position))) : null;
      if (activity !== null) return activity;
    }
    return moment(log.header.timestamp);
  } finally {
    log.close();
  }
}

/**
 * The session of a folder in which something was said last, among those whose header fits, or undefined. Containers are
 * looked at where there is a way to open them.
 */
export function latestIn(
  disk: Disk,
  folder: string,
  fits: (header: Partial<Record<keyof SessionHeader, unknown>>) => boolean,
  openContainer?: (file: string, readOnly: boolean) => Log,
): string | undefined {
  if (!exists(disk, folder)) return undefined;
  let latest: { file: string; activity: number } | undefined;
  for (const name of disk.names(folder)) {
    if (!(openContainer ? isSessionIn(disk, folder, name) : isSessionName(name))) continue;
    const file = join(folder, name);
    const header = readHeader(disk, file);
    if (header === undefined || !fits(header)) continue;
    try {
      const found =
        openContainer && isContainerName(file)
          ? activityIn(openContainer(file, true))
          : lastActivity(disk, file, header);
      const activity = found ?? Number.NEGATIVE_INFINITY;
      const isLater =
        latest === undefined || activity > latest.activity || (activity === latest.activity && file > latest.file);
      if (isLater) latest = { file, activity };
    } catch {
      // It went away between the listing and the look.
    }
  }
  return latest?.file;
}
