/**
 * Lets a process that finds a session locked reach the holder of the lock: sockets, with announcements in private folders.
 * Only the lock decides who owns a session; an announcement only gives an address, and may be missing or late at any time.
 */

import { hostname } from "node:os";
import type { Duplex } from "node:stream";
import { isMissing } from "../../core/errno.ts";
import { type Disk, type FileInfo, removeQuietly } from "../../storage/fs/disk.ts";
import { getInfo } from "../../storage/fs/files.ts";
import {
  isPrivate,
  listPlaces,
  makePrivateFolder,
  type PlacesDeps,
  type PrivatePlace,
  removeIfEmpty,
  requirePrivate,
  usePrivateFolder,
} from "../../storage/fs/private-folders.ts";
import { readBootId } from "../../storage/fs/processes.ts";
import { drawBytes } from "../../storage/fs/random.ts";
import { isSameFile } from "../../storage/fs/stamps.ts";
import {
  type Announcement,
  clearAnnouncements,
  getNextEpoch,
  getSocketPath,
  type HostAnnouncement,
  readAnnouncement,
  removeAnnouncement,
  writeAnnouncement,
} from "../../storage/locks/announcements.ts";
import { connectTo, isUnbound, listenAt } from "./sockets.ts";

/** The major version of the protocol of an attached stream. */
export const ATTACH_PROTOCOL = 1;

/** A holder's listening socket, announced. */
export interface Entrance {
  readonly announcement: Announcement;
  /**
   * Announces the same at the file that replaced the session's, after a repair or a move. Connected clients stay
   * connected. If that fails, no other process can find the holder until the next call. Never throws.
   */
  moved(file: string): void;
  /**
   * Stops listening and removes socket and announcement, if they are still ours, while the lock is held: without it,
   * the next holder may replace them by its own in between. Connected clients stay connected. Never throws.
   */
  close(): void;
  /** Does the same without the lock: the announcement stays, as that of a holder that died. Never throws. */
  abandon(): void;
  /** Announces the holder again if other programs removed the announcement, as cleaners of folders do. Never throws. */
  renew(): void;
}

/** A holder as its announcement describes it, which may have died since. */
export interface FoundHolder {
  readonly announcement: Announcement;
  /** Connects to the holder. Rejects at once when no process listens. A stopped holder accepts, and is silent. */
  connect(): Promise<Duplex>;
}

/** Ways in and out between the processes of one user on one kernel. */
export interface Attachments {
  /**
   * Listens for clients that want to join the session at `file`, a session file or a container, whose lock this process
   * holds. `entered` gets each one before it has shown the token. Does not keep the process alive. Returns null if
   * listening fails. Never throws: the lock is held all the same.
   */
  open(file: string, entered: (stream: Duplex) => void): Entrance | null;
  /**
   * Finds the announced holder of the session at `file`. Returns null when this process can join none. Creates and
   * removes nothing, and never throws.
   */
  find(file: string): FoundHolder | null;
}

/** Returns whether a client gave the token of an announcement. Takes the same time for every wrong one. */
export function isToken(given: unknown, { token }: Pick<Announcement, "token">): boolean {
  if (typeof given !== "string" || given.length !== token.length) return false;
  let difference = 0;
  for (let at = 0; at < token.length; at++) difference |= given.charCodeAt(at) ^ token.charCodeAt(at);
  return difference === 0;
}

export interface AttachOptions extends PlacesDeps {
  /** Name of this server for processes that find it, and the version of its program. */
  readonly client: string;
  readonly version: string;
  /** Returns milliseconds since the epoch. */
  readonly now: () => number;
}

/** An open and announced socket. */
interface Announced {
  readonly place: PrivatePlace;
  readonly socket: FileInfo;
  /** Stops listening. Existing connections stay open. */
  stop(): void;
}

type Entered = (stream: Duplex) => void;

