/**
 * Opens the session that a path names, and makes new ones, with the backend that fits: the part of the stores that every
 * user of sessions needs, with or without lists, operations and a fleet.
 */

import { basename, dirname } from "node:path";
import { Failure } from "../core/failure.ts";
import { concat } from "../core/json/json.ts";
import { type Beginning, type Log, readContent, type Store } from "../core/ports/store.ts";
import type { SessionStores } from "../core/ports/stores.ts";
import type { ForeignFiles } from "./foreign-module.ts";
import { getKnownPath } from "./fs/confined-disk.ts";
import { findContainer, isContainerName } from "./fs/container-paths.ts";
import { type Disk, exists } from "./fs/disk.ts";
import { getInfo, guardErrno } from "./fs/files.ts";
import { findStrangeFormat, type StrangeFormat } from "./fs/formats.ts";
import { beginsAsOurs, readHeader } from "./fs/header.ts";
import { type StoragePaths, toAbsolutePath } from "./fs/paths.ts";
import { makeLeafMemory } from "./log/leaf-store.ts";
import type { Durability } from "./log/write-state.ts";
import { parseWholeLines } from "./memory.ts";
import {
  findContainerOfFile,
  findCurrentPath,
  findUnlistedContainer,
  getUnfrozenPath,
  resolveContainerFolder,
} from "./v2/pointer.ts";
import { isDatabase } from "./v2/sqlite-v1.ts";

/** The agent whose databases can be migrated, and then are containers. */
export const MIGRATED = "pirust";

/** The stores of each kind. Those of the last two are made when the first such session is met, as far as there are any. */
interface Backends {
  readonly jsonl: Store;
  readonly memory: Store;
  readonly v2: () => Store;
  readonly foreign: () => ForeignFiles | undefined;
}

export interface OpeningOptions {
  readonly disk: Disk;
  readonly paths: StoragePaths;
  readonly durability: Durability;
  /** Working directory of this process: the base of a host's relative paths. */
  readonly cwd: string;
  /** The backend of new sessions. */
  readonly kind: "jsonl" | "v2" | "memory";
  /** Throws path_outside_root for a path that a host may not name. The disk keeps links from leading elsewhere. */
  readonly requireAllowed?: (path: string) => void;
  /** Returns the local file of the session that other machines name by a path without a file here. */
  readonly copyFor?: (path: string) => string | undefined;
  /** Throws storage_failed for a file whose session another tenant of the fleet has. */
  readonly requireOwn?: (id: string, file: string) => void;
  /** The failure of making a session, if nothing may be written. */
  readonly refusal?: Failure;
}

/** Ways to sessions for the rest of the storage, whose paths were checked already. */
interface Openings {
  readonly stores: SessionStores;
  /** Returns the absolute path of a path from the host. Throws path_outside_root, storage_failed. */
  readonly allowed: (file: string) => string;
  /** Returns the same of a path that names a session, without a look at the disk. Throws not_a_session for a part of one. */
  readonly pathAsGiven: (file: string) => string;
  /** Does the same, and follows links. */
  readonly pathOf: (file: string) => string;
  readonly openLog: (file: string, asReader?: boolean) => Log;
  /** Does the same, unless another tenant of the fleet has the session. */
  readonly openOwn: (file: string, asReader?: boolean) => Log;
}

export function makeOpenings(options: OpeningOptions, { jsonl, memory, v2, foreign }: Backends): Openings {
  const { disk, cwd, copyFor } = options;
  const at = (file: string): Store => (isContainerName(file) ? v2() : jsonl);
  const allowed = (file: string): string => {
    const path = toAbsolutePath(file, cwd);
    if (path.includes("\0")) {
      const sentence = "The path holds a NUL character, which no name of a file can. Give another one.";
      throw new Failure("storage_failed", sentence, { errno: "EINVAL" }, { retryable: false });
    }
    options.requireAllowed?.(path);
    return path;
  };
  const pathAsGiven = (file: string): string => {
    const path = allowed(file);
    requireNoPart(disk, path);
    return path;
  };
  const pathOf = (file: string): string => {
    const path = pathAsGiven(file);
    requireNoPart(disk, getKnownPath(disk, path));
    return path;
  };
  // An interrupted repair left a container under another name.
  const isAt = (file: string): boolean =>
    exists(disk, isContainerName(file) ? resolveContainerFolder(disk, file) : file);
  const copyAt = copyFor && ((file: string) => (isAt(file) ? undefined : copyFor(file)));
  /** Returns the current path of the session that a path of a host means. */
  const meant = (file: string): string => {
    const now = findCurrentFile(disk, file);
    return now === file ? (copyAt?.(file) ?? file) : now;
  };
  const openLog = (file: string, asReader?: boolean): Log => {
    const isOurs = isContainerName(file) || beginsAsOurs(disk, file);
    const others = isOurs ? undefined : foreign()?.open(file, { but: MIGRATED, asReader });
    if (others) return others;
    try {
      return openActive(disk, at, meant, file, asReader);
    } catch (error) {
      if (!(error instanceof Failure) || error.name !== "not_a_session") throw error;
      const database = isDatabase(disk, file) ? foreign()?.open(file) : undefined;
      if (database) return database;
      throw named(disk, file) ?? error;
    }
  };
  const openOwn = (file: string, asReader?: boolean): Log => {
    const log = openLog(file, asReader);
    try {
      options.requireOwn?.(log.header.id, log.file ?? file);
      return log;
    } catch (error) {
      log.close();
      throw error;
    }
  };
  const stores: SessionStores = {
    forNew: options.kind === "memory" ? memory : byPath(options.kind === "v2" ? v2() : jsonl, at, options.refusal),
    leaves: makeLeafMemory(disk, options.paths.state, options.durability === "sync"),
    open: (file, asReader) => openOwn(pathOf(file), asReader),
    exists: (file) => exists(disk, file),
    holds(path) {
      const file = pathOf(path);
      const isLost = isContainerName(file) && findUnlistedContainer(disk, file) !== undefined;
      return isAt(file) || isLost || isNoPlace(disk, file) || meant(file) !== file;
    },
    copyAt,
    prepareFolder(file) {
      try {
        disk.makeFolder(dirname(file));
      } catch {
        // The first append fails in the same way and reports it.
      }
    },
  };
  return { stores, allowed, pathAsGiven, pathOf, openLog, openOwn };
}

