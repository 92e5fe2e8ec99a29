/**
 * Locks on Linux: a socket in the abstract namespace, which the kernel gives to one process at a time and frees when
 * that dies, together with a lock on a file in the session's folder (`carried.ts`). The socket excludes others within a
 * network namespace, including this process; the file lock, where it is possible, excludes processes beyond that.
 */

import { createServer, type Server } from "node:net";
import { describeUnchanged, Failure } from "../../core/failure.ts";
import type { Holder } from "../../core/ports/lock.ts";
import { type Disk, readUnsized } from "../fs/disk.ts";
import { type CarriedLock, CarriedLocks } from "./carried.ts";
import { HolderNotes } from "./claims.ts";
import {
  type FileKey,
  getFileKey,
  type Lock,
  type LockLocation,
  type LockOptions,
  type Locks,
  makeLock,
  requireErrno,
  TRIES,
  UNKNOWN,
} from "./contract.ts";

/** Bytes of a socket's name. All are used, because versions of Node differ in whether they pad a shorter one. */
const SOCKET_NAME = 108;
/** The kernel's list of sockets. */
export const SOCKET_LIST = "/proc/net/unix";

/**
 * Returns the locks of Linux. Binding happens inside `listen`, so that the outcome is known when it returns. `holder`
 * reads the kernel's list instead, so that it never makes a taker fail. The user is not part of the socket's name: a
 * file that two users write has one lock.
 */
export function makeSocketLocks(options: LockOptions): Locks {
  const { disk } = options;
  const notes = new HolderNotes(options);
  const carried = new CarriedLocks(options);
  const holderOf = (file: FileKey, place?: LockLocation): Holder => notes.read(file, place?.path) ?? UNKNOWN;
  /** Takes the file lock and writes the note, once the socket is ours. */
  const acquireFileLock = (file: FileKey, server: Server, place?: LockLocation): Lock | Holder => {
    let taken: CarriedLock | "held" | null = null;
    try {
      taken = place ? carried.acquire(file, place) : null;
    } catch (error) {
      server.close();
      throw error;
    }
    if (taken === "held") {
      server.close();
      return holderOf(file, place);
    }
    let lock = taken;
    let note = notes.write(file, place?.path);
    let isLost = false;
    let known = place;
    const renew = (find: () => LockLocation | undefined): boolean => {
      if (isLost || !lock || lock.currentPath() !== undefined) return !isLost;
      known = find() ?? known;
      let next: CarriedLock | "held" | null = null;
      try {
        next = known ? carried.acquire(file, known) : null;
      } catch {
        // The next call tries again.
      }
      isLost = next === "held";
      if (next === null || next === "held") return !isLost;
      lock.release(undefined);
      lock = next;
      note = notes.write(file, known?.path);
      return true;
    };
    return makeLock(
      () => {
        // The file may be another holder's by now.
        if (renew(() => known)) {
          const now = lock?.currentPath();
          note.remove(now);
          lock?.release(now);
        } else lock?.release(undefined);
        server.close();
      },
      { kind: taken?.kind ?? "socket", previousHolderDied: note.wasLeft, renew },
    );
  };
  return {
    acquire(file, place) {
      for (let tries = 0; tries < TRIES; tries++) {
        const server = bind(file);
        if (server) return acquireFileLock(file, server, place);
        // The holder has just released it, or the system refused it for another reason.
        if (isBound(disk, file) ?? true) return holderOf(file, place);
      }
      throw new Failure(
        "storage_failed",
        describeUnchanged("The system refused the socket that locks the session."),
        {},
        { retryable: true },
      );
    },
    prepare: () => carried.prepare(),
    holder(file, place, wasRefused = false) {
      let bound = isBound(disk, file);
      if (bound === undefined) {
        const server = bind(file);
        server?.close();
        bound = server === undefined;
      }
      if (!bound && place) bound = carried.isHeld(place.path) || (wasRefused && carried.isThere(place.path));
      return bound ? holderOf(file, place) : null;
    },
  };
}

/** Returns the name of the socket of a file, but for the padding. */
export function getSocketName(file: FileKey): string {
  return `pi-session-server/${getFileKey(file)}/`;
}

function bind(file: FileKey): Server | undefined {
  // A connection serves no purpose here, and must not keep the process alive.
  const server = createServer((socket) => socket.destroy());
  server.on("error", () => {});
  // Exclusive: otherwise the workers of a cluster share the socket.
  server.listen({ path: `\0${getSocketName(file)}`.padEnd(SOCKET_NAME, "/"), exclusive: true });
  server.unref();
  return server.listening ? server : undefined;
}

/** Returns whether a process has the socket of a file; undefined where the kernel's list cannot be read. */
function isBound(disk: Disk, file: FileKey): boolean | undefined {
  let list: Buffer;
  try {
    list = Buffer.from(readUnsized(disk, SOCKET_LIST));
  } catch (error) {
    requireErrno(error, "looking for the session's lock");
    return undefined;
  }
  return list.includes(`@${getSocketName(file)}`);
}
