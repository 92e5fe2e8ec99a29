/**
 * Appends of one process to several sessions, which are sent together: those that arrive while a statement is on its way are
 * sent with the next one. Each append has its own outcome.
 */

import type { FleetBatch, FleetOutcome } from "../../../core/ports/fleet.ts";

/** Maximum statements on their way. One that waits for the row of a session delays only its own sessions. */
const MOST_SENT = 2;
/** Appends in a statement. */
const MOST_TOGETHER = 64;
/** Bytes of lines in a statement, unless one append has more. */
const MOST_BYTES = 256 << 10;

/** An append that waits. */
export interface JointAppend {
  readonly batch: FleetBatch;
  readonly sessionId: string;
  /** The server that gave the lease. */
  readonly server: string | undefined;
  /** True if it needs a statement of its own, so that no other append fails with it. */
  readonly isAlone?: boolean;
}

interface WaitingAppend<T> {
  readonly append: T;
  readonly resolve: (outcome: FleetOutcome) => void;
  readonly reject: (error: unknown) => void;
}

export class JointAppends<T extends JointAppend> {
  private readonly send: (appends: readonly T[]) => Promise<readonly FleetOutcome[]>;
  private waiting: WaitingAppend<T>[] = [];
  private sent = 0;

  /** `send` returns the outcomes in the order of its appends, which are of different sessions with leases of one server. */
  constructor(send: (appends: readonly T[]) => Promise<readonly FleetOutcome[]>) {
    this.send = send;
  }

  append(append: T): Promise<FleetOutcome> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ append, resolve, reject });
      this.sendNext();
    });
  }

  /** Answers all that wait, because the database cannot be reached: they would find it out one statement after the other. */
  turnAway(away: FleetOutcome): void {
    for (const { resolve } of this.waiting.splice(0)) resolve(away);
  }

  private sendNext(): void {
    while (this.sent < MOST_SENT && this.waiting.length > 0) void this.sendSome(this.taken());
  }

  private async sendSome(some: readonly WaitingAppend<T>[]): Promise<void> {
    this.sent++;
    try {
      const outcomes = await this.send(some.map(({ append }) => append));
      for (const [n, { resolve }] of some.entries()) resolve(outcomes[n]);
    } catch (error) {
      for (const { reject } of some) reject(error);
    } finally {
      this.sent--;
      this.sendNext();
    }
  }

  /** Removes the next appends for one statement from the queue: the first, and later ones that may go with it. */
  private taken(): WaitingAppend<T>[] {
    const taken: WaitingAppend<T>[] = [];
    const left: WaitingAppend<T>[] = [];
    const sessions = new Set<string>();
    let bytes = 0;
    for (const one of this.waiting) {
      const { sessionId, server, batch, isAlone } = one.append;
      const first = taken[0]?.append;
      const more = batch.lines.reduce((sum, { length }) => sum + length, 0);
      const isFull = taken.length === MOST_TOGETHER || bytes + more > MOST_BYTES;
      const isApart = isAlone || first?.isAlone || sessions.has(sessionId) || server !== first?.server;
      if (first && (isFull || isApart)) left.push(one);
      else {
        taken.push(one);
        sessions.add(sessionId);
        bytes += more;
      }
    }
    this.waiting = left;
    return taken;
  }
}
