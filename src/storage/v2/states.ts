/** The nine states of a V2 store and the transitions between them (seed 003, "State machine and invariants"). */

import { describeUnchanged, Failure } from "../../core/failure.ts";
import type { Transition } from "../../core/ports/migrations.ts";

/** The states, each with those that may follow it. None leads to CLEAN: a store is CLEAN when it is found sound. */
const NEXT = {
  CLEAN: ["DIRTY", "MIGRATION_STAGING"],
  DIRTY: ["SEGMENT_SEALED", "FAILED"],
  SEGMENT_SEALED: ["INDEXED", "FAILED"],
  INDEXED: ["CHECKPOINTED", "DIRTY", "FAILED"],
  CHECKPOINTED: ["DIRTY", "MIGRATION_STAGING", "ROLLED_BACK", "FAILED"],
  MIGRATION_STAGING: ["MIGRATED", "ROLLED_BACK", "FAILED"],
  MIGRATED: ["DIRTY", "FAILED"],
  ROLLED_BACK: ["DIRTY", "FAILED"],
  FAILED: ["DIRTY", "ROLLED_BACK"],
} as const;
export type StoreState = keyof typeof NEXT;
export const STATES = Object.keys(NEXT) as StoreState[];
export const TRANSITIONS: Readonly<Record<StoreState, readonly StoreState[]>> = NEXT;

/** Number of latest transitions that are remembered. */
const REMEMBERED = 32;

/** The state of one store. A transition that is not in the table is refused and changes nothing. */
export class StateMachine {
  state: StoreState;
  /** The latest transitions, oldest first. */
  readonly history: Transition[] = [];
  private readonly now: () => string;

  /** Starts in the state `from`. `now` returns the time in ISO 8601. */
  constructor(now: () => string, from: StoreState = "CLEAN") {
    this.now = now;
    this.state = from;
  }

  /** Begins again in FAILED, with no history. */
  restartFailed(): void {
    this.state = "FAILED";
    this.history.length = 0;
  }

  /** Moves to FAILED, through DIRTY where there is no direct transition. */
  fail(reason: string): void {
    if (this.state === "FAILED") return;
    this.through(TRANSITIONS[this.state].includes("FAILED") ? ["FAILED"] : ["DIRTY", "FAILED"], reason);
  }

  /** Moves to a state. Throws storage_failed, not retryable, when there is no such transition. */
  to(state: StoreState, reason: string): void {
    this.through([state], reason);
  }

  /** Moves through several states. Throws before the first transition when one of them is not legal. */
  through(states: readonly StoreState[], reason: string): void {
    const way = [this.state, ...states];
    if (states.some((state, i) => !TRANSITIONS[way[i]].includes(state)))
      throw new Failure(
        "storage_failed",
        describeUnchanged(
          `The store is ${this.state}, and cannot ${states.length > 1 ? "pass through" : "become"} ${states.join(", ")} from there.`,
          "Open the session again.",
        ),
        { fromState: this.state, toState: states[states.length - 1] },
        { retryable: false },
      );
    for (const state of states) {
      this.history.push({ fromState: this.state, toState: state, reason, at: this.now() });
      this.state = state;
    }
    this.history.splice(0, this.history.length - REMEMBERED);
  }
}
