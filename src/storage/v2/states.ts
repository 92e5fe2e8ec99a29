/** The nine states of a V2 store and the transitions between them (seed 003, "State machine and invariants"). */

import { Failure } from "../../core/failure.ts";

export const STATES = [
  "CLEAN",
  "DIRTY",
  "SEGMENT_SEALED",
  "INDEXED",
  "CHECKPOINTED",
  "MIGRATION_STAGING",
  "MIGRATED",
  "ROLLED_BACK",
  "FAILED",
] as const;
export type StoreState = (typeof STATES)[number];

/** Every legal transition. None leads to CLEAN: a store is CLEAN when it was opened and found sound. */
export const TRANSITIONS: Readonly<Record<StoreState, readonly StoreState[]>> = {
  CLEAN: ["DIRTY", "MIGRATION_STAGING"],
  DIRTY: ["SEGMENT_SEALED", "FAILED"],
  SEGMENT_SEALED: ["INDEXED", "FAILED"],
  INDEXED: ["CHECKPOINTED", "DIRTY", "FAILED"],
  CHECKPOINTED: ["DIRTY", "MIGRATION_STAGING", "ROLLED_BACK", "FAILED"],
  MIGRATION_STAGING: ["MIGRATED", "ROLLED_BACK", "FAILED"],
  MIGRATED: ["DIRTY", "FAILED"],
  ROLLED_BACK: ["DIRTY", "FAILED"],
  FAILED: ["DIRTY", "ROLLED_BACK"],
};

/** A transition that was made, as the contract's schema has it. */
export interface Transition {
  readonly fromState: StoreState;
  readonly toState: StoreState;
  readonly reason: string;
  /** Time in ISO 8601. */
  readonly at: string;
}

export function isLegal(from: StoreState, to: StoreState): boolean {
  return TRANSITIONS[from].includes(to);
}

/** Number of latest transitions that are remembered. */
const REMEMBERED = 32;

/** The state of one store. A transition that is not in the table is refused and changes nothing. */
export class StateMachine {
  private at: StoreState;
  private readonly now: () => string;
  private readonly moves: Transition[] = [];

  /** Starts in the state `from`. `now` returns the time in ISO 8601. */
  constructor(now: () => string, from: StoreState = "CLEAN") {
    this.now = now;
    this.at = from;
  }

  get state(): StoreState {
    return this.at;
  }

  /** The latest transitions, oldest first. */
  get history(): readonly Transition[] {
    return this.moves;
  }

  /** Begins again in a state, with no history. */
  restart(state: StoreState): void {
    this.at = state;
    this.moves.length = 0;
  }

  /** Moves to FAILED, through DIRTY where there is no direct transition. */
  fail(reason: string): void {
    if (this.at === "FAILED") return;
    if (!isLegal(this.at, "FAILED")) this.to("DIRTY", reason);
    this.to("FAILED", reason);
  }

  /** Moves to a state. Throws storage_failed, not retryable, when there is no such transition. */
  to(state: StoreState, reason: string): void {
    this.through([state], reason);
  }

  /** Moves through several states. Throws before the first transition when one of them is not legal. */
  through(states: readonly StoreState[], reason: string): void {
    const way = [this.at, ...states];
    if (states.some((state, i) => !isLegal(way[i], state)))
      throw new Failure(
        "storage_failed",
        `The store is ${this.at}, and cannot ${states.length > 1 ? "pass through" : "become"} ${states.join(", ")} from there. Nothing was changed; open the session again.`,
        { fromState: this.at, toState: states[states.length - 1] },
        { retryable: false },
      );
    for (const state of states) {
      this.moves.push({ fromState: this.at, toState: state, reason, at: this.now() });
      this.at = state;
    }
    this.moves.splice(0, this.moves.length - REMEMBERED);
  }
}
