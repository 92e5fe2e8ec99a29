/**
 * One writer for each file. The lock belongs to the file itself (device and inode), not to a name of it, and ends
 * with its holder, however that ends (architecture, "Lock").
 */

import { createServer, type Server } from "node:net";
import { hostname, tmpdir, userInfo } from "node:os";
import { basename, dirname, join } from "node:path";
import { Failure } from "../failure.ts";
import { bytesOf, parse, sameBytes } from "../json.ts";
import {
  closeQuietly,
  type Disk,
  exists,
  isErrno,
  publishNew,
  readUnsized,
  readWhole,
  removeQuietly,
  storageFailure,
  temporaryName,
  writeAll,
} from "./disk.ts";
import { isSameProcess, processStart } from "./processes.ts";
import type { Holder } from "./store.ts";

export interface FileKey {
  readonly device: number;
  readonly inode: number;
}

export interface Lock {
  release(): void;
}

export interface Locks {
  /**
   * Takes the lock of a file at once, or answers who holds it. Throws read_only when locks cannot be kept at all, and
   * storage_failed when the system refuses one for now.
   */
  take(file: FileKey): Lock | Holder;
  /** Who else holds the lock of a file now. */
  holder(file: FileKey): Holder | null;
}

export interface LockOptions {
  readonly disk: Disk;
  readonly stateFolder: string;
  /** What we call ourselves to whoever finds the file locked. */
  readonly client: string;
  /** ISO 8601 now. */
  readonly now: () => string;
}

export function isLock(taken: Lock | Holder): taken is Lock {
  return "release" in taken;
}

export function makeLocks(options: LockOptions): Locks {
  return process.platform === "linux" ? socketLocks(options) : fileLocks(options);
}

/** A lock whose release counts once. */
function lockWith(release: () => void): Lock {
  let held = true;
  return {
    release() {
      if (!held) return;
      held = false;
      release();
    },
  };
}

/** Several logs of one process write to a file together: what one of them holds, the others may use. */
export function sharedLocks(locks: Locks): Locks {
  const held = new Map<string, { lock: Lock; users: number }>();
  return {
    take(file) {
      const key = keyOf(file);
      let entry = held.get(key);
      if (!entry) {
        const lock = locks.take(file);
        if (!isLock(lock)) return lock;
        entry = { lock, users: 0 };
        held.set(key, entry);
      }
      const shared = entry;
      shared.users++;
      return lockWith(() => {
        if (--shared.users > 0) return;
        held.delete(key);
        shared.lock.release();
      });
    },
    holder: (file) => (held.has(keyOf(file)) ? null : locks.holder(file)),
  };
}

/** Nobody else is there: sessions of tests, and of hosts that say so. */
export const noLocks: Locks = { take: () => ({ release() {} }), holder: () => null };

const UNKNOWN: Holder = { client: "another process", pid: 0, since: "" };

/** Bytes of a socket's name. All of them are used, for versions of Node differ in whether they fill a shorter one up. */
const SOCKET_NAME = 108;
/** How often a lock is asked for that is neither given to us nor held by anybody. */
const TRIES = 5;
/** How the kernel lists sockets. */
const SOCKETS = "/proc/net/unix";

/**
 * Linux: a socket in the abstract namespace, which the kernel gives to one process at a time and takes back at its
 * death. Binding happens inside `listen`, so that the outcome is known when it returns. Whoever only looks reads the
 * kernel's list, and so is in nobody's way. The user is no part of the name: a file that two users write has one lock.
 */
function socketLocks(options: LockOptions): Locks {
  const note = holderNote(options);
  const holderOf = (file: FileKey): Holder => note.read(file) ?? UNKNOWN;
  return {
    take(file) {
      for (let tries = 0; tries < TRIES; tries++) {
        const server = bind(file);
        if (server) {
          note.write(file);
          return lockWith(() => {
            note.remove(file);
            server.close();
          });
        }
        // Else whoever had it has just let go, or it was refused for another reason.
        if (isBound(options.disk, file) ?? true) return holderOf(file);
      }
      throw new Failure(
        "storage_failed",
        "The system refused the socket that locks the session. Nothing was changed; ask again.",
        {},
        { retryable: true },
      );
    },
    holder(file) {
      const bound = isBound(options.disk, file);
      if (bound !== undefined) return bound ? holderOf(file) : null;
      const server = bind(file);
      server?.close();
      return server ? null : holderOf(file);
    },
  };
}

function socketName(file: FileKey): string {
  return `pi-session-server/${keyOf(file)}/`;
}

