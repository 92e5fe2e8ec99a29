/** The contract of another place that has a log's entries, and of which the files of the session are a copy. */

import type { Failure } from "../../core/failure.ts";
import type { Damage } from "../../core/format/damage.ts";
import type { Holder, Log } from "../../core/ports/store.ts";
import type { AttachmentFolder } from "./attachments.ts";

/** A log of which another place has the entries. They are durable there; its files are written after that. */
export interface ReplicatedLog extends Log {
  readonly attachments: AttachmentFolder;
  /** Whether the files lack durable entries, which are read from memory: the disk refused them, or another program is at it. */
  readonly isBehind: boolean;
  /** Whether another program changed the files where those entries belong, so that they can be written only anew. */
  readonly isDisturbed: boolean;
  /** Writes those entries. They stay in memory where that fails. */
  writeBehind(): void;
  /** Has the next `refresh` say "replaced". */
  markReplaced(): void;
  /** Whether this process is the writer on this machine. */
  readonly isHeld: boolean;
  /**
   * Adds lines that are durable there, and writes them to the files; a session that is not created yet is. This process has
   * the lock, and nothing waits.
   */
  applyRemote(lines: readonly Uint8Array[]): void;
  /**
   * Publishes the session anew with its first `count` entries and these lines, durably, and returns the path at which it
   * is kept as it was. From then on `refresh` says "replaced". `renamed`: entries of this log that have another id in
   * `lines`. This process has the lock, and nothing waits.
   */
  replaceFrom(count: number, lines: readonly Uint8Array[], renamed?: ReadonlyMap<string, string>): string;
  /** Adds something to what is reported of the session. */
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
   * Makes this process the writer there, and brings the log what others wrote. Returns undefined when nothing has to be
   * waited for. Never rejects; `requireOurs` says why it failed.
   */
  ready(): Promise<void> | undefined;
  /** See Log. */
  confirm(): Promise<void> | undefined;
  /**
   * Brings the log what others wrote, without becoming a writer. Rejects with a failure where that cannot be. `most`: bytes
   * that are compared at once, at most.
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
