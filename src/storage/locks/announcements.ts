/** Announcements as files: `<name>.json` describes the holder of a session, whose socket is `<name>-<epoch>.sock`. */

import { parse, toBytes } from "../../core/json/json.ts";
import { type Disk, removeQuietly, writeAll } from "../fs/disk.ts";
import { readAt, useFile } from "../fs/files.ts";
import { isPrivate } from "../fs/private-folders.ts";

/** Maximum bytes of an announcement; ours have 300. */
const LARGEST = 4096;
/** Characters of the names in it. */
const LONGEST_NAME = 256;
/** Characters of a token with 128 bits. */
const SHORTEST_TOKEN = 22;

/** Pattern of the rest of a file name after the session's name. */
const ENDING = /^(?:\.json|\.new|-\d+\.sock)$/;

/** Returns the inode of the session that a file next to sessions announces; undefined for any other name. */
export function parseAnnouncedInode(name: string): number | undefined {
  const [inode] = /^\d+/.exec(name) ?? [];
  return inode !== undefined && ENDING.test(name.slice(inode.length)) ? Number(inode) : undefined;
}

/** The facts that a holder publishes for processes that want to join it. */
export interface Announcement {
  /** 256 random bits in base64url. A joining client proves with them that it has read the announcement. */
  readonly token: string;
  /** Larger than that of every holder before, as far as this process can know: their number plus one, or the time. */
  readonly epoch: number;
  /** The major version of the protocol that the holder speaks on attached streams. */
  readonly protocol: number;
  /** Version of the holder's program. */
  readonly version: string;
  /** The holder's name for people, as its lock has it. */
  readonly client: string;
  /** The holder's process, in its own pid namespace. */
  readonly pid: number;
}

/** An announcement with the run of the kernel in which it can be reached. */
export interface HostAnnouncement extends Announcement {
  readonly host: string;
}

export function getSocketPath(folder: string, name: string, epoch: number): string {
  return `${folder}/${name}-${epoch}.sock`;
}

/** Returns the announcement in a folder; null if this user wrote none or only part of one. */
export function readAnnouncement(disk: Disk, folder: string, name: string): HostAnnouncement | null {
  try {
    return useFile(disk, disk.openRead(`${folder}/${name}.json`, true), (fd) => {
      const info = disk.infoOf(fd);
      if (!isPrivate(info, "file") || info.size > LARGEST) return null;
      const found = parse(readAt(disk, fd, 0, info.size));
      return isAnnouncement(found) ? found : null;
    });
  } catch {
    return null;
  }
}

/** Writes an announcement into a folder in one step, replacing another. A failure leaves none of ours. */
export function writeAnnouncement(disk: Disk, folder: string, name: string, announcement: HostAnnouncement): void {
  const { client, version } = announcement;
  const cut = { ...announcement, client: client.slice(0, LONGEST_NAME), version: version.slice(0, LONGEST_NAME) };
  // Only the holder of the session's lock writes here, so one name is enough, and no other temporary file is left.
  const temporary = `${folder}/${name}.new`;
  const bytes = toBytes(JSON.stringify(cut));
  removeQuietly(disk, temporary);
  try {
    useFile(disk, disk.create(temporary), (fd) => writeAll(disk, fd, bytes));
    disk.rename(temporary, `${folder}/${name}.json`);
  } catch (error) {
    removeQuietly(disk, temporary);
    throw error;
  }
}

export function removeAnnouncement(disk: Disk, folder: string, name: string): void {
  removeQuietly(disk, `${folder}/${name}.json`);
}

/** Removes everything that holders of a session left in a folder. Only the next holder may do this. */
export function clearAnnouncements(disk: Disk, folder: string, name: string): void {
  for (const found of disk.names(folder))
    if (found.startsWith(name) && ENDING.test(found.slice(name.length))) removeQuietly(disk, `${folder}/${found}`);
}

/** Upper limit of numbers in announcements. */
const MOST = 2 ** 52;

/** Returns the epoch of the next holder after those up to `last`: the time, as long as that is larger. */
export function getNextEpoch(last: number, now: number): number {
  // A number without a possible successor is invented; no time or count comes near it.
  return last + 1 < MOST ? Math.max(now, last + 1) : now;
}

function isCount(number: number): boolean {
  return number >= 0 && number < MOST;
}

function isAnnouncement(value: unknown): value is HostAnnouncement {
  if (typeof value !== "object" || value === null) return false;
  const { token, epoch, protocol, version, client, pid, host } = value as Record<keyof HostAnnouncement, unknown>;
  return (
    [token, version, client, host].every((text) => typeof text === "string") &&
    [epoch, protocol, pid].every((number) => Number.isSafeInteger(number) && isCount(number as number)) &&
    (token as string).length >= SHORTEST_TOKEN
  );
}
