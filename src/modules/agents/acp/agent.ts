/** The contract of an agent that runs the turns of an editor's conversation. Without one, prompts are refused. */

import type { ClientFeatures, PathEntry } from "./update-mapper.ts";

/** A block of a prompt, as the client sent it. */
export type PromptBlock = Readonly<Record<string, unknown>>;

/** State of an entry at the client: `shown` while it came, `new`, or `soon` to be shown and to be waited for. */
export type EntryVisibility = "shown" | "new" | "soon";

/** The client, for an agent and one session that the client has open. */
export interface ClientChannel {
  readonly features: ClientFeatures;
  /** Sends a `session/update` of the session. Resolves when the client has capacity for the next one. */
  update(
    update: Readonly<Record<string, unknown>> & { readonly sessionUpdate: string },
    /** The `_meta` next to the update. */
    meta?: unknown,
  ): Promise<void>;
  /**
   * Sends the client a request, such as session/request_permission. Returns the result or rejects with the error.
   * `signal`: cancels it.
   */
  ask(method: string, params: Readonly<Record<string, unknown>>, signal?: AbortSignal): Promise<unknown>;
  /** Sends a notification about the session. Resolves when the client has capacity for the next one. */
  notify(method: string, params: Readonly<Record<string, unknown>>): Promise<void>;
  /** Returns the client's id of a call of the turn that is not in the session yet. */
  claim(callId: string): string;
  /**
   * Shows the entries written to the session since; of those that the client was shown while they came, only ids and
   * facts. `withUsage`: also how full the context is, which takes time.
   */
  sendNewEntries(classify: (item: PathEntry) => EntryVisibility, withUsage?: boolean): Promise<void>;
}

/** The client, for messages of the agent that are about no session. */
export interface ClientAccess {
  /** Sends a request. Rejects with the client's error. `signal`: cancels it. */
  askClient(method: string, params: unknown, signal?: AbortSignal): Promise<unknown>;
  /** Sends a notification. Resolves when the client has capacity for the next one. */
  notifyClient(method: string, params: unknown): Promise<void>;
}

/** The result of a request, passed through to the client. */
export type AgentReply = Readonly<Record<string, unknown>>;

/** A session, for an agent. */
export interface AgentSession {
  readonly sessionId: string;
  readonly cwd: string;
  /** The client, for this session. */
  readonly channel: ClientChannel;
  /** The model in force, and the thinking level; both undefined while the session is empty. */
  readonly model: { readonly provider: string; readonly id: string } | null | undefined;
  readonly thinkingLevel: string | undefined;
  /** The client's params of the request that opens it; only during that request. */
  readonly openParams?: AgentReply;
  /** The client's params of another request. */
  readonly params?: AgentReply;
}

/** The client's description of itself. */
export interface ClientDescription {
  readonly clientCapabilities?: AgentReply;
  readonly clientInfo?: AgentReply;
}

/**
 * An agent. Its methods are called for sessions that the client has open. A turn starts only after the one before it
 * has ended. An error that a method throws becomes the error of the request. Entries that any program writes to a
 * session during its turn are shown when the turn has ended, or by `sendNewEntries`.
 */
export interface AgentBackend {
  /** True if an agent does not read its input. */
  readonly isFull: boolean;
  /** Called when the client reads again. */
  resume(): void;
  /** Ends the running turns and the agents. */
  end(): Promise<void>;
  /** Members of `promptCapabilities`. */
  readonly promptCapabilities: AgentReply;
  /** Params of the methods that open sessions, which the agent uses. */
  readonly uses?: readonly string[];
  /** True if the agent itself reports how full its context is. */
  readonly reportsUsage?: boolean;
  /** Describes the client to the agent. Returns the agent's own `agentCapabilities` and `authMethods`, if any. */
  initialize?(client: ClientDescription, access: ClientAccess): Promise<AgentReply>;
  authenticate?(params: AgentReply): Promise<AgentReply>;
  /**
   * Returns `modes` and `configOptions` of a session, as far as the agent has them, and as `ignored` in our part of
   * `_meta` the params that come too late for the session.
   */
  getSettings(session: AgentSession): Promise<AgentReply>;
  /** Returns the classifier of entries written between turns; undefined when the client is shown all of them. */
  findClassifier?(sessionId: string): ((item: PathEntry) => EntryVisibility) | undefined;
  /** Returns the updates of a running turn that no entry has yet, for a client that loads the session meanwhile. */
  listUnwritten?(sessionId: string): readonly AgentReply[];
  /** Sends the updates that the client did not ask for, after the reply that opens the session. */
  sendInitialUpdates?(sessionId: string): Promise<void>;
  /**
   * Runs a turn. Returns the result of the request, with its `stopReason`. `isCancelled`: whether the client has
   * cancelled the turn, possibly before the agent can begin.
   */
  prompt(session: AgentSession, prompt: readonly PromptBlock[], isCancelled: () => boolean): Promise<AgentReply>;
  /** Ends the running turn, if there is one, also when the client has gone. That turn returns `cancelled`. */
  cancel(sessionId: string): void;
  setMode(session: AgentSession, modeId: string): Promise<AgentReply>;
  setConfigOption(session: AgentSession, configId: string, value: unknown): Promise<AgentReply>;
  /**
   * Passes on a request that this server does not know, and returns the agent's result. `session`: the open one that
   * its params name. `signal`: cancels it.
   */
  pass?(method: string, params: unknown, signal: AbortSignal, session?: AgentSession): Promise<unknown>;
  /** Passes on a notification that this server does not know. */
  passNotice?(method: string, params: unknown): void;
  /** Ends the work for a session that the client has closed. */
  close(sessionId: string): Promise<void>;
}
