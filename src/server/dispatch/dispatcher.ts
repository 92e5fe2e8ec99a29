/**
 * Runs calls. Those of a session run strictly in the order of arrival: they are applied at once, acknowledged when
 * durable, and answered in order (ARCHITECTURE.md, "How an append goes").
 */

import { Failure, InvalidRequest } from "../../core/failure.ts";
import { holdsRaw } from "../../core/json/raw.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Log } from "../../core/ports/store.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import { tellForeign } from "../../handlers/shared/append.ts";
import type {
  ClientSettings,
  CommandContext,
  Introduction,
  Report,
  ServerFacts,
} from "../../handlers/shared/command.ts";
import type { EventName, EventPayload, Replacement } from "../../handlers/shared/events.ts";
import type { HookAnswer, HookName } from "../../handlers/shared/hooks.ts";
import { type Call, type Outcome, textOfParam } from "../connection/call.ts";
import type { DialectName, Pieces } from "../connection/dialect.ts";
import type { Hooks, Question } from "../connection/hooks.ts";
import { eventOf, type ToldEvent } from "../connection/host.ts";
import type { OutgoingMessage } from "../connection/output.ts";

/** A reply that was made in advance and leaves later; it needs nothing of a session any more. */
export interface Prepared {
  /** Undefined when the call gets no reply. */
  readonly message: OutgoingMessage | undefined;
  /** Bytes of the frame that it would have alone, where the host limits replies; else 0. */
  readonly size: number;
  /** Bytes of it that are in memory. */
  readonly held: number;
}

export type Renewed = () => Outcome | undefined;

/**
 * The receiver of finished calls. Replies and events read stored entries while they are put together. An error in that
 * becomes the reply, or an event with fewer members; none of these methods throws it.
 */
export interface Sink {
  readonly hasRoom: boolean;
  /**
   * Sends a reply. `renewed` returns the outcome to use instead, when putting the reply together showed this one to be
   * wrong.
   */
  reply(call: Call, outcome: Outcome, renewed?: Renewed): void;
  /** Makes a reply that leaves later, as part of a message that has `taken` bytes already. */
  prepare(call: Call, outcome: Outcome, taken: number, renewed?: Renewed): Prepared;
  send(prepared: Prepared): void;
  /** Sends the reply to a message from which no call could be made. */
  refuse(reply: Pieces): void;
  batch(replies: readonly Prepared[], refusals: readonly Pieces[]): void;
  event(event: ToldEvent): void;
  /** Reports at once how far a command is; not called while the host does not keep up. */
  progress(token: string | number, done: number, total: number, more?: object): void;
  flush(): void;
}

export interface DispatchOptions {
  readonly workspace: Workspace;
  readonly sink: Sink;
  readonly server: ServerFacts;
  readonly dialect: () => DialectName;
  readonly maxReplyBytes: () => number | undefined;
  readonly sizeOf: (text: Uint8Array) => number;
  readonly hooks: Hooks;
  readonly introduce: (wishes: Introduction) => void;
  readonly shutDown: (how?: { atOnce: boolean }) => void;
}

/** Commands that decide themselves what they may do with a read-only session. */
const WRITES_WHERE_ALLOWED: ReadonlySet<string> = new Set([
  "branch",
  "migrate_session",
  "repair_session",
  "rollback_migration",
]);

/** Commands other than reads whose results describe sessions; running them again changes nothing. */
const TELLS_OF_SESSIONS: ReadonlySet<string> = new Set(["initialize", "list_open_sessions", "open_session"]);

/** Sessions that may be open at a time, including the current one. */
const MOST_OPEN = 64;

/** Milliseconds without a command after which a session releases its lock, so that other programs can write. */
const REST_AFTER = 5 * 60_000;

/** Results of keyed commands that are remembered for repeats; the oldest are forgotten first. */
const REMEMBERED_RESULTS = 10_000;

/** One request of a batch, or the reply to an invalid one. */
export type BatchItem = { readonly call: Call } | { readonly refusal: Pieces };

interface CallSource {
  readonly session: Session;
  readonly log: Log;
  readonly losses: number;
}

/** An entry in a lane's output queue: a reply, a refusal, a batch, or events. */
interface Slot {
  readonly call?: Call;
  readonly refusal?: Pieces;
  readonly batch?: BatchReply;
  outcome: Outcome;
  /** For a read: the log whose positions its result names, with the losses that were known then. */
  readFrom?: CallSource;
  /** The reply, if it was made in advance. */
  prepared?: Prepared;
  events: ToldEvent[];
  /** Number of the lane's mutations that must be durable before this may leave. */
  after: number;
}

