/**
 * Locks of Linux: a socket in the abstract namespace, which the kernel gives to one process at a time and takes back at
 * its death, and with it the lock that the file carries. The socket excludes within a network namespace, and so within
 * the process; the file reaches further, where it can be had.
 */

import { createServer, type Server } from "node:net";
import { isErrno, storageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Holder } from "../../core/ports/store.ts";
import { type Disk, readUnsized } from "../fs/disk.ts";
import { type CarriedLock, CarriedLocks } from "./carried.ts";
import {
  type FileKey,
  keyOf,
  type Lock,
  type LockOptions,
  type LockPlace,
  type Locks,
  lockWith,
  TRIES,
  UNKNOWN,
} from "./contract.ts";
import { HolderNotes } from "./holder-note.ts";

/** Bytes of a socket's name. All of them are used, for versions of Node differ in whether they fill a shorter one up. */
const SOCKET_NAME = 108;
/** How the kernel lists sockets. */
const SOCKETS = "/proc/net/unix";

/**
 * Binding happens inside `listen`, so that the outcome is known when it returns. Whoever only looks reads the kernel's
 * list, and so is in nobody's way. The user is no part of the name: a file that two users write has one lock.
 */
export function socketLocks(options: LockOptions): Locks {
  const { disk } = options;
  const notes = new HolderNotes(options);
  const carried = new CarriedLocks(options);
  const holderOf = (file: FileKey, place?: LockPlace): Holder => notes.read(file, place?.path) ?? UNKNOWN;
  /** Takes what remains to be taken once the socket is ours. */
  const takeRest = (file: FileKey, server: Server, place?: LockPlace): Lock | Holder => {
    let lock: CarriedLock | "held" | null = null;
    try {
      lock = place ? carried.take(file, place) : null;
    } catch (error) {
      server.close();
      throw error;
    }
    if (lock === "held") {
      server.close();
      return holderOf(file, place);
    }
    const note = notes.write(file, place?.path);
    return lockWith(
      () => {
        const now = lock?.place();
        note.remove(now);
        lock?.release(now);
        server.close();
      },
      { kind: lock?.kind ?? "socket", heirOfDead: note.wasLeft },
    );
  };
  return {
    take(file, place) {
      for (let tries = 0; tries < TRIES; tries++) {
        const server = bind(file);
        if (server) return takeRest(file, server, place);
        // Else whoever had it has just let go, or it was refused for another reason.
        if (isBound(disk, file) ?? true) return holderOf(file, place);
      }
      throw new Failure(
        "storage_failed",
        "The system refused the socket that locks the session. Nothing was changed; ask again.",
        {},
        { retryable: true },
      );
    },
    holder(file, place) {
      let bound = isBound(disk, file);
      if (bound === undefined) {
        const server = bind(file);
        server?.close();
        bound = server === undefined;
      }
      if (!bound) bound = place !== undefined && carried.isHeld(place.path);
      return bound ? holderOf(file, place) : null;
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
