/** The contract between the dispatcher and the connection that its replies leave by. */

import type { Introduction } from "../../handlers/shared/command.ts";
import type { Call, Outcome } from "../connection/call.ts";
import type { DialectName, Pieces } from "../connection/dialect.ts";
import type { PendingEvent } from "../connection/host.ts";
import type { OutgoingMessage } from "../connection/output.ts";

/** A reply that was made in advance and leaves later; it needs nothing of a session any more. */
export interface Prepared {
  /** Undefined when the call gets no reply. */
  readonly message: OutgoingMessage | undefined;
  /** Bytes of the frame that it would have alone, where the host limits replies; else 0. */
  readonly size: number;
  /** Bytes of it that are in memory. */
  readonly memoryBytes: number;
}

export type Renewed = () => Outcome | undefined;

/**
 * The receiver of finished calls. Replies and events read stored entries while they are put together. An error in that
 * becomes the reply, or an event with fewer members; none of these methods throws it.
 */
export interface Sink {
  readonly hasRoom: boolean;
  readonly dialectName: DialectName;
  /** Bytes that a reply may have at most; undefined when the host set no limit. */
  readonly maxReplyBytes: number | undefined;
  /** Returns the bytes that JSON text takes in a reply, escapes of the framing included. */
  sizeOf(text: Uint8Array): number;
  /** Sends a reply. `renewed` returns the outcome to use instead, if making the reply has shown this one wrong. */
  reply(call: Call, outcome: Outcome, renewed?: Renewed): void;
  /** Makes a reply that leaves later, as part of a message that has `usedBytes` bytes already. */
  prepare(call: Call, outcome: Outcome, usedBytes: number, renewed?: Renewed): Prepared;
  send(prepared: Prepared): void;
  /** Sends the reply to a message from which no call could be made. */
  refuse(reply: Pieces): void;
  batch(replies: readonly Prepared[], refusals: readonly Pieces[]): void;
  event(event: PendingEvent): void;
  /** Reports at once how far a command is; not called while the host does not keep up. */
  progress(token: string | number, done: number, total: number, more?: object): void;
  flush(): void;
  /** Applies the host's wishes from `initialize`. Throws nothing. */
  introduce(wishes: Introduction): void;
  /** Shuts down cleanly once the reply is out; unless `atOnce`, the host may close its end first. */
  shutDown(how?: { atOnce: boolean }): void;
}
