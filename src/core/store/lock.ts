/**
 * One writer for each file. The lock belongs to the file itself (device and inode), not to a name of it, and ends
 * with its holder, however that ends (architecture, "Lock").
 */

import { createServer, type Server } from "node:net";
import { hostname, tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { Failure } from "../failure.ts";
import { bytesOf, parse, sameBytes } from "../json.ts";
import { type Disk, publishNew, readWhole, removeQuietly, temporaryName, writeAll } from "./disk.ts";
import type { Holder } from "./store.ts";

export interface FileKey {
  readonly device: number;
  readonly inode: number;
}

export interface Lock {
  release(): void;
}

export interface Locks {
  /** Takes the lock of a file at once, or answers who holds it. Throws read_only when locks cannot be kept at all. */
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
      const { lock } = entry;
      entry.users++;
      const shared = entry;
      return {
        release() {
          if (--shared.users > 0) return;
          held.delete(key);
          lock.release();
        },
      };
    },
    holder: (file) => (held.has(keyOf(file)) ? null : locks.holder(file)),
  };
}

/** Nobody else is there: sessions of tests, and of hosts that say so. */
export const noLocks: Locks = { take: () => ({ release() {} }), holder: () => null };

const UNKNOWN: Holder = { client: "another process", pid: 0, since: "" };

/**
 * Linux: a socket in the abstract namespace, which the kernel gives to one process at a time and takes back at its
 * death. Binding happens inside `listen`, so that the outcome is known when it returns.
 */
function socketLocks(options: LockOptions): Locks {
  const bind = (file: FileKey): Server | undefined => {
    const server = createServer();
    server.on("error", () => {});
    server.listen(`\0pi-session-server/${userId()}/${keyOf(file)}`);
    server.unref();
    return server.listening ? server : undefined;
  };
  const note = holderNote(options);
  return {
    take(file) {
      // Whoever only looks who the holder is has it for a moment.
      const server = bind(file) ?? bind(file);
      if (!server) return note.read(file) ?? UNKNOWN;
      note.write(file);
      return {
        release() {
          note.remove(file);
          server.close();
        },
      };
    },
    holder(file) {
      const server = bind(file);
      if (!server) return note.read(file) ?? UNKNOWN;
      server.close();
      return null;
    },
  };
}

function userId(): number {
  return process.getuid?.() ?? 0;
}

function keyOf({ device, inode }: FileKey): string {
  return `${device}:${inode}`;
}

/** Folders in which we may keep small files about locks, the preferred one first. */
function lockFolders({ stateFolder }: LockOptions): string[] {
  let user = String(userId());
  try {
    user = userInfo().username;
  } catch {
    // A user without a name still has a number.
  }
  return [join(stateFolder, "locks"), join(tmpdir(), `pi-session-server-${user}`, "locks")];
}

/** Who holds a lock, for others to read; the lock itself does not depend on it. */
function holderNote(options: LockOptions): {
  read(file: FileKey): Holder | null;
  write(file: FileKey): void;
  remove(file: FileKey): void;
} {
  const { disk } = options;
  const folders = lockFolders(options);
  const name = (file: FileKey): string => `${keyOf(file).replace(":", "-")}.json`;
  return {
    read(file) {
      for (const folder of folders) {
        const holder = readHolder(disk, join(folder, name(file)));
        if (holder) return holder;
      }
      return null;
    },
    write(file) {
      const holder: Holder = { client: options.client, pid: process.pid, since: options.now() };
      for (const folder of folders) {
        const target = join(folder, name(file));
        const temporary = temporaryName(target);
        try {
          disk.makeFolder(folder);
          const fd = disk.create(temporary);
          try {
            writeAll(disk, fd, bytesOf(JSON.stringify(holder)));
          } finally {
            disk.close(fd);
          }
          disk.rename(temporary, target);
          return;
        } catch {
          removeQuietly(disk, temporary);
        }
      }
    },
    remove(file) {
      for (const folder of folders) removeQuietly(disk, join(folder, name(file)));
    },
  };
}

