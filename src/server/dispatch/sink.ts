/** The contract between the dispatcher and the connection that sends its replies. */

import type { Session } from "../../core/session/session.ts";
import type { Introduction } from "../../handlers/shared/command.ts";
import type { Call, Outcome } from "../connection/call.ts";
import type { CallSink } from "../connection/caller.ts";
import type { Pieces } from "../connection/dialect.ts";
import type { PendingEvent } from "../connection/events.ts";
import type { OutgoingMessage } from "../connection/output.ts";

/** A reply made in advance that leaves later; it refers to no session any more. */
export interface Prepared {
  readonly message: OutgoingMessage | undefined;
  /** Bytes of its frame if it leaves alone, where the host limits replies; otherwise 0. */
  readonly size: number;
  readonly memoryBytes: number;
}

/** Returns another outcome if making a reply has shown the first one to be wrong. `error`: the reason why it was not made. */
export type Renewed = (error?: unknown) => Outcome | undefined;

/**
 * The receiver of finished calls. Making replies and events reads stored entries. An error then becomes the reply, or
 * an event with fewer members; none of these methods throws it.
 */
export interface Sink extends CallSink {
  /** True if events can be sent: the host's framing and dialect are known. */
  readonly canSendEvents: boolean;
  /** Sends a reply. `renewed` returns another outcome if making the reply has shown this one to be wrong. */
  reply(call: Call, outcome: Outcome, renewed?: Renewed): void;
  /** Makes a reply that leaves later, as part of a message that already has `usedBytes` bytes. */
  prepare(call: Call, outcome: Outcome, usedBytes: number, renewed?: Renewed): Prepared;
  send(prepared: Prepared): void;
  /** Shows a notice to the person at a client of Pi's. */
  show(notice: string): void;
  /** Sends the reply to a message from which no call could be made. */
  refuse(reply: Pieces): void;
  batch(replies: readonly Prepared[], refusals: readonly Pieces[]): void;
  event(event: PendingEvent): void;
  /** Reports that events of a session were dropped because the host did not read. */
  lostEvents(count: number, session: Session | null): void;
  introduce(introduction: Introduction): void;
  shutDown(how?: { atOnce: boolean }): void;
}