/** A slot that holds a reply. */
type Reply = Slot & { readonly call: Call };

function isReply(slot: Slot): slot is Reply {
  return slot.call !== undefined;
}

function sourceOf(session: Session | null): CallSource | undefined {
  return session ? { session, log: session.log, losses: session.log.nodes.losses } : undefined;
}

/** Returns whether a session has nothing left to make durable. If the disk cannot tell, a commit will. */
function isSettled(session: Session | null): boolean {
  try {
    return session?.settled ?? true;
  } catch {
    return false;
  }
}

/** A batch, whose replies leave as one array when the last of them is ready. */
class BatchReply {
  readonly replies: { call: Call; prepared: Prepared }[] = [];
  /** Bytes of the array so far. */
  size = 2;
  readonly refusals: Pieces[] = [];
  events: ToldEvent[] = [];
  waiting = 0;
  sent = false;
}

/** An ordered sequence of calls and their replies. */
class Lane {
  /** The session it belongs to; null for the current session, whichever that is, and for calls without a session. */
  readonly sessionId: string | null;
  /** The call that is being run while others wait for it. */
  running: Call | undefined;
  /** The question to the host that the call waits for, and the request's id as JSON text. */
  question: Question | undefined;
  questionId: string | undefined;
  readonly calls: { call: Call; readonly batch?: BatchReply }[] = [];
  readonly slots: Slot[] = [];
  applied = 0;
  durable = 0;
  committing: Promise<void> | undefined;
  /** Time of the latest call, in milliseconds. */
  touched = 0;
  /** The session that was checked for foreign writes since the input chunk began. */
  looked: Session | undefined;

  constructor(sessionId: string | null) {
    this.sessionId = sessionId;
  }

  get busy(): boolean {
    return this.running !== undefined;
  }

  get pending(): number {
    return this.calls.length + this.slots.length;
  }

  get idle(): boolean {
    return !this.busy && this.pending === 0;
  }
}

/** Params that commands which change a session take besides their own. */
interface KeyedParams {
  readonly expectedLeafId?: string | null;
  readonly idempotencyKey?: string;
}

/** Sentinel for internal work (closing, unlocking) that occupies a lane. */
const OWN_WORK = { name: "" } as Call;

export class Dispatcher {
  private readonly options: DispatchOptions;
  private readonly workspace: Workspace;
  private readonly sink: Sink;
  /** The lane of the current session, of every call without a session, and of malformed messages. */
  private readonly main = new Lane(null);
  /** The lane of commands that touch no session. */
  private readonly aside = new Lane(null);
  /** The lanes of the other open sessions, by session id. */
  private readonly beside = new Map<string, Lane>();
  private readonly settings: ClientSettings = {
    steeringMode: "one-at-a-time",
    followUpMode: "one-at-a-time",
    autoCompactionEnabled: false,
    autoRetryEnabled: false,
  };
  private readonly results = new Map<string, unknown>();
  private readonly ids = new Set<string>();
  private whenIdle: (() => void)[] = [];
  private laneWaiters: { lane: Lane; resolve: () => void }[] = [];
  /** Whether `shutdown` was requested; then nothing new is run. */
  ending = false;
  /** Whether `initialize` has been run. */
  introduced = false;
  private started = false;
  private startEvent: ToldEvent | null | undefined;

  constructor(options: DispatchOptions) {
    this.options = options;
    this.workspace = options.workspace;
    this.sink = options.sink;
  }

  /** Number of calls and replies that are not out yet; input is paused when there are too many. */
  get pending(): number {
    let pending = this.main.pending + this.aside.pending;
    for (const lane of this.beside.values()) pending += lane.pending;
    return pending;
  }

  private *lanes(): Generator<Lane> {
    yield this.main;
    yield this.aside;
    yield* this.beside.values();
  }

  private get allIdle(): boolean {
    for (const lane of this.lanes()) if (!lane.idle) return false;
    return true;
  }

  /** Returns the session that the calls of a lane change. */
  private sessionOf(lane: Lane): Session | null {
    if (lane === this.aside) return null;
    if (lane.sessionId === null) return this.workspace.current;
    return this.workspace.sessions.find(({ id }) => id === lane.sessionId) ?? null;
  }

  private laneOf(call: Call): Lane {
    const { command, params } = call;
    const named = this.sessionAt(call);
    if (named === null || (named === undefined && command.effect === "server")) return this.aside;
    const { sessionId } = named ? { sessionId: named.id } : ((params ?? {}) as { sessionId?: string });
    if (sessionId === undefined || command.effect === "replace" || sessionId === this.workspace.current?.id)
      return this.main;
    const lane = this.beside.get(sessionId);
    if (lane || !this.workspace.knows(sessionId)) return lane ?? this.main;
    const made = new Lane(sessionId);
    this.beside.set(sessionId, made);
    return made;
  }

