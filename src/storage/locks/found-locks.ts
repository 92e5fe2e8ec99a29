/** Finds the locks that are held, and what dead holders left of theirs, among the sessions of some folders. */

import { basename, dirname, join } from "node:path";
import type { Holder } from "../../core/ports/store.ts";
import { isContainerName } from "../fs/container-paths.ts";
import { type Disk, readUnsized } from "../fs/disk.ts";
import { infoOrNull } from "../fs/files.ts";
import { entriesIfListed } from "../fs/folders.ts";
import { commonFolder, holderIn, readClaim } from "./claims.ts";
import { type FileKey, isLock, keyOf, type LockLocation, type Locks, UNKNOWN } from "./contract.ts";
import { isLockInContainer, lockInContainer, lockInFolder, noteNextTo } from "./lock-paths.ts";
import { SOCKETS, socketName } from "./socket-lock.ts";

/** Names of the locks of session files and their notes. */
const IN_FOLDER = /^\.pi-session-(\d+)\.(?:lock|holder)$/;
/** Names of locks and notes in the lock folders. */
const IN_LOCK_FOLDER = /^(\d+)-(\d+)\.(?:json|lock)$/;

/** A lock that somebody has, or that somebody left. */
export interface LockTrace {
  readonly key: FileKey;
  readonly place?: LockLocation;
  /** Path of the session, if it is one of those that were given. */
  readonly session: string | null;
  /** Null when nobody has it: its holder died with it. */
  readonly holder: Holder | null;
  /** The last holder, as its note says. */
  readonly noted: Holder;
}

interface LockSources {
  readonly disk: Disk;
  readonly locks: Locks;
  readonly stateFolder: string;
}

type Trace = Pick<LockTrace, "key" | "place"> & { note?: string };

/** Returns the locks of the sessions at these paths, each by the inode that its lock belongs to, in these folders. */
export function findLocks(
  looked: LockSources,
  sessions: ReadonlyMap<string, string>,
  folders: Iterable<string>,
): LockTrace[] {
  const { disk, locks } = looked;
  const traces = new Map<string, Trace>();
  const add = (trace: Trace): void => {
    const known = traces.get(keyOf(trace.key));
    traces.set(keyOf(trace.key), {
      ...trace,
      ...known,
      place: known?.place ?? trace.place,
      note: known?.note ?? trace.note,
    });
  };
  for (const folder of folders) for (const trace of tracesIn(disk, folder)) add(trace);
  for (const trace of tracesInLockFolders(looked)) add(trace);
  for (const key of boundKeys(disk, sessions)) add({ key, place: placeOf(sessions.get(keyOf(key)) as string, key) });
  return [...traces.values()].map(({ key, place, note }) => {
    const claim = note === undefined ? undefined : readClaim(disk, note)?.claim;
    const noted = claim ? holderIn(claim) : UNKNOWN;
    return { key, place, session: sessions.get(keyOf(key)) ?? null, holder: locks.holder(key, place), noted };
  });
}

/** Returns the place of the lock of a session, given the inode that it belongs to. */
function placeOf(session: string, { inode }: FileKey): LockLocation {
  return isContainerName(session) ? lockInContainer(session) : lockInFolder(dirname(session), inode);
}

/** Yields what lies in a folder of sessions, and in the containers in it. */
function* tracesIn(disk: Disk, folder: string): Generator<Trace> {
  const device = infoOrNull(disk, folder)?.device;
  if (device === undefined) return;
  for (const { name } of entriesIfListed(disk, folder)) {
    const [, inode] = IN_FOLDER.exec(name) ?? [];
    if (inode !== undefined) {
      const place = lockInFolder(folder, Number(inode));
      yield { key: { device, inode: Number(inode) }, place, note: noteNextTo(place.path) };
    }
    if (isContainerName(name)) yield* traceInContainer(disk, join(folder, name));
  }
}

function* traceInContainer(disk: Disk, container: string): Generator<Trace> {
  const place = lockInContainer(container);
  const header = infoOrNull(disk, place.like as string);
  if (header === null || ![place.path, noteNextTo(place.path)].some((path) => infoOrNull(disk, path, true))) return;
  if (isLockInContainer(basename(place.path))) yield { key: header, place, note: noteNextTo(place.path) };
}

function* tracesInLockFolders({ disk, stateFolder }: LockSources): Generator<Trace> {
  // What may not be read holds locks of another user.
  for (const folder of [stateFolder, commonFolder()].map((folder) => join(folder, "locks")))
    for (const { name } of entriesIfListed(disk, folder)) {
      const [, device, inode] = IN_LOCK_FOLDER.exec(name) ?? [];
      if (inode === undefined) continue;
      yield { key: { device: Number(device), inode: Number(inode) }, note: join(folder, name) };
    }
}

/** Yields the sessions whose sockets are bound, as the kernel lists them. */
function* boundKeys(disk: Disk, sessions: ReadonlyMap<string, string>): Generator<FileKey> {
  let list: string;
  try {
    list = Buffer.from(readUnsized(disk, SOCKETS)).toString("latin1");
  } catch {
    // Only Linux has such a list.
    return;
  }
  const prefix = socketName({ device: 0, inode: 0 }).split("0:0")[0];
  for (const part of list.split(`@${prefix}`).slice(1)) {
    const [, device, inode] = /^(\d+):(\d+)\//.exec(part) ?? [];
    const key = { device: Number(device), inode: Number(inode) };
    if (inode !== undefined && sessions.has(keyOf(key))) yield key;
  }
}

/** Removes what a dead holder left, by taking the lock and releasing it. Returns its holder if somebody has it. */
export function clearLock(locks: Locks, { key, place }: LockTrace): Holder | null {
  const acquired = locks.acquire(key, place);
  if (!isLock(acquired)) return acquired;
  acquired.release();
  return null;
}
