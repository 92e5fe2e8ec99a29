/** A session as a client of the Agent Client Protocol has it: what it was shown, and what is done for it, in order. */

import { Failure } from "../../core/failure.ts";
import type { UpdateMapper } from "./update-mapper.ts";

/** How far a client was told of a session. */
export interface ClientPosition {
  /** The last entry of the path that it has; null for none. */
  lastId: string | null;
  /** Undefined where it has that from elsewhere: what came before is walked through when something follows. */
  mapper: UpdateMapper | undefined;
  /** Whether it was told of entries and not how full the context is since. */
  isUsagePending?: boolean;
}

/** A job of a session, which it may be told to give up. */
export type SessionJob<T> = (isStopped: () => boolean) => Promise<T>;

export class ClientSession {
  readonly id: string;
  /** Where the client is; undefined while it has not loaded, resumed or made the session. */
  position: ClientPosition | undefined;
  /** Whether a job that looks for what is new has not begun yet. */
  isCatchUpQueued = false;
  /** Whether an agent runs a turn, in which it tells itself what it does. */
  isInTurn = false;
  /** Jobs that have not ended. */
  jobs = 0;
  private last: Promise<unknown> = Promise.resolve();
  /** Counts the times that everything under way was given up. */
  private stops = 0;

  constructor(id: string) {
    this.id = id;
  }

  /** Runs a job when those before it have ended. */
  run<T>(job: SessionJob<T>): Promise<T> {
    const { stops } = this;
    this.jobs++;
    const done = this.last.then(() => job(() => this.stops !== stops));
    this.last = done
      .catch(() => {})
      .then(() => {
        this.jobs--;
      });
    return done;
  }

  /** Has all jobs under way give up: their client has closed the session. */
  stop(): void {
    this.stops++;
    this.position = undefined;
  }
}

export function requireNotStopped(isStopped: () => boolean): void {
  if (isStopped())
    throw new Failure("cancelled", "The session was closed, or the request cancelled, before this was done.");
}