/** Bytes of a token. */
const TOKEN = 32;
/** Attempts to use a folder that others remove as soon as it is empty. */
const TRIES = 5;
/** Sessions whose last epoch is kept in memory. */
const MOST_KEPT = 1000;

/** Returns the announcements and connections of this process. On a system without users, no process can connect. */
export function makeAttachments(options: AttachOptions): Attachments {
  const { client, version, now, ownDisk } = options;
  const epochs = new Epochs();
  let known: string | undefined;
  const host = (): string => {
    known ??= hostOf(ownDisk);
    return known;
  };
  const places = (file: string): PrivatePlace[] => (process.getuid ? listPlaces(options, file) : []);
  const open = (file: string, entered: Entered): Entrance | null => {
    const found = places(file);
    const epoch = getNextEpoch(Math.max(epochs.last(found), ...found.map(clear)), now());
    const token = drawBytes(TOKEN).toString("base64url");
    const announcement = { token, epoch, protocol: ATTACH_PROTOCOL, version, client, pid: process.pid };
    const announce = (at: readonly PrivatePlace[]): Announced | null => {
      epochs.note(at, epoch);
      return announceAtFirst(at, { ...announcement, host: host() }, entered);
    };
    const announceAnew = (at: readonly PrivatePlace[]): Announced | null => {
      for (const place of at) clear(place);
      return announce(at);
    };
    const announced = announce(found);
    return announced && entranceOf(announcement, announced, places, announceAnew);
  };
  const find = (file: string): FoundHolder | null => {
    let newest: FoundHolder | null = null;
    const all = places(file);
    for (const place of all) {
      const seen = quietly(() => lookAt(place));
      if (seen === null) continue;
      const { host: at, ...announcement } = seen.announcement;
      epochs.note(all, announcement.epoch);
      if (!seen.hasSocket || at !== host() || announcement.epoch <= (newest?.announcement.epoch ?? -1)) continue;
      newest = { announcement, connect: async () => connectAt(place, announcement) };
    }
    return newest;
  };
  return { open: (file, entered) => quietly(() => open(file, entered)), find: (file) => quietly(() => find(file)) };
}

/** The largest epochs seen: a holder that leaves removes its announcement, and clocks may be set back. */
class Epochs {
  private readonly seen = new Map<string, number>();

  note(places: readonly PrivatePlace[], epoch: number): void {
    const largest = Math.max(epoch, this.last(places));
    if (this.seen.size >= MOST_KEPT) this.seen.clear();
    this.seen.set(keyOf(places), largest);
  }

  last(places: readonly PrivatePlace[]): number {
    return this.seen.get(keyOf(places)) ?? 0;
  }
}

/** Returns the name of a session among those of all folders: the last folder has one. */
function keyOf(places: readonly PrivatePlace[]): string {
  return places.at(-1)?.name ?? "";
}

/** Returns an identifier of this run of the kernel: sockets do not answer others that see the same files. */
function hostOf(disk: Disk): string {
  return process.platform === "linux" ? readBootId(disk) : hostname();
}

/** Removes files of dead holders from a folder and returns the epoch of the last one, or 0. */
function clear(place: PrivatePlace): number {
  let epoch = 0;
  quietly(() =>
    usePrivateFolder(place, (at, disk) => {
      epoch = readAnnouncement(disk, at, place.name)?.epoch ?? 0;
      clearAnnouncements(disk, at, place.name);
    }),
  );
  return epoch;
}

function announceAtFirst(
  places: readonly PrivatePlace[],
  announcement: HostAnnouncement,
  entered: Entered,
): Announced | null {
  for (const place of places) {
    const announced = quietly(() => announceAt(place, announcement, entered));
    if (announced) return announced;
    removeIfEmpty(place);
  }
  return null;
}

/** Listens in a folder, making it if it is missing. Throws errno errors, and then leaves nothing. */
function announceAt(place: PrivatePlace, announcement: HostAnnouncement, entered: Entered): Announced {
  for (let tries = 1; ; tries++)
    try {
      makePrivateFolder(place);
      return usePrivateFolder(place, (at, disk) => announceIn(at, disk, place, announcement, entered));
    } catch (error) {
      // Binding a socket in a folder that was removed since it was opened fails in the same way.
      if (!(isMissing(error) || isUnbound(error)) || tries === TRIES) throw error;
    }
}

