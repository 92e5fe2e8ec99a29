/** Group commit: whoever wants to be durable while a disk operation runs shares the one after it. */

import { storageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";

/** What a log does for its commits. */
export interface Committing {
  /**
   * Brings what was appended until now onto the medium and takes note of it. After every wait and before the note it
   * calls `demandWanted`, which throws when that was given up meanwhile.
   */
  makeDurable(demandWanted: () => void): Promise<void>;
  /** Gives up all that is not durable. */
  rollBack(): void;
  /** The log's own `commit`, for what came too late for the operation that runs. */
  commit(): Promise<void>;
  /** An operation has ended, however that went. */
  ended?(): void;
}

export class Commits {
  private readonly log: Committing;
  /** The disk operation that runs, and how many entries it makes durable; and the one after it that is waited for. */
  private running: { readonly count: number; readonly done: Promise<void> } | null = null;
  private next: Promise<void> | null = null;
  /** Counts how often entries were given up. */
  private era = 0;

  constructor(log: Committing) {
    this.log = log;
  }

  get isRunning(): boolean {
    return this.running !== null;
  }

  /** Makes `count` entries durable, which are all there are. Rejects with a failure after the log was rolled back. */
  join(count: number): Promise<void> {
    const { running, log } = this;
    if (!running)
      return this.run(
        count,
        (demandWanted) => log.makeDurable(demandWanted),
        () => log.ended?.(),
      );
    if (running.count >= count) return running.done;
    // Whoever comes too late for the operation that runs shares the next; if it fails, it took their entries along.
    this.next ??= running.done
      .finally(() => {
        this.next = null;
      })
      .then(() => log.commit());
    return this.next;
  }

  /** Runs an operation after which `count` entries are durable; none may be running. */
  run(count: number, operation: (demandWanted: () => void) => Promise<void>, ended: () => void): Promise<void> {
    const { era } = this;
    const demandWanted = (): void => {
      if (era !== this.era) throw new Failure("storage_failed", "The changes were given up before they were durable.");
    };
    const watched = async (): Promise<void> => {
      try {
        await operation(demandWanted);
      } catch (error) {
        if (era === this.era) this.log.rollBack();
        throw storageFailure(error, "making the changes durable");
      } finally {
        this.running = null;
        ended();
      }
    };
    const done = watched();
    this.running = { count, done };
    return done;
  }

  /** Says that entries were given up: an operation that runs for them fails. */
  giveUp(): void {
    this.era++;
  }
}
