/** The contract of an agent behind the conversation with an editor: whoever runs turns. Without one, prompts are refused. */

/** A block of a prompt, as the client sent it. */
export type PromptBlock = Readonly<Record<string, unknown>>;

/** The client, as an agent reaches it while a turn of its lasts. */
export interface Telling {
  /** Sends a `session/update` of the session; resolves when the client has room for the next one. */
  update(update: Readonly<Record<string, unknown>> & { readonly sessionUpdate: string }): Promise<void>;
  /** Sends a request to the client, such as session/request_permission, and returns its result. Rejects with its error. */
  ask(method: string, params: Readonly<Record<string, unknown>>): Promise<unknown>;
  /** Notes that the client was shown everything up to this entry, which is then not told of again. */
  shown(entryId: string): void;
}

/** The result of a request that goes through to the client. */
type AgentReply = Readonly<Record<string, unknown>>;

/**
 * An agent. Its methods are called for sessions that the client has open, and a turn not before the one before it has
 * ended; what they throw becomes the error of the request. What anybody writes to a session during its turn is told of
 * when that has ended, but for what `shown` named.
 */
export interface AgentBehind {
  /** Members of `promptCapabilities`. */
  readonly promptCapabilities: AgentReply;
  /** Returns `modes` and `configOptions` of a session, as far as it has them. */
  settings(sessionId: string): Promise<AgentReply>;
  /** Runs a turn. Returns the result of the request, with its `stopReason`. */
  prompt(sessionId: string, prompt: readonly PromptBlock[], telling: Telling): Promise<AgentReply>;
  /** Ends the turn that runs, if one does, also because the client has gone; that turn then returns `cancelled`. */
  cancel(sessionId: string): void;
  setMode(sessionId: string, modeId: string): Promise<AgentReply>;
  setConfigOption(sessionId: string, configId: string, value: unknown): Promise<AgentReply>;
  /** Ends what runs for a session, which the client has closed. */
  close(sessionId: string): Promise<void>;
}
