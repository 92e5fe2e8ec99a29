/**
 * Claims: the records of lock holders in lock files and in notes. A note tells other processes who holds a lock; the
 * lock itself does not depend on it. It lies next to the lock file, so that every process that sees the lock can read
 * it; where that is not possible, in the lock folders.
 */

import { hostname, tmpdir, userInfo } from "node:os";
import { basename, dirname, join } from "node:path";
import { isMissing } from "../../core/errno.ts";
import { parse, toBytes } from "../../core/json/json.ts";
import type { Holder } from "../../core/ports/lock.ts";
import { type Disk, exists, removeQuietly, writeAll } from "../fs/disk.ts";
import { getInfo, isNameTaken, readAt, useFile } from "../fs/files.ts";
import { getProcessStart, isSameProcess } from "../fs/processes.ts";
import { type FileKey, type LockOptions, UNKNOWN } from "./contract.ts";
import { getNotePath } from "./lock-paths.ts";

/** Ending of the names of notes in the lock folders. */
const NOTE = "json";
/** Maximum bytes of a claim; ours have 200, and names of programs and machines. */
const LARGEST = 65_536;

/** A holder as its lock file or its note describes it. */
interface Claim extends Holder {
  readonly host: string;
  /** Start time of its process, from {@link getProcessStart}: distinguishes a reused pid from the same process. */
  readonly started: string;
  /** The pid namespace of its pid; 0 where the system has none. */
  readonly space?: number;
  /** The inode of the locked file. */
  readonly inode?: number;
}

type OwnProcess = Pick<Required<Claim>, "pid" | "host" | "started" | "space">;

/** Makes claims and checks whether their processes are alive. Each instance of locks has one. */
export class Claims {
  private readonly options: LockOptions;
  /** The facts about this process that never change. */
  private own: OwnProcess | undefined;

  constructor(options: LockOptions) {
    this.options = options;
  }

  /** Returns our claim on a file. */
  make(inode: number): Claim {
    const { client, now } = this.options;
    const { pid, host, started, space } = this.facts();
    return { client, pid, since: now(), host, started, space, inode };
  }

  /** Returns whether the process of a claim has ended; false when that cannot be known from here. */
  isStale(claim: Partial<Claim>): boolean {
    const { host, space } = this.facts();
    if (claim.host !== host || (claim.space ?? space) !== space) return false;
    return !isSameProcess(this.options.disk, claim.pid, claim.started);
  }

  isOfThisHost(claim: Partial<Claim>): boolean {
    return claim.host === this.facts().host;
  }

  private facts(): OwnProcess {
    const { disk } = this.options;
    const { pid } = process;
    if (this.own) return this.own;
    // Only Linux has pid namespaces.
    const space = getInfo(disk, "/proc/self/ns/pid")?.inode ?? 0;
    this.own = { pid, host: hostname(), started: getProcessStart(disk, pid) ?? "", space };
    return this.own;
  }
}

export function toHolder({ client, pid, since }: Partial<Claim>): Holder {
  return {
    client: typeof client === "string" ? client : UNKNOWN.client,
    pid: typeof pid === "number" ? pid : UNKNOWN.pid,
    since: typeof since === "string" ? since : UNKNOWN.since,
  };
}

/** Returns the content of a lock file or note; null if there is no file. The claim is null if it is invalid. */
export function readClaim(disk: Disk, path: string): { bytes: Uint8Array; claim: Partial<Claim> | null } | null {
  let bytes: Uint8Array = new Uint8Array(0);
  try {
    bytes = useFile(disk, disk.openRead(path), (fd) => {
      const { size } = disk.infoOf(fd);
      // Any process that may write to the session's folder may have made it.
      return size > LARGEST ? bytes : readAt(disk, fd, 0, size);
    });
    const claim = parse(bytes);
    return { bytes, claim: typeof claim === "object" && claim !== null ? (claim as Partial<Claim>) : null };
  } catch (error) {
    return isMissing(error) ? null : { bytes, claim: null };
  }
}

