/**
 * Locks of files by the flock command of util-linux: it locks the descriptor that it inherits, and the lock stays ours
 * when the command has ended. About 1.5 ms, so only where there is no SQLite.
 */

import type { Disk, FileInfo } from "../fs/disk.ts";
import type { Means } from "./contract.ts";
import { isYoung } from "./contract.ts";
import { isListed } from "./kernel-list.ts";

/** Milliseconds after which a command that does not end is given up. */
const PATIENCE = 5000;

export class Flock implements Means {
  readonly kind = "flock";
  private readonly disk: Disk;
  private known: boolean | undefined;

  constructor(disk: Disk) {
    this.disk = disk;
  }

  /** Whether there is such a command. */
  get isThere(): boolean {
    this.known ??= run(["--version"]) !== null;
    return this.known;
  }

  lock(_path: string, fd: number, info: FileInfo, isNew: boolean): (() => void) | "held" | null {
    // A server with SQLite that has made the file just now does not look for locks of this kind any more.
    if (!isNew && isYoung(info)) return "held";
    const status = run(["-n", "-x", "3"], fd);
    if (status === 1) return "held";
    if (status !== 0) return null;
    // Whoever closes the descriptor lets go.
    return isListed(this.disk, info, ["POSIX"]) ? "held" : () => {};
  }
}

function run(args: readonly string[], fd?: number): number | null {
  // Loaded where it is needed only.
  const { spawnSync } = process.getBuiltinModule("node:child_process");
  const { error, status } = spawnSync("flock", args, {
    stdio: ["ignore", "ignore", "ignore", ...(fd === undefined ? [] : [fd])],
    timeout: PATIENCE,
    env: { PATH: process.env.PATH },
  });
  return error ? null : status;
}
