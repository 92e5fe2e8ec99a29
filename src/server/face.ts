/** The contract of a conversation that takes the whole wire over, in place of the dialects. */

import type { Workspace } from "../core/session/workspace.ts";
import type { FaceName, Refusal } from "./connection/dialect.ts";
import type { PendingEvent } from "./connection/events.ts";
import type { Output } from "./connection/output.ts";
import type { Dispatcher } from "./dispatch/dispatcher.ts";

export interface Face {
  /** True if reading from the host should pause. */
  readonly isFull: boolean;
  /** Takes a message of the host; `bytes` are its text. */
  receive(value: unknown, bytes: Buffer): void;
  /** Answers what could not be cut or parsed, where the protocol has other replies to it than JSON-RPC. */
  refuseInput?(refusal: Refusal, idText?: string): void;
  receiveEvent(event: PendingEvent): void;
  /** Called when events were dropped, because the host did not read. */
  catchUpAll(): void;
  /** Called when the host reads again. */
  resume(): void;
  /** Rejects everything that waits for the host, whose input has ended. */
  abandon(): void;
  /** Resolves after {@link abandon}, when every request has its reply and the agents behind have ended. */
  end(): Promise<void>;
}

/** The wire and the server, for a face and for the agents behind. */
export interface FaceWire {
  readonly output: Output;
  readonly dispatcher: Dispatcher;
  readonly workspace: Workspace;
  /** Resumes reading from the host, after a face or an agent was full. */
  resumeInput(): void;
}

/** The faces of this build, by the names of their dialects. */
export type Faces = { readonly [N in FaceName]?: (wire: FaceWire) => Face };