  /**
   * Returns the open session that is named by a call whose command takes any session; null when that session is not
   * open here, undefined when the call names none.
   */
  sessionAt({ command, params }: Call): Session | null | undefined {
    if (!command.ofAny) return undefined;
    const { sessionPath, sessionId } = (params ?? {}) as { sessionPath?: unknown; sessionId?: unknown };
    if (typeof sessionPath !== "string") {
      if (command.effect !== "server" || typeof sessionId !== "string") return undefined;
      return this.workspace.sessions.find(({ id }) => id === sessionId) ?? null;
    }
    try {
      return this.workspace.openAt(sessionPath) ?? null;
    } catch {
      // The path may not be accessed, which the command reports itself.
      return null;
    }
  }

  /** Returns whether a call with this id is being worked on. */
  inFlight(idText: string): boolean {
    return this.ids.has(idText);
  }

  submit(call: Call): void {
    this.enqueue(call);
  }

  refuse(refusal: Pieces): void {
    const { main } = this;
    main.slots.push({ refusal, outcome: { result: null }, events: [], after: main.applied });
    this.flush(main);
  }

  /**
   * Cancels a call that has not been run yet, or that waits for the host's consent: it is not run, and fails with
   * `cancelled`. A call that has been run is applied whole, and its ordinary reply says so.
   */
  cancel(idText: string): void {
    for (const lane of this.lanes()) {
      if (lane.running?.idText === idText) lane.question?.cancel();
      const waiting = lane.calls.find(({ call }) => call.idText === idText);
      if (!waiting) continue;
      // The call keeps its place, so that its reply comes in its turn.
      waiting.call = { ...waiting.call, fault: new Failure("cancelled") };
      return;
    }
  }

  submitBatch(items: readonly BatchItem[]): void {
    const batch = new BatchReply();
    batch.waiting = 1;
    for (const item of items) {
      if ("refusal" in item) batch.refusals.push(item.refusal);
      else {
        batch.waiting++;
        this.enqueue(item.call, batch);
      }
    }
    this.batchItemDone(batch);
    if (batch.waiting === 0) {
      this.main.slots.push({ batch, outcome: { result: null }, events: [], after: this.main.applied });
      this.flush(this.main);
    }
  }

  /** Ends an input chunk: everything applied in it becomes durable together. */
  settle(): void {
    // Replies that are ready leave first, because a commit may wait for the disk at once.
    this.sink.flush();
    for (const lane of this.lanes()) {
      lane.looked = undefined;
      if (lane.durable < lane.applied) this.commit(lane);
    }
  }

  /** Continues after the reader has room again. */
  resume(): void {
    for (const lane of this.lanes()) this.flush(lane);
    this.sink.flush();
  }

  /** Resolves when every call that was submitted has been answered. */
  idle(): Promise<void> {
    this.settle();
    if (this.allIdle) return Promise.resolve();
    return new Promise((resolve) => this.whenIdle.push(resolve));
  }

  /** Sends the event of the session that was opened at start; nothing but the reply to `initialize` precedes it. */
  start(): void {
    if (this.started) return;
    this.started = true;
    this.noteStart();
    if (this.startEvent) this.sink.event(this.startEvent);
  }

  /** Makes the event of the start, with the state before the first call changes it. */
  private noteStart(): void {
    if (this.startEvent !== undefined) return;
    const { current } = this.workspace;
    this.startEvent = current && eventOf(current, "session_start", { reason: "startup", sessionFile: current.file });
  }

  // --- running -------------------------------------------------------------------------------------------------

  private enqueue(call: Call, batch?: BatchReply): void {
    this.noteStart();
    if (call.idText !== undefined) this.ids.add(call.idText);
    const lane = this.laneOf(call);
    lane.touched = this.workspace.env.now();
    if (lane.questionId !== undefined && this.asksWhile(call, lane.questionId)) this.runNow(lane, call, batch);
    else if (lane.busy || lane.calls.length > 0) lane.calls.push({ call, batch });
    else this.run(lane, call, batch);
  }