/** Returns the paths for a file's locks or notes: in our state folder, and in that of all servers of the user. */
export function getLockFolderPaths(
  { disk, stateFolder }: LockOptions,
  { device, inode }: FileKey,
  ending: string,
): string[] {
  const common = getCommonFolder();
  const folders = isOurs(disk, common) ? [stateFolder, common] : [stateFolder];
  return folders.map((folder) => join(folder, "locks", `${device}-${inode}.${ending}`));
}

/** Returns the folder that all servers of a user share, independent of their state folders. */
export function getCommonFolder(): string {
  let user = String(userId());
  try {
    user = userInfo().username;
  } catch {
    // The user has no name; the number is used.
  }
  return join(tmpdir(), `pi-session-server-${user}`);
}

/** Returns whether a folder that any user could create is missing, or only we can write to it. */
function isOurs(disk: Disk, folder: string): boolean {
  try {
    if (!exists(disk, folder)) return true;
    const { kind, owner, mode } = disk.info(folder);
    const real = join(disk.realPath(dirname(folder)), basename(folder));
    return (
      kind === "folder" && (owner ?? userId()) === userId() && (mode & 0o022) === 0 && disk.realPath(folder) === real
    );
  } catch {
    return false;
  }
}

function userId(): number {
  return process.getuid?.() ?? 0;
}

interface WrittenNote {
  /** True if a note was found: it is from a holder that died, because releasing a lock removes the note. */
  readonly wasLeft: boolean;
  /** Removes the note. `lockPath`: the current path of the lock file. */
  remove(lockPath?: string): void;
}

export class HolderNotes {
  private readonly options: LockOptions;
  private readonly disk: Disk;
  private readonly claims: Claims;

  constructor(options: LockOptions) {
    this.options = options;
    this.disk = options.disk;
    this.claims = new Claims(options);
  }

  /** Returns the holder by its note. Ignores notes of processes that have ended; of several notes the newest counts. */
  read(file: FileKey, lockPath?: string): Holder | null {
    const paths = getLockFolderPaths(this.options, file, NOTE);
    if (lockPath !== undefined) paths.push(getNotePath(lockPath));
    let holder: Holder | null = null;
    for (const path of paths) {
      const claim = readClaim(this.disk, path)?.claim;
      if (!claim || (claim.inode ?? file.inode) !== file.inode || this.claims.isStale(claim)) continue;
      if (holder === null || String(claim.since) > holder.since) holder = toHolder(claim);
    }
    return holder;
  }

  /** Writes our note. We must hold the lock. */
  write(file: FileKey, lockPath?: string): WrittenNote {
    const { disk } = this;
    const bytes = toBytes(JSON.stringify(this.claims.make(file.inode)));
    const nextTo = lockPath === undefined ? "refused" : this.put(getNotePath(lockPath), bytes, file);
    if (lockPath !== undefined && nextTo !== "refused")
      return { wasLeft: nextTo === "left", remove: (now = lockPath) => removeQuietly(disk, getNotePath(now)) };
    const put = getLockFolderPaths(this.options, file, NOTE).map((path) => ({
      path,
      was: this.put(path, bytes, file, true),
    }));
    return {
      wasLeft: put.some(({ was }) => was === "left"),
      remove() {
        for (const { path, was } of put) if (was !== "refused") removeQuietly(disk, path);
      },
    };
  }

  /** Writes our note at a path. Replaces one that was left. */
  private put(path: string, bytes: Uint8Array, file: FileKey, withFolder = false): "new" | "left" | "refused" {
    const { disk } = this;
    let made = false;
    try {
      if (withFolder) disk.makeFolder(dirname(path));
      let left = false;
      let fd: number;
      try {
        fd = disk.create(path);
      } catch (error) {
        if (!isNameTaken(error)) throw error;
        // A copy of a container may have brought the note of another session with it.
        const { claim } = readClaim(disk, path) ?? {};
        left = (claim?.inode ?? file.inode) === file.inode;
        disk.remove(path);
        fd = disk.create(path);
      }
      made = true;
      useFile(disk, fd, () => writeAll(disk, fd, bytes));
      return left ? "left" : "new";
    } catch {
      if (made) removeQuietly(disk, path);
      return "refused";
    }
  }
}
