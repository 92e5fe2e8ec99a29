/** The client: requests, events and hooks over a server that may be replaced under it. */

import { randomUUID } from "node:crypto";
import { EventHub } from "./event-hub.ts";
import { cancelled, connectionClosed, outcomeUnknown, RequestFailure } from "./failure.ts";
import type { MessageStream, RpcMessage } from "./message-stream.ts";
import { OpenSessions } from "./open-sessions.ts";
import type { Commands, Events, Hooks } from "./protocol.ts";
import { repetitions } from "./repetitions.ts";
import type {
  Arguments,
  ClientOptions,
  HookContext,
  HookHandler,
  PagedCommand,
  ProgressReport,
  RequestOptions,
  Restart,
  State,
} from "./types.ts";

/** A server in its life: the connection, and its end with a sentence about it. */
export interface Life {
  readonly wire: MessageStream;
  /** Resolves after `wire.ended`, when the process is gone, with its last words. */
  readonly gone: Promise<string>;
}

/** Starts a server after the one before died. Returns nothing when there is to be no other. */
export type Revive = (sessions: OpenSessions, deaths: number) => Promise<Life> | null;

/** A request, from its call to its reply. */
interface Pending {
  readonly id: number;
  readonly name: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly options: RequestOptions;
  /** Whether it is sent at once, ahead of others: one for a hook, or of the client itself. */
  readonly isUrgent: boolean;
  /** Entries that it may write. */
  readonly entryCount: number;
  resolve(result: unknown): void;
  reject(error: unknown): void;
  /** Whether it was sent to a server that died. */
  isAgain: boolean;
  /** How many servers died when it was the next to be answered. */
  blame: number;
  isCancelled: boolean;
}

/**
 * Entries that may be unanswered at once. Keys are found again among the last 10,000 of a session; fewer are sent again
 * after a death, and a server is busy with far fewer.
 */
const MOST_UNANSWERED = 500;

/** Servers that may die over one request, or in a row without an answer, before it is given up. */
const MOST_DEATHS = 5;

/** Failures that say nothing of whether an earlier attempt was done: the session was not looked at. */
const BEFORE_THE_KEY: ReadonlySet<string> = new Set([
  "no_session",
  "session_not_found",
  "not_a_session",
  "corrupt",
  "unsupported_version",
  "path_outside_root",
  "shutting_down",
  "internal_error",
]);

export class Client {
  private readonly options: ClientOptions;
  private readonly revive: Revive | null;
  private readonly sessions = new OpenSessions();
  private life: Life | null = null;
  /** Whether the present server has been brought to where the one before was. */
  private isReady = false;
  private readonly queue: Pending[] = [];
  /** Requests that were sent and not answered, in this order. */
  private readonly sent = new Map<number, Pending>();
  private lastId = 0;
  private readonly heard = new EventHub();
  /** Hooks that are being answered, by the id of the question. */
  private readonly asked = new Map<number | string, AbortController>();
  private readonly restartHandlers = new Set<(restart: Restart) => void>();
  private deaths = 0;
  private closing: Promise<void> | null = null;
  /** Undefined until the server has introduced itself. */
  private firstState: State | null | undefined;
  private lastWords = "";
  private isOver = false;
  /** The latest question about a session that is not on disk yet. */
  private keeping: Promise<void> = Promise.resolve();

  /** See `connect` and `spawnServer`. */
  constructor(options: ClientOptions, revive: Revive | null) {
    this.options = options;
    this.revive = revive;
  }

  /** The state at the start; null when no session could be opened. */
  get state(): State | null {
    return this.firstState ?? null;
  }

  /** Connects to a server and introduces itself. Throws what the server refused, or connection_closed. */
  async start(life: Life): Promise<this> {
    this.live(life);
    const state = await this.introduce();
    await this.keepUnpersisted();
    this.firstState = state;
    this.isReady = true;
    return this;
  }

  /**
   * Sends a request. With a server that can be replaced, a write gets an idempotency key unless it has one, and is sent
   * again when the server died before it answered. Throws RequestFailure: the failures of the command, `outcome_unknown`
   * when the server died and the command cannot be sent again, `connection_closed` when it was not done.
   */
  request<N extends keyof Commands>(name: N, ...[params, options]: Arguments<N>): Promise<Commands[N]["result"]> {
    return this.enqueue(name, params ?? {}, options ?? {}, false) as Promise<Commands[N]["result"]>;
  }