  private run(lane: Lane, call: Call, batch?: BatchReply): void {
    if (lane === this.aside && this.sessionAt(call)) {
      // The session was opened since then, so the call must keep that session's order.
      this.enqueue(call, batch);
      return;
    }
    const events: ToldEvent[] = [];
    const readFrom = this.sourceFor(lane, call);
    let result: unknown;
    try {
      result = this.execute(lane, call, events);
    } catch (error) {
      this.finish(lane, call, batch, { error }, events);
      return;
    }
    if (!(result instanceof Promise)) {
      this.finish(lane, call, batch, { result }, events, readFrom);
      return;
    }
    lane.running = call;
    result
      .then(
        (value): Outcome => ({ result: value }),
        (error): Outcome => ({ error }),
      )
      .then((outcome) => {
        lane.running = undefined;
        this.finish(lane, call, batch, outcome, events);
        this.pump(lane);
        this.settle();
        this.wakeIdle();
      });
  }

  /** Returns whether a call is a read that the host makes while it is asked. It sees the session before the change. */
  private asksWhile(call: Call, questionId: string): boolean {
    const { _meta } = (call.params ?? {}) as { _meta?: { hook?: string | number } };
    return call.command.effect === "read" && _meta?.hook !== undefined && JSON.stringify(_meta.hook) === questionId;
  }

  /** Runs a read while its lane is busy with another call. */
  private runNow(lane: Lane, call: Call, batch?: BatchReply): void {
    const events: ToldEvent[] = [];
    const readFrom = this.sourceFor(lane, call);
    let outcome: Outcome;
    try {
      outcome = { result: this.execute(lane, call, events) };
    } catch (error) {
      outcome = { error };
    }
    this.finish(lane, call, batch, outcome, events, readFrom);
  }

  private sourceFor(lane: Lane, call: Call): CallSource | undefined {
    return call.command.effect === "read" ? sourceOf(this.sessionOf(lane)) : undefined;
  }

  /** Asks the host for its consent; the lane waits meanwhile. */
  async ask(lane: Lane, name: HookName, payload: Readonly<Record<string, unknown>>): Promise<HookAnswer> {
    const question = this.options.hooks.ask(name, payload, (id) => {
      lane.questionId = id;
    });
    lane.question = question;
    try {
      return await question.answer;
    } finally {
      lane.question = undefined;
      lane.questionId = undefined;
    }
  }

  private pump(lane: Lane): void {
    while (!lane.busy) {
      const next = lane.calls.shift();
      if (!next) return;
      this.run(lane, next.call, next.batch);
    }
  }

  private execute(lane: Lane, call: Call, events: ToldEvent[]): unknown {
    if (call.fault !== undefined) throw call.fault;
    const { command } = call;
    if (this.ending && command.name !== "exit") throw new Failure("shutting_down");
    if (command.name === "initialize" && this.introduced)
      throw new InvalidRequest("initialize was answered already; it comes once.");
    const context = this.contextFor(lane, call, events);
    const elsewhere = this.sessionAt(call) === null;
    if (elsewhere || command.effect === "read" || command.effect === "server" || command.effect === "control")
      return command.run(context, call.params as never);
    if (command.effect === "close") return this.whenDurable(lane, () => command.run(context, call.params as never));
    if (command.effect === "write") return this.write(lane, call, context);
    const { expectedLeafId, idempotencyKey } = call.params as KeyedParams;
    return this.whenDurable(lane, async () => {
      if (idempotencyKey !== undefined) {
        const known = await this.madeBefore(context, call, idempotencyKey);
        if (known !== undefined) return known;
      }
      if (expectedLeafId !== undefined) context.session.guard(expectedLeafId, true);
      return this.remembered(call, await command.run(context, call.params as never));
    });
  }

  private write(lane: Lane, call: Call, context: CommandContext): unknown {
    const { command } = call;
    const { expectedLeafId, idempotencyKey } = call.params as KeyedParams;
    if (idempotencyKey !== undefined) {
      const known = this.knownResult(context, call, idempotencyKey);
      if (known !== undefined) return known;
    }
    const { session } = context;
    // One check serves a whole input chunk; the append itself finds what others write meanwhile.
    if (lane.looked !== session) this.takeForeign(lane, session, true);
    lane.looked = session;
    session.guard(expectedLeafId, WRITES_WHERE_ALLOWED.has(command.name));
    return this.remembered(call, command.run(context, call.params as never));
  }

  /** Returns the result, and remembers it for a repeat of the call with its key. */
  private remembered(call: Call, result: unknown): unknown {
    const { idempotencyKey } = call.params as KeyedParams;
    if (idempotencyKey === undefined) return result;
    if (result instanceof Promise) return result.then((value) => this.remembered(call, value));
    // A vetoed call did nothing, and may be made again.
    const vetoed = (result as { cancelled?: boolean } | null)?.cancelled === true;
    if (!vetoed) this.remember(call, idempotencyKey, result);
    return result;
  }

