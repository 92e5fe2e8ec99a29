/** The client: requests, events and hooks over a server that may be replaced under it. */

import { randomUUID } from "node:crypto";
import { call, EventHub } from "./event-hub.ts";
import { cancelled, connectionClosed, named, outcomeUnknown, RequestFailure, withdrawnTooLate } from "./failure.ts";
import type { RpcMessage } from "./message-stream.ts";
import { OpenSessions } from "./open-sessions.ts";
import type { Commands, Events } from "./protocol.ts";
import { Questions } from "./questions.ts";
import { repetitions } from "./repetitions.ts";
import { countOf, isKept, isRead, isUnknownAfter, mayBeRepeated } from "./sending-again.ts";
import type { ServerProcess } from "./server-process.ts";
import type {
  Arguments,
  ClientOptions,
  PagedCommand,
  ProgressReport,
  RequestOptions,
  Restart,
  State,
} from "./types.ts";
import { type Pending, Unanswered, Waiting } from "./unanswered.ts";

/** Starts a server after the one before died. Returns nothing when there is to be no other. */
export type Revive = (sessions: OpenSessions, deaths: number) => Promise<ServerProcess> | null;

/** Servers that may die over one request, or in a row without an answer, before it is given up. */
const MOST_DEATHS = 5;

/** Milliseconds of silence after which a closing server is ended. */
const MOST_SILENCE = 60_000;

export class Client {
  private readonly options: ClientOptions;
  private readonly revive: Revive | null;
  private readonly sessions = new OpenSessions();
  private life: ServerProcess | null = null;
  /** True once the present server has been brought to the state of the one before. */
  private isReady = false;
  /** True until the present server dies. */
  private isAlive = false;
  private readonly queue = new Waiting();
  private readonly sent = new Unanswered();
  private lastId = 0;
  private readonly heard = new EventHub();
  private readonly questions: Questions;
  private readonly restartHandlers = new Set<(restart: Restart) => void>();
  private deaths = 0;
  private closing: Promise<void> | null = null;
  /** Runs out when a server that is being closed says nothing. */
  private patience: NodeJS.Timeout | undefined;
  /** Undefined until the server has introduced itself. */
  private firstState: State | null | undefined;
  private lastWords = "";
  private isOver = false;
  /** True once the server has agreed to end. */
  private isShutDown = false;
  /** The latest question about a session that is not on disk yet. */
  private keeping: Promise<void> = Promise.resolve();

  /** See `connect` and `spawnServer`. */
  constructor(options: ClientOptions, revive: Revive | null) {
    this.options = options;
    this.revive = revive;
    this.questions = new Questions(
      options.hooks,
      (name, params, given) => this.enqueue(name, params, given, true) as Promise<never>,
    );
  }

  /** The state at the start; null when no session could be opened. */
  get state(): State | null {
    return this.firstState ?? null;
  }

  /** Connects to a server and introduces itself. Throws what the server refused, or connection_closed. */
  async start(life: ServerProcess): Promise<this> {
    this.live(life);
    try {
      const state = await named("initialize", this.introduce());
      await this.keepUnpersisted();
      this.firstState = state;
    } catch (error) {
      this.endAll();
      throw error;
    }
    this.isReady = true;
    return this;
  }

  /**
   * Sends a request. With a server that can be replaced, a write gets an idempotency key unless it has one, and is sent
   * again when the server died before it answered. Throws RequestFailure: the failures of the command, `outcome_unknown`
   * when the server died and the command cannot be sent again, `connection_closed` when it was not done.
   */
  request<N extends keyof Commands>(name: N, ...[params, options]: Arguments<N>): Promise<Commands[N]["result"]> {
    return named(name, this.enqueue(name, params ?? {}, options ?? {}, false) as Promise<Commands[N]["result"]>);
  }

