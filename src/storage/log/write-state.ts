/** The options of logs on disk, and what a log and its backend both know of its writing. */

import { Failure } from "../../core/failure.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Replica } from "../../core/ports/replica.ts";
import type { Disk } from "../fs/disk.ts";
import { UnsyncedFolders } from "../fs/folders.ts";
import type { FileKey, LockLocation, Locks } from "../locks/locks.ts";
import { WriterLock } from "../locks/writer-lock.ts";
import type { GroupCommit } from "./group-commit.ts";
import type { ReplicatedLog } from "./replica.ts";
import type { SnapshotCache } from "./snapshot-cache.ts";

/** The event that an acknowledged change survives: a loss of power (`sync`), or the death of the process (`os`). */
export type Durability = "sync" | "os";

export interface FileLogOptions {
  readonly disk: Disk;
  readonly env: Env;
  readonly locks: Locks;
  readonly durability: Durability;
  /** True, or the reason, if nothing may be written. */
  readonly readOnly?: boolean | Failure;
  /** Folder for bytes that are taken out of a session. */
  readonly quarantine: string;
  /** Index snapshots of large sessions. */
  readonly snapshots?: SnapshotCache;
  /** Returns the other place that must have the entries of a log. */
  readonly replica?: (log: ReplicatedLog) => Replica;
}

/** The state of a log that its backend uses too. */
export class WriteState {
  /** True if appended lines have to survive a loss of power in the session's files. Those of a copy need not. */
  readonly isSynced: boolean;
  /** True if new files have to, too. */
  readonly syncsNewFiles: boolean;
  readonly lock: WriterLock;
  readonly unsynced: UnsyncedFolders;
  /** Entries before this position are durable. */
  durableCount = 0;
  /** True if the known bytes were compared with the stored ones since the lock was taken. */
  isConfirmed = false;
  /** Lines that were unwritten until the session was created; set from then to the first commit. */
  created: readonly Uint8Array[] | null = null;
  /** The reason why appends are refused, or null. */
  readOnly: Failure | null;
  /** The commits of the log; null before there is one. */
  commits: GroupCommit | null = null;
  readonly replica: FileLogOptions["replica"];

  constructor(
    { disk, locks, durability, readOnly, replica }: FileLogOptions,
    findLock: (file: FileKey) => LockLocation | undefined,
  ) {
    this.replica = readOnly ? undefined : replica;
    this.syncsNewFiles = durability === "sync";
    this.isSynced = this.syncsNewFiles && this.replica === undefined;
    this.lock = new WriterLock(locks, findLock);
    this.unsynced = new UnsyncedFolders(disk);
    this.readOnly = readOnly === true ? new Failure("read_only") : readOnly || null;
  }

  get isCommitting(): boolean {
    return this.commits?.isRunning === true;
  }
}