  /**
   * Reads what other programs wrote, and notifies the host of it before anything else leaves. Throws what
   * Session.refresh throws.
   */
  private takeForeign(lane: Lane, session: Session, toWrite = false): void {
    const foreign = toWrite ? session.refreshToWrite() : session.refresh();
    if (!foreign) return;
    const events: ToldEvent[] = [];
    tellForeign(session, foreign, (name, payload) => events.push(eventOf(session, name, payload)));
    lane.slots.push({ outcome: { result: null }, events, after: lane.applied });
  }

  /** Polls idle sessions for entries of other programs. */
  follow(): void {
    // A reply that is being read still refers to bytes of a file as it is now.
    if (this.ending || !this.sink.hasRoom) return;
    for (const session of this.workspace.sessions) {
      const lane = this.laneFor(session);
      if (!lane.idle) continue;
      try {
        this.takeForeign(lane, session);
      } catch {
        // A missing file is reported when a command wants to write to it.
      }
      this.flush(lane);
    }
    this.sink.flush();
  }

  private laneFor(session: Session): Lane {
    if (session === this.workspace.current) return this.main;
    const lane = this.beside.get(session.id) ?? new Lane(session.id);
    this.beside.set(session.id, lane);
    return lane;
  }

  /**
   * Releases the locks of sessions that were not used for a while, so that other programs can write. Closes the least
   * recently used sessions beyond `MOST_OPEN`; they open again when they are named.
   */
  tidy(): void {
    if (!this.sink.hasRoom) return;
    const now = this.workspace.env.now();
    const { sessions } = this.workspace;
    for (const [id, lane] of this.beside) if (lane.idle && !this.workspace.knows(id)) this.beside.delete(id);
    for (const [index, session] of sessions.entries()) {
      const lane = this.laneFor(session);
      if (!lane.idle || lane.durable < lane.applied) continue;
      const beside = session !== this.workspace.current;
      const surplus = beside && index <= sessions.length - MOST_OPEN;
      if (surplus)
        this.inLane(
          lane,
          () => this.workspace.rest(session),
          () => this.beside.delete(session.id),
        );
      else if (now - lane.touched >= REST_AFTER && session.log.persisted && !session.resting)
        this.inLane(lane, () => session.rest());
    }
  }

  /** Runs internal work in a lane, whose calls wait for it. */
  private inLane(lane: Lane, run: () => Promise<void>, done: () => void = () => {}): void {
    lane.running = OWN_WORK;
    run()
      .catch(() => {
        // The next command meets the same obstacle and reports it.
      })
      .then(() => {
        lane.running = undefined;
        if (lane.calls.length === 0) done();
        this.pump(lane);
        this.wakeIdle();
      });
  }

  /**
   * Runs something that closes the lane's session, once everything applied is durable and no reply needs the session.
   */
  private whenDurable(lane: Lane, run: () => unknown): unknown {
    const go = (): unknown => {
      this.renderWaiting(lane);
      return run();
    };
    if (lane.durable >= lane.applied) return go();
    this.commit(lane);
    // Changes that were applied during an earlier commit need another one.
    return Promise.resolve(lane.committing).then(() => this.whenDurable(lane, run));
  }

  /**
   * Makes the replies that wait for their reader, because they still refer to bytes of the session that is about to be
   * closed.
   */
  private renderWaiting(lane: Lane): void {
    for (const slot of lane.slots) if (isReply(slot)) this.prepare(lane, slot);
  }

  private prepare(lane: Lane, slot: Reply): Prepared {
    if (slot.prepared) return slot.prepared;
    const outcome = this.asOf(lane, slot);
    slot.prepared = this.sink.prepare(slot.call, outcome, slot.batch?.size ?? 0, this.renewal(lane, slot));
    if (slot.batch) slot.batch.size += slot.prepared.size + 1;
    return slot.prepared;
  }

  /** Returns the outcome that holds now. */
  private asOf(lane: Lane, slot: Reply): Outcome {
    return this.renewed(lane, slot) ?? slot.outcome;
  }

  /**
   * Runs a read again when its result does not hold any more: it names positions in a log that was replaced since, or
   * an entry that it describes was found to be unreadable in the meantime. Returns undefined when the result holds.
   */
  private renewed(lane: Lane, slot: Reply): Outcome | undefined {
    const { readFrom, outcome } = slot;
    if (!readFrom || "error" in outcome) return undefined;
    const { log } = readFrom.session;
    const isReplaced = log !== readFrom.log && holdsRaw(outcome.result);
    if (!isReplaced && readFrom.log.nodes.losses === readFrom.losses) return undefined;
    slot.readFrom = sourceOf(readFrom.session);
    slot.outcome = this.again(lane, slot);
    return slot.outcome;
  }

