/** The contract of a log's replica: another place that has its entries. The session's files are a copy. */

import type { Failure } from "../../core/failure.ts";
import type { Damage } from "../../core/format/damage.ts";
import type { Holder, Log } from "../../core/ports/store.ts";
import type { AttachmentFolder } from "./attachments.ts";

/** A log with a replica: it holds lines in memory until the replica has them durably, then writes its files. */
export interface ReplicatedLog extends Log {
  readonly attachments: AttachmentFolder;
  /**
   * True if the files lack durable entries, which are read from memory: the disk refused them, or another program
   * interferes.
   */
  readonly isBehind: boolean;
  /** True if another program changed the files at the place of those entries, so that they have to be written anew. */
  readonly isDisturbed: boolean;
  /** Writes those entries. They stay in memory if that fails. */
  writeBehind(): void;
  /** Makes the next `refresh` return "replaced". */
  markReplaced(): void;
  /** True if this process is the writer on this machine. */
  readonly isHeld: boolean;
  /**
   * Adds lines that are durable in the replica, writes them to the files, and creates a session that is not created yet.
   * This process has the lock, and no commit waits.
   */
  applyRemote(lines: readonly Uint8Array[]): void;
  /**
   * Publishes the session anew with its first `count` entries and these lines, durably, and returns the path of the previous
   * state. From then on `refresh` returns "replaced". `renamed`: entries of this log with another id in `lines`. This
   * process has the lock, and no commit waits.
   */
  replaceFrom(count: number, lines: readonly Uint8Array[], renamed?: ReadonlyMap<string, string>): string;
  /** Adds to the reported damage of the session. */
  addDamage(damage: Damage): void;
}

export interface Replica {
  /** Another process that writes to the session there, as it was found last. */
  readonly holder: Holder | null;
  /** See Log. */
  readonly durability: Log["durability"];
  /** Throws the reason why this process may not write, as `ready` found it. */
  requireOurs(): void;
  /**
   * Takes the lease for this process, and applies the entries of others. Returns undefined if there is nothing to wait for.
   * Never rejects; `requireOurs` throws the reason of a failure.
   */
  ready(): Promise<void> | undefined;
  /** See Log. */
  confirm(): Promise<void> | undefined;
  /**
   * Applies the entries of others without taking the lease. Rejects with a failure if that is not possible. `most`: maximum
   * bytes that are compared at once.
   */
  follow(most?: number): Promise<void>;
  /** See Log. */
  followNow(asked?: number): Promise<void> | undefined;
  /** See Log. */
  upload(): Promise<void> | undefined;
  /**
   * Resolves when the first `count` entries are durable in the replica, or, during an outage, when they are stored on this
   * machine, apart from the log, for a later upload. Rejects with outcome_unknown if that is unknown, and with another
   * failure if none of the new ones is there or will be.
   */
  replicate(count: number): Promise<void>;
  /** Returns the failure for entries that are in the replica, but that the log discarded meanwhile. */
  toLostFailure(error: unknown): Failure;
  /**
   * Adds, during an outage, the pending entries that are stored apart from the log, and that the log lacks. Rejects with a
   * failure if that is not possible.
   */
  applyPending(): Promise<void>;
  /** Releases the lease, so that others can write. */
  release(): void;
}
