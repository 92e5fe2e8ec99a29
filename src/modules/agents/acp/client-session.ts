/** A session that a client of the Agent Client Protocol has open: its position, and its jobs in order. */

import { Failure } from "../../../core/failure.ts";
import type { UpdateMapper } from "./update-mapper.ts";

/** The client's position on the path of a session. */
export interface ClientPosition {
  /** The last entry of the path that the client has; null for none. */
  lastId: string | null;
  /** Mapper of the entries so far. Undefined after a position was set without sending: the path is mapped later. */
  mapper: UpdateMapper | undefined;
  /** True if the client was sent entries, and not how full the context is since. */
  isUsagePending?: boolean;
}

/** A job of a session. It stops when `isStopped` returns true. */
export type SessionJob<T> = (session: ClientSession, isStopped: () => boolean) => Promise<T>;

export class ClientSession {
  readonly id: string;
  /** Undefined until the client has loaded, resumed or made the session. */
  position: ClientPosition | undefined;
  /** True if a job that sends new entries is queued and has not begun. */
  isCatchUpQueued = false;
  /** True if an agent runs a turn, which sends its own updates. */
  isInTurn = false;
  /** Jobs that have not ended. */
  jobs = 0;
  private last: Promise<unknown> = Promise.resolve();
  /** Number of times that all jobs were stopped. */
  private stops = 0;

  constructor(id: string) {
    this.id = id;
  }

  /** Runs a job after those before it. */
  run<T>(job: SessionJob<T>): Promise<T> {
    const { stops } = this;
    this.jobs++;
    const done = this.last.then(() => job(this, () => this.stops !== stops));
    this.last = done
      .catch(() => {})
      .then(() => {
        this.jobs--;
      });
    return done;
  }

  /** Stops all running jobs, because the client has closed the session. */
  stop(): void {
    this.stops++;
    this.position = undefined;
  }
}

export function requireNotStopped(isStopped: () => boolean): void {
  if (isStopped())
    throw new Failure("cancelled", "The session was closed, or the request cancelled, before this was done.");
}
