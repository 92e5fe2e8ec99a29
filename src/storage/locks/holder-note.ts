/**
 * Notes that tell other processes who holds a lock; the lock itself does not depend on them. A note lies next to the
 * lock file, so that every process that sees the lock can read it; where that is not possible, in the lock folders.
 */

import { dirname } from "node:path";
import { bytesOf } from "../../core/json/json.ts";
import type { Holder } from "../../core/ports/store.ts";
import { type Disk, removeQuietly, writeAll } from "../fs/disk.ts";
import { isNameTaken, withFile } from "../fs/files.ts";
import { Claims, holderIn, inLockFolders, readClaim } from "./claims.ts";
import type { FileKey, LockOptions } from "./contract.ts";
import { noteNextTo } from "./lock-paths.ts";

/** Ending of the names of notes in the lock folders. */
const ENDING = "json";

interface WrittenNote {
  /** Whether a note was found: it is from a holder that died, because releasing a lock removes the note. */
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
    const paths = inLockFolders(this.options, file, ENDING);
    if (lockPath !== undefined) paths.push(noteNextTo(lockPath));
    let holder: Holder | null = null;
    for (const path of paths) {
      const claim = readClaim(this.disk, path)?.claim;
      if (!claim || (claim.inode ?? file.inode) !== file.inode || this.claims.isStale(claim)) continue;
      if (holder === null || String(claim.since) > holder.since) holder = holderIn(claim);
    }
    return holder;
  }

  /** Writes our note. We must hold the lock. */
  write(file: FileKey, lockPath?: string): WrittenNote {
    const { disk } = this;
    const bytes = bytesOf(JSON.stringify(this.claims.make(file.inode)));
    if (lockPath !== undefined) {
      const path = noteNextTo(lockPath);
      const outcome = this.put(path, bytes, file);
      if (outcome !== "refused")
        return {
          wasLeft: outcome === "left",
          remove: (now) => removeQuietly(disk, now === undefined ? path : noteNextTo(now)),
        };
    }
    const written: string[] = [];
    let wasLeft = false;
    for (const path of inLockFolders(this.options, file, ENDING)) {
      const outcome = this.put(path, bytes, file, true);
      if (outcome === "refused") continue;
      wasLeft ||= outcome === "left";
      written.push(path);
    }
    return {
      wasLeft,
      remove() {
        for (const path of written) removeQuietly(disk, path);
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
      withFile(disk, fd, () => writeAll(disk, fd, bytes));
      return left ? "left" : "new";
    } catch {
      if (made) removeQuietly(disk, path);
      return "refused";
    }
  }
}