  /** Yields the pages of a command, one after the other, until there is no more. */
  async *pages<N extends PagedCommand>(
    name: N,
    ...[params, options]: Arguments<N>
  ): AsyncGenerator<Commands[N]["result"], void, undefined> {
    let cursor = (params as { cursor?: string } | undefined)?.cursor;
    do {
      const asked = cursor === undefined ? (params ?? {}) : { ...params, cursor };
      const page = (await this.enqueue(name, asked, options ?? {}, false)) as { nextCursor?: string };
      yield page as Commands[N]["result"];
      cursor = page.nextCursor;
    } while (cursor !== undefined);
  }

  /** Calls the handler for every such event. Returns a function that ends this. */
  on<N extends keyof Events>(name: N, handler: (event: Events[N]) => void): () => void {
    return this.heard.on(name, handler);
  }

  /**
   * Yields events of these names as they come, from this call on, until the client is closed, its server has ended for
   * good, or the signal is aborted. Events wait in memory until they are taken.
   */
  events<N extends keyof Events>(names: readonly N[], options: { readonly signal?: AbortSignal } = {}) {
    return this.heard.stream(names, options.signal);
  }

  /**
   * Calls the handler when a server died and another has taken its place. Events between the two may be missing, and
   * `seq` begins anew. Returns a function that ends this.
   */
  onRestart(handler: (restart: Restart) => void): () => void {
    this.restartHandlers.add(handler);
    return () => void this.restartHandlers.delete(handler);
  }