  /** Returns the renewal of a reply, if putting it together reads entries; only that can show a result to be wrong. */
  private renewal(lane: Lane, slot: Reply): Renewed | undefined {
    const { readFrom, outcome } = slot;
    return readFrom && "result" in outcome && holdsRaw(outcome.result) ? () => this.renewed(lane, slot) : undefined;
  }

  /** Runs the read of a slot again. */
  private again(lane: Lane, slot: Reply): Outcome {
    const { call } = slot;
    try {
      const result = call.command.run(this.contextFor(lane, call, []), call.params as never);
      if (!(result instanceof Promise)) return this.shaped(call, { result });
      // It has read files rather than the session, and its result is still what it found.
      result.catch(() => {});
      return slot.outcome;
    } catch (error) {
      return { error };
    }
  }

  /** Returns the outcome in the shape of the host's dialect. */
  private shaped(call: Call, outcome: Outcome): Outcome {
    const { pi } = call.command;
    if (!pi || "error" in outcome || this.options.dialect() !== "pi") return outcome;
    try {
      return { result: pi(this.contextFor(this.main, call, []), outcome.result as never) };
    } catch (error) {
      return { error };
    }
  }

  private finish(
    lane: Lane,
    call: Call,
    batch: BatchReply | undefined,
    ran: Outcome,
    events: ToldEvent[],
    readFrom?: CallSource,
  ): void {
    const outcome = this.shaped(call, ran);
    const failed = "error" in outcome;
    const session = this.sessionOf(lane);
    // A failed write, too, may have left something to make durable: the state that it restored.
    if (call.command.effect === "write") {
      const settled = isSettled(session);
      if (!failed || !settled) {
        lane.applied++;
        if (settled) lane.durable = lane.applied;
      }
    }
    lane.slots.push({ call, batch, outcome, readFrom, events: failed ? [] : events, after: lane.applied });
    this.flush(lane);
  }

  private knownResult(context: CommandContext, call: Call, key: string): unknown {
    const { command } = call;
    const remembered = this.results.get(this.resultKey(call, key));
    if (remembered !== undefined) return remembered;
    if (!command.repeat) return undefined;
    const entryIds = context.session.repeated(key)?.ids;
    return entryIds && command.repeat(context, entryIds, call.params as never);
  }

  /**
   * Makes the session of an earlier request with this key the current one again, as the earlier reply said, instead of
   * making another. Returns the result, or undefined when the session is missing.
   */
  private async madeBefore(context: CommandContext, call: Call, key: string): Promise<unknown> {
    const { command, params } = call;
    if (!command.recall) return undefined;
    const { cwd } = params as { cwd?: string };
    const made = this.workspace.made(key, [cwd, this.workspace.current?.cwd, this.workspace.cwd]);
    if (!made) return undefined;
    const remembered = this.results.get(this.resultKey(call, key)) as { sessionId?: string } | undefined;
    const result = remembered?.sessionId === made.id ? remembered : command.recall(context, made, params as never);
    if (made !== this.workspace.current) await context.replace(made, { reason: "resume" });
    return result;
  }

  /**
   * Returns the key of a remembered result. It belongs to the session, or to the process if the command leaves the
   * session.
   */
  private resultKey({ command, params }: Call, key: string): string {
    const { sessionId } = params as { sessionId?: string };
    const session = command.effect === "write" ? (sessionId ?? this.workspace.current?.id ?? "") : "";
    return `${session}\n${command.name}\n${key}`;
  }

  private remember(call: Call, key: string, result: unknown): void {
    this.results.set(this.resultKey(call, key), result);
    if (this.results.size <= REMEMBERED_RESULTS) return;
    for (const oldest of this.results.keys()) {
      this.results.delete(oldest);
      break;
    }
  }

  private contextFor(lane: Lane, call: Call, events: ToldEvent[]): CommandContext {
    return new CallContext(this, this.options, this.settings, lane, call, events);
  }

  /** Makes another session the current one, and adds the events about that to `events`. */
  async replace(next: Session, replacement: Replacement, events: ToldEvent[]): Promise<void> {
    const { reason, fork } = replacement;
    await this.makeMain(next.id);
    const before = this.workspace.current;
    const left = before && eventOf(before, "session_shutdown", { reason, targetSessionFile: next.file });
    await this.workspace.replace(next);
    if (left) events.push(left);
    const previousSessionFile = before?.file ?? null;
    if (fork) events.push(eventOf(next, "session_fork", { ...fork, sessionFile: next.file, previousSessionFile }));
    events.push(
      eventOf(next, "session_start", { reason, sessionFile: next.file, ...(before ? { previousSessionFile } : {}) }),
    );
  }

