/** Finds held locks, and traces of dead holders, among the sessions of some folders. */

import { basename, dirname, join } from "node:path";
import type { Holder } from "../../core/ports/lock.ts";
import { isContainerName } from "../fs/container-paths.ts";
import { type Disk, readUnsized } from "../fs/disk.ts";
import { getInfo } from "../fs/files.ts";
import { listFolderIfAllowed } from "../fs/folders.ts";
import { getCommonFolder, readClaim, toHolder } from "./claims.ts";
import { type FileKey, getFileKey, isLock, type LockLocation, type Locks, UNKNOWN } from "./contract.ts";
import {
  getLockedFile,
  getNotePath,
  isLockInContainer,
  locateLock,
  locateLockInContainer,
  locateLockInFolder,
} from "./lock-paths.ts";
import { getSocketName, SOCKET_LIST } from "./socket-lock.ts";

/** Names of the locks of session files and their notes. */
const IN_FOLDER = /^\.pi-session-(\d+)\.(?:lock|holder)$/;
/** Names of locks and notes in the lock folders. */
const IN_LOCK_FOLDER = /^(\d+)-(\d+)\.(?:json|lock)$/;

/** A held lock, or the trace of one. */
export interface LockTrace {
  readonly key: FileKey;
  readonly place?: LockLocation;
  /** Path of the file that names the last holder. */
  readonly note?: string;
  /** Path of the session, if it is one of the given ones. */
  readonly session: string | null;
  /** The holder; null if it died with the lock. */
  readonly holder: Holder | null;
  /** The last holder, by its note. */
  readonly noted: Holder;
}

interface LockSources {
  readonly disk: Disk;
  readonly locks: Locks;
  readonly stateFolder: string;
}

type Trace = Pick<LockTrace, "key" | "place" | "note">;

/** Returns the locks of the sessions at these paths, each by the inode of its lock, in these folders. */
export function findLocks(
  looked: LockSources,
  sessions: ReadonlyMap<string, string>,
  folders: Iterable<string>,
): LockTrace[] {
  const { disk, locks } = looked;
  const traces = new Map<string, Trace>();
  const add = (trace: Trace): void => {
    const known = traces.get(getFileKey(trace.key));
    traces.set(getFileKey(trace.key), {
      ...trace,
      ...known,
      place: known?.place ?? trace.place,
      note: known?.note ?? trace.note,
    });
  };
  for (const folder of folders) for (const trace of tracesIn(disk, folder)) add(trace);
  for (const trace of tracesInLockFolders(looked)) add(trace);
  for (const key of boundKeys(disk, sessions))
    add({ key, place: placeOf(sessions.get(getFileKey(key)) as string, key) });
  return [...traces.values()].map(({ key, place, note }) => {
    const claim = note === undefined ? undefined : readClaim(disk, note)?.claim;
    const noted = claim ? toHolder(claim) : UNKNOWN;
    return {
      key,
      place,
      note,
      session: sessions.get(getFileKey(key)) ?? null,
      holder: locks.holder(key, place),
      noted,
    };
  });
}

/** Returns the location of the lock of a session, given the inode of the lock. */
function placeOf(session: string, { inode }: FileKey): LockLocation {
  return isContainerName(session) ? locateLockInContainer(session) : locateLockInFolder(dirname(session), inode);
}

/** Yields the lock files and notes in a folder of sessions, and in its containers. */
function* tracesIn(disk: Disk, folder: string): Generator<Trace> {
  const device = getInfo(disk, folder)?.device;
  if (device === undefined) return;
  for (const { name } of listFolderIfAllowed(disk, folder)) {
    const [, inode] = IN_FOLDER.exec(name) ?? [];
    if (inode !== undefined) {
      const place = locateLockInFolder(folder, Number(inode));
      yield { key: { device, inode: Number(inode) }, place, note: getNotePath(place.path) };
    }
    if (isContainerName(name)) yield* traceInContainer(disk, join(folder, name));
  }
}

function* traceInContainer(disk: Disk, container: string): Generator<Trace> {
  const place = locateLockInContainer(container);
  const header = getInfo(disk, place.like as string);
  if (header === null || ![place.path, getNotePath(place.path)].some((path) => getInfo(disk, path, true))) return;
  if (isLockInContainer(basename(place.path))) yield { key: header, place, note: getNotePath(place.path) };
}

function* tracesInLockFolders({ disk, stateFolder }: LockSources): Generator<Trace> {
  // Unreadable ones are locks of another user.
  for (const folder of [stateFolder, getCommonFolder()].map((folder) => join(folder, "locks")))
    for (const { name } of listFolderIfAllowed(disk, folder)) {
      const [, device, inode] = IN_LOCK_FOLDER.exec(name) ?? [];
      if (inode === undefined) continue;
      yield { key: { device: Number(device), inode: Number(inode) }, note: join(folder, name) };
    }
}

/** Yields the sessions whose sockets are bound. */
function* boundKeys(disk: Disk, sessions: ReadonlyMap<string, string>): Generator<FileKey> {
  for (const key of boundSockets(disk) ?? []) if (sessions.has(getFileKey(key))) yield key;
}

/** Returns the files whose sockets are bound, as the kernel lists them; undefined where it has no such list. */
function boundSockets(disk: Disk): FileKey[] | undefined {
  let list: string;
  try {
    list = Buffer.from(readUnsized(disk, SOCKET_LIST)).toString("latin1");
  } catch {
    // Only Linux has such a list.
    return undefined;
  }
  const prefix = getSocketName({ device: 0, inode: 0 }).split("0:0")[0];
  return list.split(`@${prefix}`).flatMap((part) => {
    const [, device, inode] = /^(\d+):(\d+)\//.exec(part) ?? [];
    return inode === undefined ? [] : [{ device: Number(device), inode: Number(inode) }];
  });
}

/**
 * Returns the other writers of some sessions, by their paths. Only a session with a bound socket or a lock file is
 * checked: that costs two lookups each, 0.02 ms, while a check reads the lists of the kernel.
 */
export function findHolders({ disk, locks }: LockSources, sessions: Iterable<string>): Map<string, Holder> {
  const sockets = boundSockets(disk);
  const bound = sockets && new Set(sockets.map(getFileKey));
  const found = new Map<string, Holder>();
  for (const session of sessions) {
    const named = getInfo(disk, getLockedFile(session), true);
    const isLink = named?.kind === "link";
    const key = isLink ? getInfo(disk, getLockedFile(session)) : named;
    if (key === null) continue;
    const near = placeOf(session, key);
    const mayBeHeld = isLink || bound?.has(getFileKey(key)) !== false || getInfo(disk, near.path, true) !== null;
    if (!mayBeHeld) continue;
    const place = isContainerName(session) ? near : locateLock(disk, session, key.inode);
    const holder = locks.holder(key, place);
    if (holder) found.set(session, holder);
  }
  return found;
}

/** Removes traces of a dead holder, by taking the lock and releasing it. Returns the holder if the lock is held. */
export function clearLock(locks: Locks, { key, place }: LockTrace): Holder | null {
  const acquired = locks.acquire(key, place);
  if (!isLock(acquired)) return acquired;
  acquired.release();
  return null;
}
