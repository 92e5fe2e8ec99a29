/** The type of the methods of the Agent Client Protocol, and the conversation as they use it. */

import type { AgentBackend, ClientAccess } from "./agent.ts";
import type { ClientSession, SessionJob } from "./client-session.ts";
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
export interface ConversationAccess extends ClientAccess, ReplayContext {
  readonly facts: { readonly version: string; readonly readOnly: boolean; readonly agent: AgentBackend | undefined };
  /** The features that the client declared in `initialize`; undefined before. */
  introduced: ClientFeatures | undefined;
  /** True if the client's input has ended, so that no turn can end normally. */
  readonly isOver: boolean;
  /** Runs a job of a session after those before it. */
  inOrder<T>(id: string, job: SessionJob<T>): Promise<T>;
  /** Handles a notification. */
  notice(method: string, params: unknown): void;
  find(id: string): ClientSession | undefined;
  /** Queues a job that sends the new entries of a session. */
  queueCatchUp(session: ClientSession): void;
  /** Wakes updates that wait for capacity, after their jobs were stopped. */
  wake(): void;
}

export type Method = (conversation: ConversationAccess, request: AcpRequest) => Promise<object>;
