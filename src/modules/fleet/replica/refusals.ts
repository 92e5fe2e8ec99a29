/** Refusals while no write is running: how long they hold, and how they are handled until the next write. */

import { describeUnchanged, Failure } from "../../../core/failure.ts";
import type { FleetSession, JournaledSession } from "../../../core/ports/fleet.ts";
import type { ReplicatedLog } from "../../../storage/log/replica.ts";
import type { FleetOptions } from "./options.ts";

/** Returns the failure of a new session with the id of one that is there. */
export function makeIdTakenFailure(sessionId: string): Failure {
  const text = describeUnchanged(
    "The fleet has a session with this id.",
    "new_session begins one with another id; after that, switch_session {sessionId} opens the one that is there.",
  );
  return new Failure("already_exists", text, { sessionId });
}

/** Returns the failure of a change of a session with entries that only this machine has, for another fleet. */
export function makeElsewhereFailure({ fleet, sessionPath, unreadable }: JournaledSession, sessionId: string): Failure {
  const sentence =
    unreadable === undefined
      ? describeUnchanged(
          `It has entries waiting for another fleet (${fleet?.address}), which only this machine has.`,
          "Run fleet push with that address, then try again.",
        )
      : describeUnchanged(
          `It may have entries for another fleet, which only this machine has: the note at ${sessionPath} cannot be read (${unreadable}).`,
          "fleet push says what to do with it.",
        );
  return new Failure("storage_failed", sentence, { fleet: true, sessionId }, { retryable: false });
}

/** Returns the failure of a copy that lacks, while the fleet is away, entries that acknowledged ones of this machine continue. */
export function makeBehindFailure({ header, file }: ReplicatedLog): Failure {
  const text = describeUnchanged(
    "The file of this session lost entries that only the fleet's database has, and the database cannot be reached. What was acknowledged here since then is kept apart.",
    "Try again when the database answers.",
  );
  return new Failure("storage_failed", text, { sessionId: header.id, sessionPath: file });
}

/** Returns the name of a tenant in a sentence. */
export function describeTenant(tenant: string): string {
  return tenant === "" ? "the part of the fleet without a tenant" : `the tenant ${tenant}`;
}

/** Returns the failure of opening a copy that belongs to another tenant of the fleet. */
export function makeOtherTenantFailure(sessionId: string, sessionPath: string, tenant: string): Failure {
  const sentence = describeUnchanged(
    `${sessionPath} has a session of ${describeTenant(tenant)}, and this server is for another one.`,
    "Give each tenant a HOME (state folder and session folder) of its own.",
  );
  return new Failure("storage_failed", sentence, { sessionId, sessionPath }, { retryable: false });
}

/**
 * Returns a refusal of writes if only a write finds out whether it still holds; else null. `there`: the fleet's session, if
 * it was asked for and exists.
 */
export function getLastingRefusal(refusal: Failure | null, there: FleetSession | null = null): Failure | null {
  const { name } = refusal ?? {};
  return name === "read_only" || (name === "session_not_found" && there === null) ? refusal : null;
}

/** First and longest wait in milliseconds before permanently refused lines are tried again. */
const FIRST_WAIT = 4000;
export const LONGEST_WAIT = 60_000;

/**
 * Lines that the fleet refuses permanently. They are tried again if there are other lines or another server, and, because a
 * person may have changed something, at growing intervals. A write tries them at once.
 */
export class RefusedLines {
  private readonly log: ReplicatedLog;
  private readonly options: Pick<FleetOptions, "fleet" | "elapsed">;
  private last: { readonly of: string; readonly until: number; readonly wait: number } | undefined;

  constructor(log: ReplicatedLog, options: Pick<FleetOptions, "fleet" | "elapsed">) {
    this.log = log;
    this.options = options;
  }

  /** The state that a refusal is about. */
  get of(): string {
    return `${this.log.durableCount} ${this.options.fleet.server}`;
  }

  /** True if the lines were refused, and nothing has changed since. */
  get holds(): boolean {
    return this.last?.of === this.of && this.options.elapsed() < this.last.until;
  }

  /** Records a permanent refusal of the lines; `of`: their state when the fleet was asked. */
  note(error: unknown, of = this.of): void {
    if (!(error instanceof Failure) || error.retryable) return;
    const { last } = this;
    const wait = last?.of === of ? Math.min(LONGEST_WAIT, 2 * last.wait) : FIRST_WAIT;
    this.last = { of, wait, until: this.options.elapsed() + wait };
  }

  forget(): void {
    this.last = undefined;
  }
}
