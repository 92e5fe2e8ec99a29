/** Default environment of the library: this process's disk, clock and locks, and Pi's session folders. */

import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { makeTimestamp } from "../core/ports/env.ts";
import type { Log } from "../core/ports/store.ts";
import type { SessionStores } from "../core/ports/stores.ts";
import { containDisk } from "../storage/fs/contained-disk.ts";
import { isContainerName } from "../storage/fs/container-paths.ts";
import { realDisk } from "../storage/fs/disk.ts";
import {
  findPaths,
  getSessionFolder,
  makeContainerPath,
  makeFilePath,
  type StoragePaths,
  toFolderName,
  type Variables,
} from "../storage/fs/paths.ts";
import { QUARANTINE_FOLDER } from "../storage/fs/quarantine.ts";
import { makeJsonlStore } from "../storage/jsonl/store.ts";
import { type Locks, makeLocks, noLocks, shareLocks } from "../storage/locks/locks.ts";
import { makeSnapshotCache } from "../storage/log/snapshot-cache.ts";
import { makeMemoryStore } from "../storage/memory.ts";
import { makeOpenings } from "../storage/opening.ts";
import { realEnv } from "../storage/system-env.ts";
import { once } from "../storage/when-used.ts";
import { openAgentSessions, segmentedStore } from "./others.ts";
import type { SessionOptions } from "./types.ts";

/** The storage that the rest of the library uses. */
export { isContainerName } from "../storage/fs/container-paths.ts";
export { readAt, useAndClose, useFile } from "../storage/fs/files.ts";
export { readHeader } from "../storage/fs/header.ts";
export { listSessionFolders } from "../storage/fs/paths.ts";
export { isSameStamp, isYoung, readDiskClock, type Stamp } from "../storage/fs/stamps.ts";
export { findLatest as latestIn, isSessionIn } from "../storage/latest.ts";
export { scanLines } from "../storage/log/lines.ts";
export { makeMemoryStore as memoryStore, parseWholeLines as wholeLines } from "../storage/memory.ts";

export const disk = containDisk(realDisk);
export const env = realEnv;

/** Returns the folders that the environment names now, without the flat one that only Pi's program uses. */
export function storagePaths(): StoragePaths {
  // A copy of the environment takes 0.3 ms.
  const variables = Object.create(process.env, { PI_CODING_AGENT_SESSION_DIR: { value: undefined } }) as Variables;
  return findPaths(variables, undefined, () => undefined);
}

/** Locks by state folder: every manager of this process shares them. */
const locks = new Map<string, Locks>();

function locksFor(stateFolder: string): Locks {
  let known = locks.get(stateFolder);
  if (!known) {
    const client = "pi-session-server (library)";
    known = shareLocks(makeLocks({ disk, stateFolder, client, now: () => makeTimestamp(env) }));
    locks.set(stateFolder, known);
  }
  return known;
}

/** Milliseconds until the work that no caller waits for. */
const PUT_OFF = 50;

/** Returns the stores of a session folder. */
export function storesFor(
  folder: string,
  { durability = "os" }: SessionOptions,
  kind: "jsonl" | "memory" = "jsonl",
): SessionStores {
  const { state } = storagePaths();
  const paths = { flat: folder, state };
  const cwd = process.cwd();
  const later = (work: () => void): unknown => setTimeout(work, PUT_OFF).unref();
  const snapshots = makeSnapshotCache(disk, state, undefined, later);
  const quarantine = join(state, QUARANTINE_FOLDER);
  const common = { disk, env, locks: locksFor(state), durability, snapshots, quarantine };
  return makeOpenings(
    { disk, paths, durability, cwd, kind },
    {
      jsonl: makeJsonlStore({ ...common, fileFor: (header) => makeFilePath(paths, header) }),
      memory: makeMemoryStore(),
      v2: once(() => segmentedStore({ ...common, containerFor: (header) => makeContainerPath(paths, header) })),
      foreign: once(() => openAgentSessions({ disk, env, stateFolder: state, variables: {} })),
    },
  ).stores;
}

/** Returns a path as a person writes it, made absolute: `~` and file URLs are understood. */
export function absolutePath(path: string): string {
  if (path === "~" || path.startsWith("~/")) return join(homedir(), path.slice(1));
  return resolve(path.startsWith("file://") ? fileURLToPath(path) : path);
}

/** Returns the folder of a working directory's sessions, without making it. */
export function defaultFolder(cwd: string, agentDir?: string): string {
  const directory = absolutePath(cwd);
  if (agentDir === undefined) return getSessionFolder(storagePaths(), directory);
  return join(absolutePath(agentDir), "sessions", toFolderName(directory));
}

/** Returns the folder that a caller names; without a name (or an empty one) that of the working directory. */
export function folderOr(sessionDir: string | undefined, cwd: string): string {
  return sessionDir ? absolutePath(sessionDir) : defaultFolder(cwd);
}

/** Returns the folder of a working directory's sessions, which exists then. */
export function getDefaultSessionDir(cwd: string, agentDir?: string): string {
  const folder = defaultFolder(cwd, agentDir);
  disk.makeFolder(folder);
  return folder;
}

/** Returns a function that opens logs for reading only, without locks. */
export function readingStores(): (file: string) => Log {
  const common = { disk, env, locks: noLocks, durability: "os", readOnly: true, quarantine: "" } as const;
  const makesNone = (): never => {
    throw new TypeError("a store for reading makes no files");
  };
  const jsonl = makeJsonlStore({ ...common, fileFor: makesNone });
  const v2 = once(() => segmentedStore({ ...common, containerFor: makesNone }));
  return (file) => (isContainerName(file) ? v2() : jsonl).open(file);
}