function bind(file: FileKey): Server | undefined {
  // Whoever connects has nothing to ask here, and must not keep the process alive.
  const server = createServer((socket) => socket.destroy());
  server.on("error", () => {});
  // Exclusive: the workers of a cluster share what they listen to otherwise.
  server.listen({ path: `\0${socketName(file)}`.padEnd(SOCKET_NAME, "/"), exclusive: true });
  server.unref();
  return server.listening ? server : undefined;
}

/** Whether a process has the socket of a file; undefined where the kernel's list cannot be read. */
function isBound(disk: Disk, file: FileKey): boolean | undefined {
  let list: Buffer;
  try {
    list = Buffer.from(readUnsized(disk, SOCKETS));
  } catch (error) {
    // Where no file can be opened nothing can be locked either, and nobody is to blame.
    if (!isErrno(error) || error.code === "EMFILE" || error.code === "ENFILE")
      throw storageFailure(error, "looking for the session's lock");
    return undefined;
  }
  return list.includes(`@${socketName(file)}`);
}

function userId(): number {
  return process.getuid?.() ?? 0;
}

function keyOf({ device, inode }: FileKey): string {
  return `${device}:${inode}`;
}

/**
 * Folders for small files about locks: the one in our state folder, and one that servers with other state folders
 * know, too.
 */
function lockFolders({ disk, stateFolder }: LockOptions): string[] {
  const common = commonFolder();
  const folders = [join(stateFolder, "locks")];
  if (isOurs(disk, common)) folders.push(join(common, "locks"));
  return folders;
}

/** Returns the folder of a user's servers, whatever their state folders are. */
export function commonFolder(): string {
  let user = String(userId());
  try {
    user = userInfo().username;
  } catch {
    // A user without a name still has a number.
  }
  return join(tmpdir(), `pi-session-server-${user}`);
}

/** Whether a folder that anybody can make is not there yet or is ours alone. */
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

/** A holder as its lock or its note tells of it. */
interface Claim extends Holder {
  readonly host: string;
  /** When its process started, as {@link processStart} has it: tells a reused pid from the same process. */
  readonly started: string;
}

function claimOf({ disk, client, now }: LockOptions): Claim {
  const { pid } = process;
  return { client, pid, since: now(), host: hostname(), started: processStart(disk, pid) ?? "" };
}

function holderIn({ client, pid, since }: Partial<Claim>): Holder {
  return {
    client: typeof client === "string" ? client : UNKNOWN.client,
    pid: typeof pid === "number" ? pid : UNKNOWN.pid,
    since: typeof since === "string" ? since : UNKNOWN.since,
  };
}

/** Who holds a lock, for others to read; the lock itself does not depend on it. */
function holderNote(options: LockOptions): {
  read(file: FileKey): Holder | null;
  write(file: FileKey): void;
  remove(file: FileKey): void;
} {
  const { disk } = options;
  const paths = (file: FileKey): string[] =>
    lockFolders(options).map((folder) => join(folder, `${keyOf(file).replace(":", "-")}.json`));
  return {
    /** Notes of processes that are gone are left over; of several the youngest counts. */
    read(file) {
      let holder: Holder | null = null;
      for (const path of paths(file)) {
        const claim = readClaim(disk, path)?.claim;
        if (!claim || claim.host !== hostname() || !isSameProcess(disk, claim.pid, claim.started)) continue;
        if (holder === null || String(claim.since) > holder.since) holder = holderIn(claim);
      }
      return holder;
    },
    write(file) {
      const bytes = bytesOf(JSON.stringify(claimOf(options)));
      for (const path of paths(file)) {
        const temporary = temporaryName(path);
        try {
          disk.makeFolder(dirname(path));
          const fd = disk.create(temporary);
          try {
            writeAll(disk, fd, bytes);
          } finally {
            disk.close(fd);
          }
          disk.rename(temporary, path);
        } catch {
          removeQuietly(disk, temporary);
        }
      }
    },
    remove(file) {
      for (const path of paths(file)) removeQuietly(disk, path);
    },
  };
}

/** What stands in a file about a lock; the claim is null when it is none. Null when there is no file. */
function readClaim(disk: Disk, path: string): { bytes: Uint8Array; claim: Partial<Claim> | null } | null {
  let bytes: Uint8Array = new Uint8Array(0);
  try {
    bytes = readWhole(disk, path);
    const claim = parse(bytes);
    return { bytes, claim: typeof claim === "object" && claim !== null ? (claim as Partial<Claim>) : null };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === "ENOENT" || code === "ENOTDIR" ? null : { bytes, claim: null };
  }
}

/** How often claims are looked at again until the others have gone. */
const LOOKS = 100;
let claims = 0;