function readHolder(disk: Disk, path: string): Holder | null {
  try {
    const { client, pid, since } = parse(readWhole(disk, path)) as Partial<Holder>;
    return typeof pid === "number" ? { client: String(client), pid, since: String(since) } : null;
  } catch {
    return null;
  }
}

interface LockFile extends Holder {
  readonly host: string;
  /** When its process started, in whatever the system counts: tells a reused pid from the same process. */
  readonly started: string;
}

/**
 * Elsewhere: a file that appears whole under its name or not at all. It is stale when its process is gone, or is
 * another one under the same pid; a lock of another host counts as held, for nobody can look.
 */
export function fileLocks(options: LockOptions): Locks {
  const { disk } = options;
  const pathIn = (folder: string, file: FileKey): string => join(folder, `${keyOf(file).replace(":", "-")}.lock`);
  const find = (file: FileKey): { path: string; bytes: Uint8Array; lock: LockFile } | null => {
    for (const folder of lockFolders(options)) {
      const path = pathIn(folder, file);
      try {
        const bytes = readWhole(disk, path);
        const lock = parse(bytes);
        if (typeof lock === "object" && lock !== null) return { path, bytes, lock: lock as LockFile };
      } catch {
        // Not here.
      }
    }
    return null;
  };
  /** Takes a lock file away if it is still the one that was read; whoever was quicker keeps what stands there now. */
  const clear = (path: string, bytes: Uint8Array): void => {
    const aside = temporaryName(path);
    try {
      disk.rename(path, aside);
      if (!sameBytes(readWhole(disk, aside), bytes)) disk.link(aside, path);
    } catch {
      // It is gone already, or another one stands there.
    }
    removeQuietly(disk, aside);
  };
  const holderOf = (file: FileKey): Holder | null => {
    const found = find(file);
    if (!found || isStale(disk, found.lock)) return null;
    const { client, pid, since } = found.lock;
    return { client, pid, since };
  };
  return {
    holder: holderOf,
    take(file) {
      const found = find(file);
      if (found && !isStale(disk, found.lock)) return holderOf(file) ?? UNKNOWN;
      if (found) clear(found.path, found.bytes);
      const lock: LockFile = {
        client: options.client,
        pid: process.pid,
        since: options.now(),
        host: hostname(),
        started: startOf(disk, process.pid),
      };
      const bytes = bytesOf(JSON.stringify(lock));
      for (const folder of lockFolders(options)) {
        const path = pathIn(folder, file);
        try {
          disk.makeFolder(folder);
          disk.close(publishNew(disk, path, (fd) => writeAll(disk, fd, bytes)));
          return { release: () => clear(path, bytes) };
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code === "EEXIST") return holderOf(file) ?? UNKNOWN;
        }
      }
      throw new Failure(
        "read_only",
        "No lock can be kept, so nothing may be written. Set PI_SESSION_SERVER_STATE_DIR to a folder that is writable.",
      );
    },
  };
}

function isStale(disk: Disk, lock: Partial<LockFile>): boolean {
  if (lock.host !== hostname()) return false;
  if (typeof lock.pid !== "number") return true;
  try {
    process.kill(lock.pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return true;
  }
  const started = startOf(disk, lock.pid);
  return started !== "" && lock.started !== "" && started !== lock.started;
}

/** The start time of a process where the system tells it in a file, with the boot it belongs to; else empty. */
function startOf(disk: Disk, pid: number): string {
  try {
    const stat = Buffer.from(readSmall(disk, `/proc/${pid}/stat`)).toString("latin1");
    const boot = Buffer.from(readSmall(disk, "/proc/sys/kernel/random/boot_id")).toString("latin1").trim();
    return `${boot} ${stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]}`;
  } catch {
    return "";
  }
}

/** Files of /proc have no size. */
function readSmall(disk: Disk, path: string): Uint8Array {
  const fd = disk.openRead(path);
  try {
    const bytes = new Uint8Array(4096);
    return bytes.subarray(0, disk.read(fd, bytes, 0, bytes.length, 0));
  } finally {
    disk.close(fd);
  }
}
