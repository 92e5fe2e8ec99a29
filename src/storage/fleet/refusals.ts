/** Refusals that are found while nothing is written: how long they hold, and what is done about them until the next write. */

import { Failure } from "../../core/failure.ts";
import type { FleetSession } from "../../core/ports/fleet.ts";
import type { ReplicatedLog } from "../log/replica.ts";
import { isAway } from "./failures.ts";
import type { FleetOptions } from "./options.ts";

/** Returns the failure of a new session with the id of one that is there. */
export function makeIdTakenFailure(sessionId: string): Failure {
  const sentence =
    "The fleet has a session with this id. Nothing was changed. new_session begins one with another id; after that, switch_session {sessionId} opens the one that is there.";
  return new Failure("already_exists", sentence, { sessionId });
}

/**
 * Returns the reason why a process could not write, where only a write finds out whether it still holds. `there`: what the
 * fleet has now, if it was looked at and has it.
 */
export function getLastingRefusal(refusal: Failure | null, there: FleetSession | null = null): Failure | null {
  const { name } = refusal ?? {};
  return name === "read_only" || (name === "session_not_found" && there === null) ? refusal : null;
}

/** Milliseconds after which lines that were refused for good are tried again, at first and at last. */
const FIRST_WAIT = 4000;
export const LONGEST_WAIT = 60_000;

/**
 * The refusal of lines that the fleet does not take, however often it is asked. They are tried again where there are other
 * lines, where another server answers, and, because a person may have changed something, less and less often. Whoever writes
 * tries them at once.
 */
export class RefusedLines {
  private readonly log: ReplicatedLog;
  private readonly options: Pick<FleetOptions, "fleet" | "elapsed">;
  private last: { readonly of: string; readonly until: number; readonly wait: number } | undefined;

  constructor(log: ReplicatedLog, options: Pick<FleetOptions, "fleet" | "elapsed">) {
    this.log = log;
    this.options = options;
  }

  /** The state of which a refusal speaks. */
  get of(): string {
    return `${this.log.durableCount} ${this.options.fleet.server}`;
  }

  /** Whether they were refused, and nothing has changed since. */
  get holds(): boolean {
    return this.last?.of === this.of && this.options.elapsed() < this.last.until;
  }

  /** Notes an error with which they were not taken, as they were when the fleet was asked, if it says that they never are. */
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

/** Ways to deal with lines that nobody waits for. */
interface UploadAttempt {
  upload(): Promise<void>;
  /** Notes that they are owed. */
  note(): Promise<void>;
  /** Hears with what they were refused. */
  refused(error: unknown): void;
}

/**
 * Gives something to the fleet; where that is away, notes that it is owed. Never rejects: what stands in the way of both is
 * told to the next write.
 */
export async function uploadOrNote({ upload, note, refused }: UploadAttempt): Promise<void> {
  try {
    await upload();
  } catch (error) {
    if (isAway(error)) await note().catch(() => {});
    else refused(error);
  }
}
