/** Failures of writes to sessions of a fleet, and what decides between them. */

import { Failure } from "../../core/failure.ts";
import type { FleetBatch, FleetEnd, Taking } from "../../core/ports/fleet.ts";
import type { Holder } from "../../core/ports/store.ts";
import { isSameEnd } from "./ends.ts";

/** A session of the fleet that begins with the same lines, and the ends at which these are kept together there. */
export interface CommonSource {
  readonly sessionId: string;
  readonly ends: readonly FleetEnd[];
}

/** The commit that runs, as far as its failure depends on what was sent. */
export class CommitInDoubt {
  /** Number of entries that were there before it. */
  readonly first: number;
  /** Number of entries that it will have. */
  readonly count: number;
  /** Whether it is kept in packs. */
  readonly isLong: boolean;
  /** Where the fleet has its first lines already. */
  source: CommonSource | undefined;
  /** Why there was no answer, where lines were sent and nobody knows what became of them. */
  doubt: string | undefined;
  private next: FleetBatch | undefined;

  constructor(first: number, count: number, isLong: boolean) {
    this.first = first;
    this.count = count;
    this.isLong = isLong;
  }

  /** Puts the part together that comes after the one that is being sent. Returns it, if that could be done. */
  prepare(make: () => FleetBatch): FleetBatch | undefined {
    try {
      this.next = make();
    } catch {
      // It fails again when it is its turn.
    }
    return this.next;
  }

  /** Returns the part after an end, if it was put together for this epoch. */
  prepared(end: FleetEnd, epoch: number): FleetBatch | undefined {
    const { next } = this;
    this.next = undefined;
    return next && next.epoch === epoch && isSameEnd(next.before, end) ? next : undefined;
  }

  /** Returns the failure that an error is for those who wait: nobody knows, if part of it may be there. */
  doubted(error: unknown, end: FleetEnd): unknown {
    const { doubt, first } = this;
    if (doubt !== undefined) return unknown(`Whether the fleet has it is not known (${doubt}).`, error);
    if (end.entries > first) return unknown("The fleet has it, or a part of it, and this machine has not.", error);
    return error;
  }
}

function unknown(known: string, cause: unknown): Failure {
  const sentence = `${known} Send the same request with its idempotencyKey again, or read the state and decide again.`;
  return new Failure("outcome_unknown", sentence, { fleet: true }, { cause, retryable: true });
}

export function away(reason: string): Failure {
  return new Failure(
    "storage_failed",
    `The fleet's database cannot be reached (${reason}). Nothing was changed; try again.`,
    { fleet: true },
  );
}

/** Returns whether an error says that the fleet did not answer. */
export function isAway(error: unknown): boolean {
  return error instanceof Failure && error.name === "storage_failed" && error.details.fleet === true && error.retryable;
}

/** Returns the failure of a commit that others were faster than each time. */
export function tooSlow(): Failure {
  return new Failure(
    "storage_failed",
    "Other machines took the session each time before it could be written to. Nothing was changed; try again.",
  );
}

export function deleted(sessionId: string): Failure {
  return new Failure("session_not_found", "The session was deleted from the fleet. clone writes what is known of it.", {
    sessionId,
  });
}

/** Returns the failure for a session that only the fleet may have, where nothing is brought here. */
export function notBroughtHere(sessionId: string): Failure {
  return new Failure(
    "session_not_found",
    `No session on this machine has the id ${sessionId}. A server with --read-only brings none here from the fleet: a server without it does when it opens the session, and from then on this one shows it, too.`,
    { sessionId },
  );
}

/** Returns the failure for a session that another machine has. */
export function locked(holder: Holder): Failure {
  const where = holder.host === undefined ? "" : ` on ${holder.host}`;
  return new Failure(
    "session_locked",
    `${holder.client}${where} is writing to this session. Close it there, or clone it here.`,
    { holder },
  );
}

/** Returns the failure for lines that others were faster than. */
export function overtaken(taking: Taking): Failure {
  if (taking.kind === "held") return locked(taking.holder);
  return new Failure(
    "content_modified",
    "Another machine wrote to this session meanwhile. Nothing was changed. Read the new state and decide again.",
    {},
    { retryable: true },
  );
}

export function asFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  throw error;
}