/** Throws not_a_session for a path into a container: its header would open as an empty session with its id. */
function requireNoPart(disk: Disk, path: string): void {
  const sessionPath = findContainer(path, (part) => exists(disk, part));
  if (sessionPath === undefined) return;
  const sentence = `${path} is a part of the session ${sessionPath}. Open that one; nothing was changed.`;
  throw new Failure("not_a_session", sentence, { sessionPath });
}

/**
 * Returns whether no session can be made at a path without a file: it is that of a folder, a link in it leads nowhere, or it
 * leads into a file, as those of sessions in another agent's file or database do.
 */
function isNoPlace(disk: Disk, path: string): boolean {
  if (/[/\\]$/.test(path) && !isContainerName(path)) return true;
  for (let at = path; at !== dirname(at); at = dirname(at)) {
    const found = getInfo(disk, at) ?? getInfo(disk, at, true);
    if (found !== null) return found.kind !== "folder";
  }
  return false;
}

/** Returns the failure of a file that is something else than a damaged session; undefined if that is not known. */
function named(disk: Disk, file: string): Failure | undefined {
  const format = isContainerName(file) ? undefined : findStrangeFormat(disk, file);
  return format && strange(file, format);
}

function strange(file: string, { name, is, next }: StrangeFormat): Failure {
  const sentence = `${file} ${is}. Nothing is wrong with it. ${next}.`;
  return new Failure("not_a_session", sentence, { sessionPath: file, format: name });
}

/** Opens the present session file or container: hosts may still use the path from before a migration or rollback. */
function openActive(
  disk: Disk,
  at: (file: string) => Store,
  meant: (file: string) => string,
  file: string,
  readOnly?: boolean,
): Log {
  if (getUnfrozenPath(file) !== null) return openFrozen(disk, at(file), file);
  if (isContainerName(file) || !exists(disk, file)) {
    const now = meant(file);
    if (now !== file) return at(now).open(now, readOnly);
  }
  const log = at(file).open(file, readOnly);
  if (isContainerName(file)) return log;
  let container: string | null = file;
  try {
    container = findContainerOfFile(disk, file, log.header.id);
  } finally {
    // Between the commit marker of a migration and the freezing of the file, both exist.
    if (container !== null) log.close();
  }
  return container === null ? log : at(container).open(container, readOnly);
}

/** Returns the current path of the session that a path names. Throws storage failures. */
export function findCurrentFile(disk: Disk, file: string): string {
  return guardErrno("looking for the session", () => findCurrentPath(disk, file));
}

/** Opens the frozen copy of a session file for reading only: a rollback must find it unchanged. */
function openFrozen(disk: Disk, store: Store, file: string): Log {
  const source = getUnfrozenPath(file) as string;
  const id = readHeader(disk, file)?.id;
  const now = exists(disk, source)
    ? source
    : findContainerOfFile(disk, source, typeof id === "string" ? id : undefined);
  const [where, out] =
    now === null
      ? ["the session is no longer next to it", `Rename it to ${basename(source)} to continue with it`]
      : [`the session is ${now}`, "Open that one"];
  const sentence = `This is the kept file of a migrated session; ${where}. ${out}; nothing is written to this file.`;
  return store.open(file, new Failure("read_only", sentence, { sessionPath: now ?? source }));
}

/** Returns a store for new sessions that chooses the backend by the name of the file, if one is given. */
function byPath(store: Store, at: (file: string) => Store, refusal?: Failure): Store {
  const storeOf = ({ file }: Beginning): Store => (file === undefined ? store : at(file));
  return {
    ...store,
    create: (beginning) => storeOf(beginning).create(beginning),
    async publish(beginning, content) {
      if (refusal) throw refusal;
      return storeOf(beginning).publish(beginning, content);
    },
    publishNow(beginning, content) {
      const store = storeOf(beginning);
      if (store.publishNow) return store.publishNow(beginning, content);
      const log = store.create(beginning);
      log.append(parseWholeLines(concat([...readContent(content)])));
      return log;
    },
  };
}