  /** Yields the pages of a command, one after the other, until there is no more. */
  async *pages<N extends PagedCommand>(
    name: N,
    ...[params, options]: Arguments<N>
  ): AsyncGenerator<Commands[N]["result"], void, undefined> {
    let cursor = (params as { cursor?: string } | undefined)?.cursor;
    do {
      const asked = cursor === undefined ? (params ?? {}) : { ...params, cursor };
      const page = (await named(name, this.enqueue(name, asked, options ?? {}, false))) as { nextCursor?: string };
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

  /**
   * Lets the server answer its pending requests, shuts it down cleanly, and waits for its end. Hooks are not answered
   * any more: an action that waits for one is not done. A server that is silent for a minute is ended.
   */
  close(): Promise<void> {
    this.closing ??= this.shutDown();
    return this.closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private async shutDown(): Promise<void> {
    this.questions.close();
    if (!this.isOver) {
      this.patience = setInterval(() => this.life?.kill(), MOST_SILENCE);
      await this.enqueue("shutdown", {}, {}, false).catch(() => {});
      clearInterval(this.patience);
      this.patience = undefined;
      this.life?.wire.send({ method: "exit" });
      this.life?.end();
    }
    await this.life?.gone;
  }

  // --- a server's life -------------------------------------------------------------------------------------------------

  private live(life: ServerProcess): void {
    this.life = life;
    this.isAlive = true;
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
    const { clientInfo, events, maxReplyBytes, leaf } = this.options;
    const { head = this.firstState?.head } = this.options;
    const hooks = this.questions.names.map((name) => ({ name }));
    const capabilities = { hooks, ...(events ? { events: [...events] } : {}) };
    const introduction = { clientInfo, maxReplyBytes, leaf, head, capabilities };
    const { state } = (await this.urgent("initialize", introduction)) as { state: State | null };
    this.sessions.noteState(state);
    return state;
  }

  /** Puts another server in the place of one that died, or gives up. */
  private async succeed(lastWords: string): Promise<void> {
    this.questions.withdrawAll();
    this.isReady = false;
    this.isAlive = false;
    this.lastWords = lastWords;
    this.deaths++;
    this.sortOut();
    const isEnding = this.isShutDown || (this.closing && this.queue.every(({ name }) => name === "shutdown"));
    const isHopeless = this.firstState === undefined || this.deaths > MOST_DEATHS || !this.sessions.canBeReopened;
    const coming = this.isOver || isEnding || isHopeless ? null : this.revive?.(this.sessions, this.deaths);
    if (!coming) return this.endAll();
    let life: ServerProcess;
    try {
      life = await coming;
    } catch (error) {
      return this.endAll(error as Error);
    }
    try {
      this.live(life);
      const state = await this.restore();
      this.isReady = true;
      for (const handler of [...this.restartHandlers]) call(handler, { reason: lastWords, state });
      this.pump();
    } catch (error) {
      // When this server died too, its own end has taken care of the rest.
      if (!(error instanceof RequestFailure) || error.name !== "connection_closed") this.endAll(error as Error);
    }
  }

  /** Brings a new server to where the one before was. Returns the state of its session. */
  private async restore(): Promise<State | null> {
    const state = await this.introduce();
    const steps = this.sessions.stepsAfter(state);
    for (const { name, params } of steps) await this.goStep(name, params);
    await this.keepUnpersisted();
    if (this.sessions.currentId === null) return null;
    return steps.length === 0 ? state : ((await this.urgent("get_state", {})) as State);
  }

  /** Does a step. A session other than the current one that cannot be opened again is no reason to give up. */
  private async goStep(name: keyof Commands, params: object): Promise<void> {
    const isNeeded = name !== "open_session" || "sessionId" in params;
    try {
      await this.urgent(name, params);
    } catch (error) {
      if (isNeeded || (error as RequestFailure).name === "connection_closed") throw error;
    }
  }

  /** Puts requests that may be sent again back in front of the queue, and fails the others that were sent. */
  private sortOut(): void {
    const again: Pending[] = [];
    const sent = this.sent.takeAll();
    const next = sent.find(({ isUrgent }) => !isUrgent);
    if (next) next.blame++;
    for (const pending of sent) {
      const { name, isUrgent } = pending;
      pending.isAgain = true;
      if (isUrgent) pending.reject(connectionClosed(this.lastWords));
      else if (this.revive && !pending.isCancelled && pending.blame < MOST_DEATHS && mayBeRepeated(name))
        again.push(pending);
      else pending.reject(this.failureAtTheEnd(pending));
    }
    this.queue.putFirst(again);
  }

  private endAll(error?: Error): void {
    this.isOver = true;
    this.life?.end();
    if (error) this.lastWords += ` Another could not take its place: ${error.message}`;
    for (const pending of this.queue.takeAll()) {
      if (pending.name === "shutdown") pending.resolve(null);
      else pending.reject(this.failureAtTheEnd(pending, error));
    }
    this.heard.end();
  }

  /** Returns the failure of a request that no server will answer. */
  private failureAtTheEnd(pending: Pending, cause?: Error): RequestFailure {
    return mayBeDone(pending) ? outcomeUnknown(pending.name, cause) : connectionClosed(this.lastWords, cause);
  }

  // --- requests ----------------------------------------------------------------------------------------------------------

  private enqueue(name: string, params: object, options: RequestOptions, isUrgent: boolean): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const isClosed = isUrgent ? !this.isAlive : this.closing !== null;
      if (this.isOver || isClosed) return reject(connectionClosed(this.lastWords));
      const { signal, onProgress } = options;
      if (signal?.aborted) return reject(cancelled());
      const id = ++this.lastId;
      const completed = this.completed(id, name, params as Pending["params"], options);
      const cancel = (): void => this.cancel(pending);
      const pending: Pending = {
        id,
        name,
        params: completed,
        text: JSON.stringify({ jsonrpc: "2.0", id, method: name, params: completed }),
        onProgress,
        isUrgent,
        entryCount: countOf(name, params),
        resolve(result) {
          signal?.removeEventListener("abort", cancel);
          if (signal?.aborted) reject(withdrawnTooLate(name));
          else resolve(result);
        },
        reject(error) {
          signal?.removeEventListener("abort", cancel);
          reject(error);
        },
        isAgain: false,
        blame: 0,
        isCancelled: false,
      };
      signal?.addEventListener("abort", cancel, { once: true });
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
    return {
      ...params,
      ...(this.revive && isKept(name) && params["idempotencyKey"] === undefined
        ? { idempotencyKey: randomUUID() }
        : {}),
      ...(onProgress ? { _meta: { ...(params["_meta"] as object | undefined), progressToken: id } } : {}),
    };
  }

  /** Sends what may be sent, in the order of the calls. */
  private pump(): void {
    for (let next = this.queue.first; this.isReady && next && this.mayBeSent(next); next = this.queue.first) {
      this.queue.shift();
      this.send(next);
    }
  }

  private mayBeSent(pending: Pending): boolean {
    if (this.sent.size === 0) return true;
    // A request sent again after it would start the server again.
    if (this.life?.wire.isFull || pending.name === "shutdown") return false;
    return !this.revive || this.sent.hasCapacityFor(pending);
  }

  private send(pending: Pending): void {
    this.sent.add(pending);
    this.life?.wire.sendText(pending.text);
  }

  private cancel(pending: Pending): void {
    pending.isCancelled = true;
    if (this.queue.remove(pending)) {
      pending.reject(mayBeDone(pending) ? outcomeUnknown(pending.name) : cancelled());
      this.pump();
    } else if (this.sent.get(pending.id)) {
      this.life?.wire.send({ method: "$/cancelRequest", params: { id: pending.id } });
      if (isRead(pending.name)) pending.reject(cancelled());
    }
  }

  // --- messages ----------------------------------------------------------------------------------------------------------

  private receive(message: RpcMessage): void {
    const { id, method, params } = message;
    this.patience?.refresh();
    if (method === undefined) this.answered(message);
    else if (id !== undefined && id !== null) void this.answer(id, method, params);
    else if (method === "$/cancelRequest") this.questions.withdraw((params as { id: number | string } | undefined)?.id);
    else if (method === "$/progress") this.progressed((params ?? {}) as { token?: number });
    else this.heard.notify(method, params);
  }

  private progressed({ token, value }: { token?: number; value?: ProgressReport & { kind?: string } }): void {
    const { kind: _, ...progress } = value ?? {};
    const { onProgress } = this.sent.get(token as number) ?? {};
    if (onProgress) call(onProgress, progress as ProgressReport);
  }

  /** Answers a hook. Hooks of our own requests to a new server were agreed to before. */
  private async answer(id: number | string, name: string, payload: unknown): Promise<void> {
    const { life } = this;
    if (!this.isReady) return life?.wire.send({ id, result: {} });
    const text = await this.questions.answer(id, name, payload);
    if (this.life === life) life?.wire.sendText(text);
  }

  private answered({ id, result, error }: RpcMessage): void {
    const pending = this.sent.get(id as number);
    if (pending === undefined) return;
    if (!pending.isUrgent) this.deaths = 0;
    if (error) {
      this.sent.delete(pending.id);
      pending.reject(this.failureOf(pending, error));
    } else void this.accept(pending, result);
    this.pump();
  }

  private failureOf({ name, isAgain }: Pending, error: NonNullable<RpcMessage["error"]>): RequestFailure {
    const failure = new RequestFailure(error.code, error.message, error.data);
    return isAgain && isUnknownAfter(failure.name, name) ? outcomeUnknown(name, failure) : failure;
  }

  /**
   * Resolves a request, once its effect on a session that is not on disk is known here. Until then it counts as not
   * answered.
   */
  private async accept(pending: Pending, result: unknown): Promise<void> {
    const { id, name, params, isUrgent } = pending;
    this.isShutDown ||= name === "shutdown" || name === "exit";
    // Our own requests bring a server to the noted state.
    const isNoted = this.revive !== null && !isUrgent;
    const isAnother = isNoted && this.sessions.note(name, params, result);
    const writes = repetitions[name] === "entries" || isAnother;
    try {
      if (isNoted && writes && this.sessions.isUnpersisted) await this.keepUnpersisted();
    } catch (error) {
      // The server died after its answer: the request was sorted out with those that were not answered.
      if ((error as RequestFailure).name === "connection_closed") return;
    }
    this.sent.delete(id);
    pending.resolve(result);
    this.pump();
  }

  /** Asks for what a session has that is not on disk yet, and was not asked for by an earlier answer. */
  private keepUnpersisted(): Promise<void> {
    const { life, keeping } = this;
    this.keeping = keeping
      .catch(() => {})
      .then(() => {
        // Another server is on its way to where this one was.
        if (this.life !== life) throw connectionClosed(this.lastWords);
        return this.askForUnpersisted();
      });
    return this.keeping;
  }

  private async askForUnpersisted(): Promise<void> {
    if (!this.revive || !this.sessions.isUnpersisted) return;
    this.sessions.noteState((await this.urgent("get_state", {})) as State);
    if (!this.sessions.isUnpersisted) return;
    const entries: object[] = [];
    let cursor: string | undefined;
    do {
      const page = (await this.urgent("get_entries", { cursor })) as { entries: object[]; nextCursor?: string };
      entries.push(...page.entries);
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    this.sessions.noteEntries(entries);
  }
}

/** Returns whether a server that died may have done it, and it matters. */
function mayBeDone({ name, isAgain }: Pending): boolean {
  return isAgain && repetitions[name] !== "repeatable";
}