/**
 * Elsewhere: a file that appears whole under its name or not at all, in every folder that can be written, so that
 * servers exclude each other that have one of them in common. It is stale when its process is gone, or is another one
 * under the same pid; a lock of another host counts as held, for nobody can look.
 */
export function fileLocks(options: LockOptions): Locks {
  const { disk } = options;
  const pathsOf = (file: FileKey): string[] =>
    lockFolders(options).map((folder) => join(folder, `${keyOf(file).replace(":", "-")}.lock`));

  /** Who holds the lock at a path, or null. */
  const holderAt = (path: string, found = readClaim(disk, path)): Holder | null => {
    if (!found) return null;
    if (!found.claim) return { ...UNKNOWN, client: `another process, whose lock ${path} cannot be read,` };
    if (isStale(disk, found.claim)) return null;
    const holder = holderIn(found.claim);
    return found.claim.host === hostname()
      ? holder
      : { ...holder, client: `${holder.client} on ${found.claim.host}, by its lock ${path},` };
  };

  const publish = (path: string, bytes: Uint8Array): void => {
    const fill = (fd: number): void => {
      writeAll(disk, fd, bytes);
      // One that a loss of power spoiled would count as held for ever.
      disk.syncNow(fd);
    };
    closeQuietly(disk, publishNew(disk, path, fill));
  };

  /**
   * Removes a stale lock. Whoever wants to says so first, in a file whose name is nobody else's, and looks for others
   * that want the same: of those that see each other only the first by name stays, and it goes on when it is alone. So
   * nobody removes a lock that has taken the place of the stale one meanwhile.
   */
  const clear = (path: string, stale: Uint8Array): void => {
    const own = `${path}.${process.pid}-${Math.floor(performance.timeOrigin)}-${++claims}.claim`;
    publish(own, bytesOf(JSON.stringify(claimOf(options))));
    try {
      for (let looks = 0; looks < LOOKS; looks++) {
        const others = rivals(path, own);
        if (others.length === 0) {
          const now = readClaim(disk, path);
          if (now && sameBytes(now.bytes, stale)) disk.remove(path);
          return;
        }
        if (others.some((other) => other < own)) return;
      }
    } finally {
      removeQuietly(disk, own);
    }
  };

  /** The claims of others that are alive. */
  const rivals = (path: string, own: string): string[] => {
    const found: string[] = [];
    for (const name of disk.names(dirname(path))) {
      const other = join(dirname(path), name);
      if (!name.startsWith(`${basename(path)}.`) || !name.endsWith(".claim") || other === own) continue;
      const claim = readClaim(disk, other);
      if (claim?.claim && isStale(disk, claim.claim)) removeQuietly(disk, other);
      else if (claim) found.push(other);
    }
    return found;
  };

  /** The lock at a path, or who holds it, or null where none can be kept. */
  const takeAt = (path: string, bytes: Uint8Array): Lock | Holder | null => {
    for (let tries = 0; tries < TRIES; tries++) {
      try {
        disk.makeFolder(dirname(path));
        publish(path, bytes);
        return lockWith(() => {
          const now = readClaim(disk, path);
          if (now && sameBytes(now.bytes, bytes)) removeQuietly(disk, path);
        });
      } catch (error) {
        const found = readClaim(disk, path);
        const holder = holderAt(path, found);
        if (holder) return holder;
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") return null;
        if (found) clearQuietly(path, found.bytes);
      }
    }
    return UNKNOWN;
  };

  const clearQuietly = (path: string, stale: Uint8Array): void => {
    try {
      clear(path, stale);
    } catch {
      // Another one was quicker, or nothing can be written here; the next try tells.
    }
  };

  return {
    holder(file) {
      for (const path of pathsOf(file)) {
        const holder = holderAt(path);
        if (holder) return holder;
      }
      return null;
    },
    take(file) {
      const bytes = bytesOf(JSON.stringify(claimOf(options)));
      const locks: Lock[] = [];
      const release = (): void => {
        for (const lock of locks) lock.release();
      };
      for (const path of pathsOf(file)) {
        const taken = takeAt(path, bytes);
        if (taken === null) continue;
        if (!isLock(taken)) {
          release();
          return taken;
        }
        locks.push(taken);
      }
      if (locks.length > 0) return lockWith(release);
      throw new Failure(
        "read_only",
        "No lock can be kept, so nothing may be written. Set PI_SESSION_SERVER_STATE_DIR to a folder that is writable.",
      );
    },
  };
}

function isStale(disk: Disk, claim: Partial<Claim>): boolean {
  return claim.host === hostname() && !isSameProcess(disk, claim.pid, claim.started);
}
