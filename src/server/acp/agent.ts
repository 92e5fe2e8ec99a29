/** The contract of an agent behind the conversation with an editor: whoever runs turns. Without one, prompts are refused. */

import type { ClientFeatures, PathEntry } from "./update-mapper.ts";

/** A block of a prompt, as the client sent it. */
export type PromptBlock = Readonly<Record<string, unknown>>;

/**
 * How a client stands to an entry of a turn: it was shown it while it came, it is not shown it otherwise, or it will be
 * shown it soon, so that nothing after it is told yet.
 */
export type EntryVisibility = "shown" | "new" | "soon";

/** The client, as an agent reaches it for a session that it has open. */
export interface ClientChannel {
  readonly skills: ClientFeatures;
  /** Sends a `session/update` of the session; resolves when the client has room for the next one. */
  update(update: Readonly<Record<string, unknown>> & { readonly sessionUpdate: string }): Promise<void>;
  /** Sends a request to the client, such as session/request_permission, and returns its result. Rejects with its error. */
  ask(method: string, params: Readonly<Record<string, unknown>>): Promise<unknown>;
  /** Returns the id by which the client knows a call of the turn that is not in the session yet. */
  claim(callId: string): string;
  /**
   * Shows what has been written to the session since; of what the client was shown while it came, only ids and facts.
   * `tellsUsage`: and how full the context is, which takes time.
   */
  sendNewEntries(classify: (item: PathEntry) => EntryVisibility, withUsage?: boolean): Promise<void>;
}

/** The result of a request that goes through to the client. */
export type AgentReply = Readonly<Record<string, unknown>>;

/** A session, as an agent is told of it. */
export interface AgentSession {
  readonly sessionId: string;
  readonly cwd: string;
  /** The model in force, and the thinking level; both undefined while the session is empty. */
  readonly model: { readonly provider: string; readonly id: string } | null | undefined;
  readonly thinkingLevel: string | undefined;
  /** The params with which the client opened it, while it does. */
  readonly openParams?: AgentReply;
}

/** The client, as it says itself. */
export interface ClientDescription {
  readonly clientCapabilities?: AgentReply;
  readonly clientInfo?: AgentReply;
}

/**
 * An agent. Its methods are called for sessions that the client has open, and a turn not before the one before it has
 * ended; what they throw becomes the error of the request. What anybody writes to a session during its turn is told of
 * when that has ended, or with `keepUp`.
 */
export interface AgentBackend {
  /** Members of `promptCapabilities`. */
  readonly promptCapabilities: AgentReply;
  /** Params of the methods that open sessions which mean something to it. */
  readonly uses?: readonly string[];
  /** Whether it tells itself how full its context is. */
  readonly reportsUsage?: boolean;
  /** Meets the client. Returns `agentCapabilities` and `authMethods` of its own, as far as it has them. */
  initialize?(client: ClientDescription): Promise<AgentReply>;
  authenticate?(params: AgentReply): Promise<AgentReply>;
  /** Returns `modes` and `configOptions` of a session, as far as it has them. */
  getSettings(session: AgentSession, channel: ClientChannel): Promise<AgentReply>;
  /** Returns how the client stands to entries that are written between turns; undefined where it is shown all of them. */
  findClassifier?(sessionId: string): ((item: PathEntry) => EntryVisibility) | undefined;
  /** Tells what a client hears unasked about a session, once it knows that session. */
  sendInitialUpdates?(sessionId: string): Promise<void>;
  /**
   * Runs a turn. Returns the result of the request, with its `stopReason`. `isCancelled` says whether the client wants it
   * no more, which it may say before the agent has what it needs to begin.
   */
  prompt(
    session: AgentSession,
    prompt: readonly PromptBlock[],
    channel: ClientChannel,
    isCancelled: () => boolean,
  ): Promise<AgentReply>;
  /** Ends the turn that runs, if one does, also because the client has gone; that turn then returns `cancelled`. */
  cancel(sessionId: string): void;
  setMode(session: AgentSession, modeId: string, channel: ClientChannel): Promise<AgentReply>;
  setConfigOption(session: AgentSession, configId: string, value: unknown, channel: ClientChannel): Promise<AgentReply>;
  /** Ends what runs for a session, which the client has closed. */
  close(sessionId: string): Promise<void>;
}
