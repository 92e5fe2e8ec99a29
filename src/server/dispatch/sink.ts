/** The contract between the dispatcher and the connection that its replies leave by. */

import type { Session } from "../../core/session/session.ts";
import type { Introduction } from "../../handlers/shared/command.ts";
import type { Call, Outcome } from "../connection/call.ts";
import type { CallSink } from "../connection/caller.ts";
import type { Pieces } from "../connection/dialect.ts";
import type { PendingEvent } from "../connection/host.ts";
import type { OutgoingMessage } from "../connection/output.ts";

/** A reply that was made in advance and leaves later; it needs nothing of a session any more. */
export interface Prepared {
  readonly message: OutgoingMessage | undefined;
  /** Bytes of the frame that it would have alone, where the host limits replies; else 0. */
  readonly size: number;
  readonly memoryBytes: number;
}

export type Renewed = () => Outcome | undefined;

/**
 * The receiver of finished calls. Replies and events read stored entries while they are put together. An error in that
 * becomes the reply, or an event with fewer members; none of these methods throws it.
 */
export interface Sink extends CallSink {
  /** Whether events can be sent: the host's framing and dialect are known. */
  readonly canTell: boolean;
  /** Sends a reply. `renewed` returns the outcome to use instead, if making the reply has shown this one wrong. */
  reply(call: Call, outcome: Outcome, renewed?: Renewed): void;
  /** Makes a reply that leaves later, as part of a message that has `usedBytes` bytes already. */
  prepare(call: Call, outcome: Outcome, usedBytes: number, renewed?: Renewed): Prepared;
  send(prepared: Prepared): void;
  /** Shows a notice to the person at a client of Pi's. */
  show(notice: string): void;
  /** Sends the reply to a message from which no call could be made. */
  refuse(reply: Pieces): void;
  batch(replies: readonly Prepared[], refusals: readonly Pieces[]): void;
  event(event: PendingEvent): void;
  /** Tells that events of a session were given up, because the host did not read. */
  lostEvents(count: number, session: Session | null): void;
  introduce(wishes: Introduction): void;
  shutDown(how?: { atOnce: boolean }): void;
}