  /** Lets the server answer what it was asked, shuts it down cleanly, and waits for its end. */
  close(): Promise<void> {
    this.closing ??= this.shutDown();
    return this.closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private async shutDown(): Promise<void> {
    if (!this.isOver) {
      await this.enqueue("shutdown", {}, {}, false).catch(() => {});
      this.life?.wire.send({ method: "exit" });
      this.life?.wire.end();
    }
    await this.life?.gone;
  }

  // --- a server's life -------------------------------------------------------------------------------------------------

  private live(life: Life): void {
    this.life = life;
    life.wire.onMessage((message) => {
      if (this.life === life) this.receive(message);
    });
    life.wire.onDrain(() => this.pump());
    void life.wire.ended.then(async () => {
      const lastWords = await life.gone;
      if (this.life === life) await this.succeed(lastWords);
    });
  }

  /** Introduces the client to a server. Returns the state of its session. */
  private async introduce(): Promise<State | null> {
    const { clientInfo, events, hooks = {}, maxReplyBytes } = this.options;
    const named = Object.keys(hooks).map((name) => ({ name }));
    const capabilities = { hooks: named, ...(events ? { events: [...events] } : {}) };
    const { state } = (await this.urgent("initialize", { clientInfo, maxReplyBytes, capabilities })) as {
      state: State | null;
    };
    this.sessions.noteState(state);
    return state;
  }

  /** Puts another server in the place of one that died, or gives up. */
  private async succeed(lastWords: string): Promise<void> {
    for (const controller of this.asked.values()) controller.abort();
    this.asked.clear();
    this.isReady = false;
    this.lastWords = lastWords;
    this.deaths++;
    this.sortOut();
    const isEnding = this.closing !== null && this.queue.every(({ name }) => name === "shutdown");
    const isHopeless = this.firstState === undefined || this.deaths > MOST_DEATHS || !this.sessions.canBeReopened;
    const coming = isEnding || isHopeless ? null : this.revive?.(this.sessions, this.deaths);
    if (!coming) return this.giveUp();
    try {
      const life = await coming;
      this.live(life);
      const state = await this.introduce();
      for (const { name, params } of this.sessions.stepsAfter(state)) await this.goStep(name, params);
      await this.keepUnpersisted();
      if (this.life !== life) return;
      this.isReady = true;
      for (const handler of this.restartHandlers) handler({ reason: lastWords, state });
      this.pump();
    } catch (error) {
      // When this server died too, its own end has taken care of the rest.
      if (!(error instanceof RequestFailure) || error.name !== "connection_closed") this.giveUp(error);
    }
  }

  /** Does a step. A session that was open beside the current one and cannot be opened again is no reason to give up. */
  private async goStep(name: keyof Commands, params: object): Promise<void> {
    const isNeeded = name !== "open_session";
    try {
      await this.urgent(name, params);
    } catch (error) {
      if (isNeeded || (error as RequestFailure).name === "connection_closed") throw error;
    }
  }

  /** Puts requests that may be sent again back in front of the queue, and fails the others that were sent. */
  private sortOut(): void {
    const again: Pending[] = [];
    const next = [...this.sent.values()].find(({ isUrgent }) => !isUrgent);
    if (next) next.blame++;
    for (const pending of this.sent.values()) {
      const { name } = pending;
      const repetition = repetitions[name];
      pending.isAgain = true;
      if (pending.isUrgent) pending.reject(connectionClosed(this.lastWords));
      else if (this.revive && !pending.isCancelled && pending.blame < MOST_DEATHS && mayBeRepeated(pending))
        again.push(pending);
      else pending.reject(repetition === "repeatable" ? connectionClosed(this.lastWords) : outcomeUnknown(name));
    }
    this.sent.clear();
    this.queue.unshift(...again);
  }

  private giveUp(error?: unknown): void {
    this.life?.wire.end();
    this.isOver = true;
    const left = this.queue.splice(0);
    for (const pending of left) {
      if (pending.name === "shutdown") pending.resolve(null);
      else if (pending.isAgain && repetitions[pending.name] !== "repeatable")
        pending.reject(outcomeUnknown(pending.name, error));
      else pending.reject(error ?? connectionClosed(this.lastWords));
    }
    this.heard.end();
  }

  // --- requests ----------------------------------------------------------------------------------------------------------

  private enqueue(name: string, params: object, options: RequestOptions, isUrgent: boolean): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.isOver || (this.closing && !isUrgent)) return reject(connectionClosed(this.lastWords));
      if (options.signal?.aborted) return reject(cancelled());
      const id = ++this.lastId;
      const pending: Pending = {
        id,
        name,
        params: this.completed(id, name, params as Pending["params"], options),
        options,
        isUrgent,
        entryCount: repetitions[name] === "entries" ? countOf(params) : 0,
        resolve,
        reject,
        isAgain: false,
        blame: 0,
        isCancelled: false,
      };
      options.signal?.addEventListener("abort", () => this.cancel(pending), { once: true });
      if (isUrgent) this.send(pending);
      else {
        this.queue.push(pending);
        this.pump();
      }
    });
  }

  private urgent(name: keyof Commands, params: object): Promise<unknown> {
    return this.enqueue(name, params, {}, true);
  }

  /** Returns params with what belongs to the protocol: a token for progress, and a key if it helps. */
  private completed(id: number, name: string, params: Pending["params"], { onProgress }: RequestOptions) {
    const kept = repetitions[name];
    const isKeyed = this.revive !== null && (kept === "entries" || kept === "session");
    return {
      ...params,
      ...(isKeyed && params["idempotencyKey"] === undefined ? { idempotencyKey: randomUUID() } : {}),
      ...(onProgress ? { _meta: { ...(params["_meta"] as object | undefined), progressToken: id } } : {}),
    };
  }

  /** Sends what may be sent, in the order of the calls. */
  private pump(): void {
    while (this.isReady && this.queue.length > 0 && this.mayBeSent(this.queue[0]))
      this.send(this.queue.shift() as Pending);
  }

  private mayBeSent({ entryCount }: Pending): boolean {
    if (this.sent.size === 0) return true;
    if (this.life?.wire.isFull) return false;
    if (!this.revive) return true;
    let unanswered = entryCount;
    for (const pending of this.sent.values()) {
      if (!pending.isUrgent && isAlone(pending.name)) return false;
      unanswered += pending.entryCount;
    }
    return unanswered <= MOST_UNANSWERED;
  }

  private send(pending: Pending): void {
    const { id, name, params } = pending;
    this.sent.set(id, pending);
    this.life?.wire.send({ id, method: name, params });
  }

  private cancel(pending: Pending): void {
    pending.isCancelled = true;
    const at = this.queue.indexOf(pending);
    if (at >= 0) {
      this.queue.splice(at, 1);
      pending.reject(
        pending.isAgain && repetitions[pending.name] !== "repeatable" ? outcomeUnknown(pending.name) : cancelled(),
      );
      this.pump();
    } else if (this.sent.has(pending.id))
      this.life?.wire.send({ method: "$/cancelRequest", params: { id: pending.id } });
  }

  // --- messages ----------------------------------------------------------------------------------------------------------

  private receive(message: RpcMessage): void {
    const { id, method, params } = message;
    if (method === undefined) this.answered(message);
    else if (id !== undefined && id !== null) void this.answer(id, method, params);
    else if (method === "$/cancelRequest") this.asked.get((params as { id: number | string }).id)?.abort();
    else if (method === "$/progress") this.progressed(params as { token: number; value: ProgressReport });
    else this.heard.tell(method, params);
  }

  private progressed({ token, value }: { token: number; value: ProgressReport & { kind?: string } }): void {
    const { kind: _, ...progress } = value;
    this.sent.get(token)?.options.onProgress?.(progress as ProgressReport);
  }

  private answered({ id, result, error }: RpcMessage): void {
    const pending = this.sent.get(id as number);
    if (pending === undefined) return;
    this.sent.delete(pending.id);
    if (!pending.isUrgent) this.deaths = 0;
    if (error) pending.reject(this.failureOf(pending, error));
    else void this.accept(pending, result);
    this.pump();
  }

  private failureOf({ name, isAgain }: Pending, error: NonNullable<RpcMessage["error"]>): RequestFailure {
    const failure = new RequestFailure(error.code, error.message, error.data);
    const isUnknown = isAgain && repetitions[name] !== "repeatable" && BEFORE_THE_KEY.has(failure.name);
    return isUnknown ? outcomeUnknown(name, failure) : failure;
  }

  /** Resolves a request, once what it did to a session that is not on disk is known here. */
  private async accept(pending: Pending, result: unknown): Promise<void> {
    const { name, params, isUrgent } = pending;
    const isAnother = this.revive !== null && this.sessions.note(name, params, result);
    const writes = repetitions[name] === "entries" || isAnother;
    try {
      if (!isUrgent && writes && this.sessions.isUnpersisted) await this.keepUnpersisted();
    } catch {
      // The server died after its answer: what it had in memory is as it was known before.
    }
    pending.resolve(result);
  }

  /** Asks for what a session has that is not on disk yet, and was not asked for by an earlier answer. */
  private keepUnpersisted(): Promise<void> {
    const before = this.keeping.catch(() => {});
    this.keeping = before.then(() => this.askForUnpersisted());
    return this.keeping;
  }

  private async askForUnpersisted(): Promise<void> {
    if (!this.revive || !this.sessions.isUnpersisted) return;
    this.sessions.noteState((await this.urgent("get_state", {})) as State);
    if (!this.sessions.isUnpersisted) return;
    const { entries } = (await this.urgent("get_entries", {})) as { entries: object[] };
    this.sessions.noteEntries(entries);
  }

  // --- hooks -------------------------------------------------------------------------------------------------------------

  private async answer(id: number | string, name: string, payload: unknown): Promise<void> {
    const { life } = this;
    const handler = this.options.hooks?.[name as keyof Hooks] as HookHandler<keyof Hooks> | undefined;
    const controller = new AbortController();
    this.asked.set(id, controller);
    const context: HookContext = {
      signal: controller.signal,
      request: (read, ...[params]) => {
        const meta = { ...(params as { _meta?: object } | undefined)?._meta, hook: id };
        return this.urgent(read, { ...params, _meta: meta }) as Promise<never>;
      },
    };
    let reply: Pick<RpcMessage, "result" | "error">;
    try {
      if (!handler) throw new Error(`There is no handler for ${name}.`);
      reply = { result: (await handler(payload as never, context)) ?? {} };
    } catch (error) {
      reply = { error: { code: -32603, message: error instanceof Error ? error.message : String(error) } };
    }
    if (this.asked.get(id) === controller) this.asked.delete(id);
    if (this.life === life) life?.wire.send({ id, ...reply });
  }
}

function mayBeRepeated({ name }: Pending): boolean {
  const repetition = repetitions[name];
  return repetition === "repeatable" || repetition === "entries" || repetition === "session";
}

/**
 * Returns whether nothing may be sent after a command before its answer. What it does may leave no key, and then it must
 * not be repeated after what came later: the leaf of `branch`, the current session of `switch_session`.
 */
function isAlone(name: string): boolean {
  const repetition = repetitions[name];
  if (repetition === "entries") return name === "branch";
  return repetition !== "repeatable" || CHANGES_WHAT_IS_OPEN.has(name);
}

const CHANGES_WHAT_IS_OPEN: ReadonlySet<string> = new Set(["switch_session", "open_session", "close_session"]);

/** Returns how many entries a write may leave: it is known for `append`, and never more than a few for others. */
function countOf(params: object): number {
  const { entries } = params as { entries?: unknown };
  return Array.isArray(entries) ? entries.length : 4;
}
