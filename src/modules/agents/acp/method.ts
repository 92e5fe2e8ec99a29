/** The type of the methods of the Agent Client Protocol, and their context. */

import type { Dispatcher } from "../../../server/dispatch/dispatcher.ts";
import type { AgentBackend, ClientAccess } from "./agent.ts";
import type { ClientSession } from "./client-session.ts";
import type { ReplayContext } from "./replay.ts";
import type { ClientFeatures } from "./update-mapper.ts";

/** A request, for a method. */
export interface AcpRequest {
  readonly params: unknown;
  readonly isCancelled: () => boolean;
  /** True if it is a prompt whose turn the client has cancelled. */
  readonly isTurnCancelled: () => boolean;
  /** Runs work after the reply to the request was sent. */
  readonly afterwards: (work: () => void) => void;
}

/** The conversation, for methods. */
export interface ConversationAccess extends ClientAccess {
  readonly dispatcher: Dispatcher;
  readonly facts: { readonly version: string; readonly readOnly: boolean; readonly agent: AgentBackend | undefined };
  features: ClientFeatures | undefined;
  /** Wakes updates that wait for capacity, after their jobs were stopped. */
  wake(): void;
  /** True if the client's input has ended, so that no turn can end normally. */
  readonly isOver: boolean;
}

export interface MethodContext {
  readonly conversation: ConversationAccess;
  /** Runs a job of a session after those before it. */
  inOrder<T>(id: string, job: (session: ClientSession, isStopped: () => boolean) => Promise<T>): Promise<T>;
  find(id: string): ClientSession | undefined;
  /** Queues a job that sends the new entries of a session. */
  queueCatchUp(session: ClientSession): void;
  replayContext(): ReplayContext;
}

export type Method = (context: MethodContext, request: AcpRequest) => Promise<object>;
