/**
 * Sessions that are open while they are still on their way to this machine: their nodes are here, and some of their
 * lines. Whoever reads one that is not here gets NotHere, waits, and asks again.
 */

import { Failure } from "../failure.ts";

/** The way of a session to this machine. */
export interface Arrival {
  /**
   * Whether all of it is here: `refresh` says "replaced" then, and `reopen` returns the log that can be written to. Until
   * then each `refresh` has it come, so that it does while nothing is asked.
   */
  readonly isOver: boolean;
  /** Resolves when all of it is here. Rejects with a failure where that cannot be now; a later call tries again. */
  whole(): Promise<void>;
  /** Resolves when nothing of it goes on any more, after the log was closed. Never rejects. */
  readonly ended: Promise<void>;
}

/** An obstacle and no failure: lines that are asked for are not here yet. What was asked may be asked again after `wait`. */
export class NotHere extends Error {
  /** Resolves when they are here. Rejects with a failure where they cannot be had. */
  readonly wait: () => Promise<void>;

  constructor(wait: () => Promise<void>) {
    super("lines of the session are still on their way here");
    this.wait = wait;
  }
}

/** Returns the failure of what was asked of a session that was closed before the lines were here. */
export function closedOnItsWay(): Failure {
  return new Failure("storage_failed", "The session was closed while it was on its way here. Open it again.");
}

/** Returns what `run` returns when everything that it reads is here; it must have no effect before it has read that. */
export async function whenHere<T>(run: () => T): Promise<T> {
  for (;;)
    try {
      return run();
    } catch (error) {
      if (!(error instanceof NotHere)) throw error;
      await error.wait();
    }
}
