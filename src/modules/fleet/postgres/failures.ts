/** Failures of writes to sessions of a fleet. */

import { describeUnchanged, Failure, isAway, UnaskedFailure } from "../../../core/failure.ts";
import type { LeaseResult } from "../../../core/ports/fleet.ts";
import type { Holder } from "../../../core/ports/lock.ts";

/** Returns the failure of a commit with an unknown outcome. */
export function makeUnknownFailure(known: string, cause: unknown): Failure {
  const sentence = `${known} Send the same request with its idempotencyKey again, or read the state and decide again.`;
  return new Failure("outcome_unknown", sentence, { fleet: true }, { cause, retryable: true });
}

/** Returns the failure of a repeated request with entries here, if an error prevented asking whether the fleet has them. */
export function toUnconfirmedFailure(error: unknown): unknown {
  if (!(error instanceof Failure) || error.name !== "storage_failed") return error;
  return makeUnknownFailure(`This machine has it, and it is unknown whether the fleet does. ${error.text.what}`, error);
}

/** Returns the failure of something that the database has not done, and may do later. */
export function makeAwayFailure(reason: string): Failure {
  return new Failure("storage_failed", describeUnchanged(`The fleet's database has not done it (${reason}).`), {
    fleet: true,
  });
}

/** Returns the failure of a write that found out nothing about entries of others, if the database is away. */
export function toUnaskedFailure(failure: Failure): Failure {
  const { name, text, details, cause } = failure;
  return isAway(failure) ? new UnaskedFailure(name, text, details, { cause }) : failure;
}

/**
 * Returns the failure for a refusal of the database, with advice. It is no outage: waiting, or working on alone, would
 * never end.
 */
export function makeUnfitFailure(reason: string): Failure {
  const text = describeUnchanged(`The fleet cannot do it, however often it is asked: ${reason}.`, "");
  return new Failure("storage_failed", text, { fleet: true }, { retryable: false });
}

/** Returns what a failure says without the state of the data: the first part of the change is done. */
export function getFailureReason({ text: { what, advice } }: Failure): string {
  return [what, advice].filter(Boolean).join(" ");
}

/** Returns the failure of a commit that met a conflict at each attempt. */
export function makeTooSlowFailure(): Failure {
  return new Failure(
    "storage_failed",
    describeUnchanged("Other machines took the session each time before it could be written to."),
  );
}

function deleted(sessionId: string): Failure {
  const sentence =
    "The session was deleted from the fleet. clone writes what is known of it, and restore_session brings it back for all machines.";
  return new Failure("session_not_found", sentence, { sessionId });
}

/** Returns the failure for a session that another machine has. */
export function makeLockedFailure(holder: Holder, sessionId: string): Failure {
  const where = holder.host === undefined ? "" : ` on ${holder.host}`;
  const advice = holder.client.endsWith(")")
    ? "The command in brackets ends by itself: try again in a moment."
    : "Close it there, or clone it here.";
  return new Failure(
    "session_locked",
    `${holder.client}${where} is writing to this session. ${advice} If that process has ended, its lease ends within 30 s; pi-session-server fleet take ${sessionId} ends it at once.`,
    { holder },
  );
}

/** Returns the failure for a session that cannot be had, however often it is asked for. */
export function toLeaseFailure(taking: Exclude<LeaseResult, { kind: "taken" | "away" }>, sessionId: string): Failure {
  if (taking.kind === "held") return makeLockedFailure(taking.holder, sessionId);
  return taking.kind === "unfit" ? makeUnfitFailure(taking.reason) : deleted(sessionId);
}

/** Returns the failure for lines in conflict with those of another writer. */
export function makeOvertakenFailure(taking: LeaseResult, sessionId: string): Failure {
  if (taking.kind === "held") return makeLockedFailure(taking.holder, sessionId);
  return new Failure(
    "content_modified",
    {
      what: "Since this server last asked the fleet, another machine wrote to this session, or another program changed its file here.",
      state: "Nothing of the request was written.",
      advice: "Send it again to continue after the entries of the others, or read these and decide again.",
    },
    {},
    { retryable: true },
  );
}

export function requireFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  throw error;
}

/** Returns null for a failure, and throws any other error. */
export function ignoreFailure(error: unknown): null {
  requireFailure(error);
  return null;
}

/** Returns the failure of a copy that could not be updated, because its file changed meanwhile. */
export function makeFileChangedFailure(sessionPath: string | null): Failure {
  const sentence = "Another program wrote to the session's file while it was brought up to date. Try again.";
  return new Failure("storage_failed", sentence, { sessionPath });
}

/** Returns a failure that another writer caused, with the path of the quarantined lines if they could be stored. */
export function toQuarantinedFailure(failure: Failure, keep: () => string | undefined = () => undefined): Failure {
  let keptAt: string | undefined;
  try {
    keptAt = keep();
  } catch {
    // The host still has the lines that it sent.
  }
  const details = { ...failure.details, ...(keptAt === undefined ? {} : { keptAt }) };
  return new Failure(failure.name, failure.text, details, { retryable: failure.retryable, byOthers: true });
}

/** Returns the failure for a session of the fleet whose lines do not match its end. */
export function makeIncompleteFailure(sessionId: string): Failure {
  return new Failure(
    "storage_failed",
    "What the fleet has of the session does not fit together. Nothing was kept here. fleet verify tells more.",
    { fleet: true, sessionId },
    { retryable: false },
  );
}
