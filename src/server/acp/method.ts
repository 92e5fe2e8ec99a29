/** The shape of the methods of the Agent Client Protocol, and what they are given. */

import type { LooseMembers } from "../../core/format/loose.ts";
import type { AgentBackend } from "./agent.ts";
import type { ClientSession } from "./client-session.ts";
import type { CommandRunner } from "./command-runner.ts";
import type { ReplayContext } from "./replay.ts";
import type { ClientFeatures } from "./update-mapper.ts";

/** A request, as a method takes it. */
export interface AcpRequest {
  readonly params: unknown;
  readonly isCancelled: () => boolean;
  /** Whether it is a prompt whose turn the client has cancelled. */
  readonly isTurnCancelled: () => boolean;
  /** Has something done when the reply to the request is out. */
  readonly afterwards: (work: () => void) => void;
}

/** The conversation, as methods need it. */
export interface ConversationAccess {
  readonly runner: CommandRunner;
  readonly facts: { readonly version: string; readonly readOnly: boolean; readonly agent: AgentBackend | undefined };
  features: ClientFeatures | undefined;
  /** Wakes what waits for room, after it was told to give up. */
  wake(): void;
  /** Whether the client says nothing more, so that no turn can end well. */
  readonly isOver: boolean;
  /** Sends a request to the client. Rejects with its error. */
  askClient(method: string, params: LooseMembers): Promise<unknown>;
}

export interface MethodContext {
  readonly conversation: ConversationAccess;
  /** Runs a job of a session after those before it. */
  inOrder<T>(id: string, job: (session: ClientSession, isStopped: () => boolean) => Promise<T>): Promise<T>;
  find(id: string): ClientSession | undefined;
  /** Shows what has come to a session since. */
  queueCatchUp(session: ClientSession): void;
  replayContext(): ReplayContext;
}

export type Method = (context: MethodContext, request: AcpRequest) => Promise<object>;
