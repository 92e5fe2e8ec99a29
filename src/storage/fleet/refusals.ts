/** Refusals that are found while nothing is written: how long they hold, and what is done about them until the next write. */

import { Failure } from "../../core/failure.ts";
import type { FleetSession } from "../../core/ports/fleet.ts";
import { isAway } from "./failures.ts";

/** Returns the failure of a new session with the id of one that is there. */
export function taken(sessionId: string): Failure {
  const sentence =
    "The fleet has a session with this id. Nothing was changed. new_session begins one with another id; after that, switch_session {sessionId} opens the one that is there.";
  return new Failure("already_exists", sentence, { sessionId });
}

/**
 * Returns the reason why a process could not write, where only a write finds out whether it still holds. `there`: what the
 * fleet has now, if it was looked at and has it.
 */
export function stillRefused(refusal: Failure | null, there: FleetSession | null = null): Failure | null {
  const { name } = refusal ?? {};
  return name === "read_only" || (name === "session_not_found" && there === null) ? refusal : null;
}

/** Ways to deal with lines that nobody waits for. */
interface Giving {
  give(): Promise<void>;
  /** Notes that they are owed. */
  note(): Promise<void>;
  /** Notes that they are refused for good. */
  refused(): void;
}

/**
 * Gives something to the fleet; where that is away, notes that it is owed. Never rejects: what stands in the way of both is
 * told to the next write.
 */
export async function givenOrNoted({ give, note, refused }: Giving): Promise<void> {
  try {
    await give();
  } catch (error) {
    if (isAway(error)) await note().catch(() => {});
    else if (error instanceof Failure && !error.retryable) refused();
  }
}
