/** The contract of a log's replica: a second place that has its entries, and decides what the session contains. */

import type { Failure } from "../failure.ts";
import type { Holder } from "./lock.ts";

/** The state of a replica, as it was found last. */
export interface ReplicaStatus {
  /**
   * `local` while acknowledged entries are only on this machine, because the replica is unreachable; `primary` if the
   * replica has the last ones, `replicated` if a second machine has them, too; undefined until that is known.
   */
  readonly durability: "local" | "primary" | "replicated" | undefined;
  /** Another process that writes to the session there. */
  readonly holder: Holder | null;
  /** The reason why this process may not write. */
  readonly refusal: Failure | null;
  /** Number of times that entries of other writers were applied to the log. */
  readonly changeCount: number;
  /** True if this log made entries durable there, so that no failure removes the session here. */
  readonly hasReplicated: boolean;
}

export interface Replica {
  readonly status: ReplicaStatus;
  /**
   * Other ids of the log's entries in the log that replaced it: other writers gave theirs to other entries, or the host repeated
   * them elsewhere.
   */
  readonly renamed: ReadonlyMap<string, string> | undefined;
  /**
   * Takes the lease for this process, and applies the entries of other writers. Returns undefined if there is nothing to
   * wait for. Never rejects: `status.refusal` has the reason of a failure, and `acquire` of the log's lock throws it.
   */
  ready(): Promise<void> | undefined;
  /**
   * Makes sure that all entries are durable, also those of a process that was killed before it answered: a repeated
   * request is then answered with them. Returns undefined when they are known to be. Rejects with a failure, which is
   * outcome_unknown if the replica cannot be asked.
   */
  confirm(): Promise<void> | undefined;
  /**
   * Applies the entries of other writers, without taking the lease; `refresh` of the log reports them. The caller must
   * not use the log until then. Returns undefined if there is nothing to ask, or the last question was just now: the
   * longer nothing happens, the rarer the questions. `asked`: milliseconds since the last request about the session.
   * Rejects with a failure if that is not possible.
   */
  follow(asked?: number): Promise<void> | undefined;
  /**
   * Does the same at once, whenever the last question was, and uploads what the replica lacks. `most`: maximum bytes that
   * are compared.
   */
  sync(most?: number): Promise<void>;
  /** Fetches the attachments that the session has there, and that are not here. Throws storage_failed. */
  fetchAttachments(): Promise<void>;
  /**
   * Uploads entries that other programs appended here while this process was the writer; if the replica is unreachable,
   * records them as pending. Returns undefined if there is nothing to upload. Never rejects.
   */
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