  /** Waits until a session that becomes the current one has finished what is under way in its own lane. */
  private async makeMain(sessionId: string): Promise<void> {
    const lane = this.beside.get(sessionId);
    if (!lane) return;
    while (!lane.idle) {
      this.settle();
      await new Promise<void>((resolve) => this.whenIdleOf(lane, resolve));
    }
    this.beside.delete(sessionId);
  }

  private whenIdleOf(lane: Lane, resolve: () => void): void {
    if (lane.idle) resolve();
    else this.laneWaiters.push({ lane, resolve });
  }

  // --- durability ----------------------------------------------------------------------------------------------

  private commit(lane: Lane): void {
    if (lane.committing) return;
    const session = this.sessionOf(lane);
    const mark = lane.applied;
    if (!session) {
      lane.durable = mark;
      return;
    }
    lane.committing = session
      .commit()
      .then(
        () => {
          lane.durable = mark;
        },
        (error) => {
          this.undo(lane, error);
          return session.keepPosition();
        },
      )
      // A position that could not be recorded is recorded with the next commit.
      .catch(() => {})
      .then(() => {
        lane.committing = undefined;
        this.flush(lane);
        this.settle();
        this.wakeIdle();
      });
  }

  /** Handles a failed commit, after which the session is as it was: writes that waited fail, reads are run again. */
  private undo(lane: Lane, error: unknown): void {
    for (const slot of lane.slots) {
      if (slot.after <= lane.durable || !slot.call) continue;
      slot.events = [];
      if (slot.call.command.effect === "write") {
        // An invalid request is still invalid.
        if ("error" in slot.outcome && !(slot.outcome.error instanceof Failure)) continue;
        slot.outcome = { error };
        this.forget(slot.call);
      } else if (
        (slot.call.command.effect === "read" || TELLS_OF_SESSIONS.has(slot.call.command.name)) &&
        !("error" in slot.outcome)
      ) {
        slot.outcome = this.again(lane, slot as Reply);
        slot.readFrom = sourceOf(this.sessionOf(lane));
      }
    }
    lane.durable = lane.applied;
  }

  private forget(call: Call): void {
    const { idempotencyKey } = (call.params ?? {}) as { idempotencyKey?: string };
    if (idempotencyKey !== undefined) this.results.delete(this.resultKey(call, idempotencyKey));
  }

  // --- replies -------------------------------------------------------------------------------------------------

  private flush(lane: Lane): void {
    while (lane.slots.length > 0 && this.sink.hasRoom) {
      const slot = lane.slots[0];
      if (slot.after > lane.durable) return;
      if (slot.batch && slot.call) {
        // One part of a batch is ready; the array leaves in the place of its last part.
        lane.slots.shift();
        slot.batch.replies.push({ call: slot.call, prepared: this.prepare(lane, slot as Reply) });
        slot.batch.events.push(...slot.events);
        this.batchItemDone(slot.batch);
        if (slot.batch.waiting === 0) this.sendBatch(slot.batch);
        continue;
      }
      lane.slots.shift();
      this.send(lane, slot);
    }
    this.wakeIdle();
  }

  private batchItemDone(batch: BatchReply): void {
    batch.waiting--;
  }

  private send(lane: Lane, slot: Slot): void {
    if (slot.refusal) this.sink.refuse(slot.refusal);
    else if (slot.batch) this.sendBatch(slot.batch);
    else if (!isReply(slot)) {
      this.start();
      for (const event of slot.events) this.sink.event(event);
      this.tellDamageOf(this.sessionOf(lane));
    } else {
      const { call } = slot;
      const introduces = call.command.name === "initialize";
      if (!introduces) this.start();
      if (call.idText !== undefined) this.ids.delete(call.idText);
      if (slot.prepared) this.sink.send(slot.prepared);
      else this.sink.reply(call, this.asOf(lane, slot), this.renewal(lane, slot));
      if (introduces) this.start();
      for (const event of slot.events) this.sink.event(event);
      this.tellDamage(call);
    }
  }

  /** Reports damage after a reply: stored entries are read while replies are put together, so it is found then. */
  private tellDamage(call: Call): void {
    const { sessionId } = (call.params ?? {}) as { sessionId?: string };
    const { current } = this.workspace;
    const isCurrent = sessionId === undefined || sessionId === current?.id;
    this.tellDamageOf((isCurrent ? null : this.workspace.sessions.find(({ id }) => id === sessionId)) ?? current);
  }

