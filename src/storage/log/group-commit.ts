/** Group commit: many commits of one log share one operation. */

import { toNotUndoneFailure, toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";

/** A log, as its commits need it. */
export interface CommittedLog {
  commit(): Promise<void>;
  /** Makes the present entries durable. Calls `requireCurrent` after every wait, which throws if they were rolled back. */
  makeDurable(requireCurrent: () => void): Promise<void>;
  /** Called after that, successful or not. */
  committed(): void;
  /** Discards entries that are not durable, because of an error. Returns the error for the callers that wait. */
  rollBack(error?: unknown): unknown;
}

/** Group commit: commits that arrive while a disk operation runs share the next operation. */
export class GroupCommit {
  private readonly log: CommittedLog;
  /** The running disk operation, and the number of entries it makes durable. */
  private running: { readonly count: number; readonly done: Promise<void> } | null = null;
  /** The operation after it, if a commit waits for one. */
  private next: Promise<void> | null = null;
  /** Number of times that entries were discarded. */
  private generation = 0;
  /** Why that happened last. */
  private reason: unknown;
  /** Entries up to here have a caller waiting for the commit. */
  private asked = 0;
  /** Why entries without a waiting caller were discarded. */
  private unreported: unknown;

  constructor(log: CommittedLog) {
    this.log = log;
  }

  get isRunning(): boolean {
    return this.running !== null;
  }

  /** True if entries were discarded and no caller knows: the next commit fails. */
  get hasUnreportedFailure(): boolean {
    return this.unreported !== undefined;
  }

  /** Throws the failure of entries that were discarded before their commit. */
  requireKept(): void {
    if (this.hasUnreportedFailure) throw toStorageFailure(this.unreported, "making the changes durable");
  }

  /** Throws it once. */
  throwUnreported(): void {
    try {
      this.requireKept();
    } finally {
      this.markReported();
    }
  }

  /** Records that the caller of the append knows, or is about to learn, about the discarded entries. */
  markReported(): void {
    this.unreported = undefined;
  }

  /** Makes all `count` entries of the log durable. If that fails, rolls the log back and rejects with a failure. */
  join(count: number): Promise<void> {
    const { running, log } = this;
    if (!running) return this.run(count, (requireCurrent) => log.makeDurable(requireCurrent));
    if (running.count >= count) return running.done;
    this.asked = count;
    const { generation } = this;
    // Commits that come too late for the running operation share the next. If it fails, theirs are rolled back too.
    this.next ??= running.done
      .finally(() => {
        this.next = null;
      })
      .then(() => {
        // It may succeed although later entries were discarded.
        this.requireCurrent(generation);
        return log.commit();
      });
    return this.next;
  }

  /** Runs an operation that makes `count` entries durable. No other may be running. */
  run(
    count: number,
    operation: (requireCurrent: () => void) => Promise<void>,
    ended = (): void => this.log.committed(),
  ): Promise<void> {
    const { generation } = this;
    this.asked = count;
    const watched = async (): Promise<void> => {
      try {
        await operation(() => this.requireCurrent(generation));
      } catch (error) {
        const failure = generation === this.generation ? this.log.rollBack(error) : error;
        throw toStorageFailure(failure, "making the changes durable");
      } finally {
        this.running = null;
        ended();
      }
    };
    const done = watched();
    this.running = { count, done };
    return done;
  }

  /** Throws if entries were discarded since a generation. */
  private requireCurrent(generation: number): void {
    if (generation === this.generation) return;
    throw this.reason ?? new Failure("storage_failed", "The changes were given up before they were durable.");
  }

  /** Discards entries that are not durable, after a failed synchronous attempt. Returns the failure. */
  abandon(error: unknown): unknown {
    return this.log.rollBack(error);
  }

  /**
   * Records that all `count` entries stay after an error of the operation, also those without a waiting caller. Returns the
   * error.
   */
  keptAll(count: number, error: Failure): Failure {
    this.invalidate(count, error, true);
    return error;
  }

  /**
   * Invalidates the running operation: all of the `count` entries that are not durable are discarded because of an error,
   * with which it fails. So does the next commit, if no caller waits for the last of them yet. Without an error, the caller
   * reports it. `isKept`: the entries stay all the same.
   */
  invalidate(count: number, error: unknown, isKept: boolean): void {
    this.generation++;
    this.reason = isKept ? toNotUndoneFailure(error ?? new Failure("storage_failed")) : error;
    if (error !== undefined && count > this.asked) this.unreported = this.reason;
    this.asked = 0;
  }
}
