/**
 * File locks by the flock command of util-linux: it locks the descriptor that it inherits, and the lock remains ours
 * when the command has ended. It takes about 1.5 ms, so it is used only where there is no SQLite.
 */

import type { Disk, FileInfo } from "../fs/disk.ts";
import { type FileLocker, isJustMade, isListed, markFlock, mayHaveFlock } from "./contract.ts";

/** Milliseconds after which a command that has not ended is stopped. */
const PATIENCE = 5000;

export class Flock implements FileLocker {
  readonly kind = "flock";
  private readonly disk: Disk;
  private known: boolean | undefined;

  constructor(disk: Disk) {
    this.disk = disk;
  }

  /** True if the command is available. */
  get isThere(): boolean {
    this.known ??= run(["--version"]) !== null;
    return this.known;
  }

  lock(_path: string, fd: number, info: FileInfo, isNew: boolean): (() => void) | "held" | null {
    // A server with SQLite that has just created the file does not check for locks of this kind.
    if (!isNew && isJustMade(this.disk, info)) return "held";
    const status = run(["-n", "-x", "3"], fd);
    if (status === 1) return "held";
    if (status !== 0) return null;
    // A process that took SQLite's lock before this sees the note, and one that did not is listed.
    if (!markFlock(this.disk, fd)) return null;
    if (isListed(this.disk, info, ["POSIX"]) || !mayHaveFlock(this.disk, fd)) return "held";
    // Closing the descriptor releases the lock.
    return () => {};
  }
}

function run(args: readonly string[], fd?: number): number | null {
  // Loaded only when it is needed.
  const { spawnSync } = process.getBuiltinModule("node:child_process");
  const { error, status } = spawnSync("flock", args, {
    stdio: ["ignore", "ignore", "ignore", ...(fd === undefined ? [] : [fd])],
    timeout: PATIENCE,
    env: { PATH: process.env.PATH },
  });
  return error ? null : status;
}
