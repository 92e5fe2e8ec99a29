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
  /** Writes those entries. They stay in memory where that fails. */
  writeBehind(): void;
  /** Has the next `refresh` say "replaced". */
  markReplaced(): void;
  /** True if this process is the writer on this machine. */
  readonly isHeld: boolean;
  /**
   * Adds lines that are durable there, and writes them to the files; a session that is not created yet is. This process has
   * the lock, and nothing waits.
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
   * Resolves when the first `count` entries are durable there, or, where work goes on without that place, when they are kept
   * on this machine, apart from the log, to be brought there later. Rejects with outcome_unknown when that is not known, and
   * with another failure when none of those that the log had not given before is there or will be.
   */
  replicate(count: number): Promise<void>;
  /** Returns the failure for entries that are there, and that the log gave up meanwhile. */
  toLostFailure(error: unknown): Failure;
  /**
   * Adds, while that place is away, the entries that are kept on this machine, apart from the log, and that the log lacks.
   * Rejects with a failure where that cannot be.
   */
  applyPending(): Promise<void>;
  /** Lets others write there. */
  release(): void;
}