function announceIn(
  at: string,
  disk: Disk,
  place: PrivatePlace,
  announcement: HostAnnouncement,
  entered: Entered,
): Announced {
  const path = getSocketPath(at, place.name, announcement.epoch);
  const stop = listenAt(path, entered);
  try {
    disk.setMode?.(path, 0o600);
    const socket = disk.info(path, true);
    requirePrivate(socket, "other");
    // Written last: every process that finds the announcement finds the socket.
    writeAnnouncement(disk, at, place.name, announcement);
    return { place, socket, stop };
  } catch (error) {
    stop();
    removeQuietly(disk, path);
    throw error;
  }
}

function entranceOf(
  announcement: Announcement,
  first: Announced,
  places: (file: string) => readonly PrivatePlace[],
  announceAnew: (at: readonly PrivatePlace[]) => Announced | null,
): Entrance {
  let announced: Announced | null = first;
  let place: PrivatePlace | undefined = first.place;
  let isOpen = true;
  const leave = (hasLock: boolean): void => {
    if (announced) retract(announced, announcement, hasLock);
    announced = null;
  };
  const end = (hasLock: boolean): void => {
    isOpen = false;
    leave(hasLock);
  };
  return {
    announcement,
    moved(file) {
      if (!isOpen) return;
      leave(true);
      announced = quietly(() => announceAnew(places(file)));
      place = announced?.place;
    },
    close: () => end(true),
    abandon: () => end(false),
    renew() {
      const known = place;
      if (!isOpen || !known || (announced && isThere(announced, announcement))) return;
      announced?.stop();
      announced = quietly(() => announceAnew([known]));
    },
  };
}

/** Returns whether a holder can be found in its folder. */
function isThere({ place, socket }: Announced, { token, epoch }: Announcement): boolean {
  const found = quietly(() =>
    usePrivateFolder(
      place,
      (at, disk) =>
        readAnnouncement(disk, at, place.name)?.token === token &&
        isSameFile(disk.info(getSocketPath(at, place.name, epoch), true), socket),
    ),
  );
  return found === true;
}

/** Stops listening and removes the socket and, with the lock, the announcement, unless it is another holder's. */
function retract({ place, socket, stop }: Announced, { token, epoch }: Announcement, hasLock: boolean): void {
  stop();
  quietly(() =>
    usePrivateFolder(place, (at, disk) => {
      if (hasLock && readAnnouncement(disk, at, place.name)?.token === token) removeAnnouncement(disk, at, place.name);
      const path = getSocketPath(at, place.name, epoch);
      if (isSameFile(disk.info(path, true), socket)) disk.remove(path);
    }),
  );
  removeIfEmpty(place);
}

/** Returns the announcement in a folder if this user wrote it; null otherwise. Throws errno errors. */
function lookAt(place: PrivatePlace): { announcement: HostAnnouncement; hasSocket: boolean } | null {
  return usePrivateFolder(place, (at, disk) => {
    const announcement = readAnnouncement(disk, at, place.name);
    if (announcement === null) return null;
    const socket = getInfo(disk, getSocketPath(at, place.name, announcement.epoch), true);
    return { announcement, hasSocket: socket !== null && isPrivate(socket, "other") };
  });
}

function connectAt(place: PrivatePlace, { epoch }: Announcement): Promise<Duplex> {
  return usePrivateFolder(place, (at, disk) => {
    const path = getSocketPath(at, place.name, epoch);
    requirePrivate(disk.info(path, true), "other");
    return connectTo(path);
  });
}

/** Returns the result of `run`, or null if it throws: reaching another process is optional. */
function quietly<T>(run: () => T): T | null {
  try {
    return run();
  } catch {
    return null;
  }
}