  private tellDamageOf(session: Session | null): void {
    if (session) this.tellUntold(session);
    const damage = session?.freshDamage() ?? [];
    if (session && damage.length > 0)
      this.sink.event(eventOf(session, "session_damage", { damage: damage.map((found) => ({ ...found })) }));
  }

  /** Notifies the host of foreign changes that a request found and could not report itself, because it failed. */
  private tellUntold(session: Session): void {
    try {
      tellForeign(session, session.freshForeign(), (name, payload) => this.sink.event(eventOf(session, name, payload)));
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      // The tree cannot be read for now; the next reply tries again.
    }
  }

  private sendBatch(batch: BatchReply): void {
    if (batch.sent) return;
    batch.sent = true;
    const introduces = batch.replies.some(({ call }) => call.command.name === "initialize");
    if (!introduces && batch.replies.length > 0) this.start();
    for (const { call } of batch.replies) if (call.idText !== undefined) this.ids.delete(call.idText);
    this.sink.batch(
      batch.replies.map(({ prepared }) => prepared),
      batch.refusals,
    );
    if (introduces) this.start();
    for (const event of batch.events) this.sink.event(event);
    for (const { call } of batch.replies) this.tellDamage(call);
  }

  private wakeIdle(): void {
    if (this.laneWaiters.length > 0) {
      const waiters = this.laneWaiters;
      this.laneWaiters = waiters.filter(({ lane }) => !lane.idle);
      for (const { lane, resolve } of waiters) if (lane.idle) resolve();
    }
    if (this.whenIdle.length === 0 || !this.allIdle) return;
    const woken = this.whenIdle;
    this.whenIdle = [];
    for (const wake of woken) wake();
  }
}

/** The server as one call sees it while it runs. */
class CallContext implements CommandContext {
  private readonly dispatcher: Dispatcher;
  private readonly options: DispatchOptions;
  private readonly lane: Lane;
  private readonly call: Call;
  private readonly events: ToldEvent[];
  readonly settings: ClientSettings;

  constructor(
    dispatcher: Dispatcher,
    options: DispatchOptions,
    settings: ClientSettings,
    lane: Lane,
    call: Call,
    events: ToldEvent[],
  ) {
    this.dispatcher = dispatcher;
    this.lane = lane;
    this.options = options;
    this.settings = settings;
    this.call = call;
    this.events = events;
  }

  get workspace(): Workspace {
    return this.options.workspace;
  }

  get session(): Session {
    // In switch_session, the param names the session to switch to.
    const { sessionId } = this.call.params as { sessionId?: string };
    const named = this.dispatcher.sessionAt(this.call);
    if (named) return named;
    return this.workspace.session(this.call.command.name === "switch_session" ? undefined : sessionId);
  }

  get env(): Env {
    return this.workspace.env;
  }

  get server(): ServerFacts {
    return this.options.server;
  }

  get dialect(): DialectName {
    return this.options.dialect();
  }

  get maxReplyBytes(): number | undefined {
    return this.options.maxReplyBytes();
  }

  sizeOf(text: Uint8Array): number {
    return this.options.sizeOf(text);
  }

  get key(): string | undefined {
    return (this.call.params as { idempotencyKey?: string }).idempotencyKey;
  }

  text(...path: (string | number)[]): Uint8Array | undefined {
    return textOfParam(this.call, path);
  }

  tell<N extends EventName>(name: N, payload: EventPayload<N>): void {
    this.events.push(eventOf(this.session, name, payload));
  }

  asks(hook: HookName): boolean {
    return this.options.hooks.has(hook);
  }

  ask(hook: HookName, payload: Readonly<Record<string, unknown>>): Promise<HookAnswer> {
    return this.dispatcher.ask(this.lane, hook, payload);
  }

  replace(next: Session, replacement: Replacement): Promise<void> {
    return this.dispatcher.replace(next, replacement, this.events);
  }

  get progress(): Report | undefined {
    const { _meta } = this.call.params as { _meta?: { progressToken?: string | number } };
    const token = _meta?.progressToken;
    if (token === undefined) return undefined;
    const { sink } = this.options;
    return (done, total, more) => {
      if (!sink.hasRoom) return;
      this.dispatcher.start();
      sink.progress(token, done, total, more);
      sink.flush();
    };
  }

  introduce(wishes: Introduction): void {
    this.dispatcher.introduced = true;
    this.options.introduce(wishes);
  }

  shutDown(how?: { atOnce: boolean }): void {
    const { current } = this.workspace;
    if (current && !this.dispatcher.ending) this.events.push(eventOf(current, "session_shutdown", { reason: "quit" }));
    this.dispatcher.ending = true;
    this.options.shutDown(how);
  }
}
