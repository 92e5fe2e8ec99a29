/** Options and handlers of the client. */

import type { Commands, Events, Hooks } from "./protocol.ts";

export type State = Commands["get_state"]["result"];

export interface RequestOptions {
  /**
   * Withdraws the request, which then fails: with `cancelled` if it has done nothing, as a read has, and else, once it is
   * answered, with `outcome_unknown`.
   */
  readonly signal?: AbortSignal;
  /** Callback for progress, of the commands that report it. */
  readonly onProgress?: (progress: ProgressReport) => void;
}

/** Progress of a command. Reports of `list_sessions` with `stream` have `sessions`, too. */
export interface ProgressReport {
  readonly done: number;
  readonly total: number;
  readonly [member: string]: unknown;
}

/** The call of a hook's handler besides its question. */
export interface HookContext {
  /** Is aborted when the server does not wait any more. */
  readonly signal: AbortSignal;
  /** Sends a read that does not wait for the command that asks. It is answered from the state before the command. */
  request<N extends keyof Commands>(name: N, ...rest: Arguments<N>): Promise<Commands[N]["result"]>;
}

/** A hook's handler. An answer of nothing lets the action go on; an error stops it. */
export type HookHandler<N extends keyof Hooks> = (
  payload: Hooks[N]["payload"],
  context: HookContext,
) => HookReply<N> | Promise<HookReply<N>>;

// biome-ignore lint/suspicious/noConfusingVoidType: a handler may return nothing
type HookReply<N extends keyof Hooks> = Hooks[N]["answer"] | null | void;

export interface ClientOptions {
  /** Name and version of the host, for the server's records. */
  readonly clientInfo?: { readonly name: string; readonly version?: string };
  /** Events that the server sends; all by default. */
  readonly events?: readonly (keyof Events)[];
  /** Handlers of the questions that the server asks. Only those that are here are asked. */
  readonly hooks?: { readonly [N in keyof Hooks]?: HookHandler<N> };
  /** Bytes that a reply may have at most; pages end earlier then. */
  readonly maxReplyBytes?: number;
  /** "own" to write on a leaf of one's own; by default on the shared one. */
  readonly leaf?: "shared" | "own";
  /** The name of that leaf; by default a new one, which a server that takes the place of another is given again. */
  readonly head?: string;
}

/** Params and options of a request; params may be left out where none is required. */
export type Arguments<N extends keyof Commands> = object extends Commands[N]["params"]
  ? [params?: Commands[N]["params"], options?: RequestOptions]
  : [params: Commands[N]["params"], options?: RequestOptions];

/** Commands that answer in pages. */
export type PagedCommand = {
  [N in keyof Commands]: [Commands[N]["result"]] extends [never]
    ? never
    : Commands[N]["params"] extends { cursor?: string }
      ? Commands[N]["result"] extends { nextCursor?: string }
        ? N
        : never
      : never;
}[keyof Commands];

/** A server that took the place of one that died. */
export interface Restart {
  /** The end of the one before, in a sentence. */
  readonly reason: string;
  readonly state: State | null;
}
