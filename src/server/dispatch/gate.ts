/** The contract of gates: each decides about a call before it runs, one after the other in the dispatcher's order. */

import type { Session } from "../../core/session/session.ts";
import type { Call, Outcome } from "../connection/call.ts";
import type { PendingEvent } from "../connection/events.ts";

export interface Gate {
  /**
   * Decides about a call in its turn, before it runs; `session` is the one that it names, null for none. Returns nothing
   * if the call may go on, a promise if it must wait, and a redirection if another process runs it. Throws or rejects
   * with the reason why it may not run.
   */
  before(call: Call, session: Session | null): Decision | Promise<void>;
}

/** The decision about a call. */
export type Decision = Redirection | Promise<Redirection | undefined> | undefined;

/** Passes a call to a runner elsewhere. */
export class Redirection {
  readonly runner: RemoteRunner;

  constructor(runner: RemoteRunner) {
    this.runner = runner;
  }
}

/** The process that holds a session, as it runs calls of this one. */
export interface RemoteRunner {
  /** Passes a call on; after the end of that process, to the next one, which may be this one. */
  pass(passed: PassedCall): void;
  /** Cancels the matching calls. Their replies say whether it did. */
  cancel(isMeant: (call: Call) => boolean): void;
}

/** A call that another process runs. */
export interface PassedCall {
  readonly call: Call;
  /** The key with which an earlier runner may have run the call; undefined for a call that was not passed before. */
  readonly key?: string;
  /** Receives the events caused by the call. */
  readonly events: PendingEvent[];
  /** Runs the call in this process, once it holds the session. */
  readonly runHere: (keyed: Call) => unknown;
  /** Ends the call at once. Later messages of that process come after its reply. */
  readonly settle: (outcome: Outcome) => void;
}

/** Asks gates about a call, beginning with the one at `from`, until one redirects it. */
export function askGates(gates: readonly Gate[], call: Call, session: Session | null, from = 0): Decision {
  for (let at = from; at < gates.length; at++) {
    const decision = gates[at].before(call, session);
    if (decision instanceof Redirection) return decision;
    if (decision) return waitAtGate(decision, () => askGates(gates, call, session, at + 1));
  }
  return undefined;
}

async function waitAtGate(
  decision: Promise<Redirection | undefined> | Promise<void>,
  goOn: () => Decision,
): Promise<Redirection | undefined> {
  const redirection = await decision;
  return redirection ?? goOn();
}
