/**
 * Runs calls: per session strictly in the order of arrival, applied at once, acknowledged when durable, answered in
 * order (architecture, "Apply in order, acknowledge when durable").
 */

import { Failure, InvalidRequest } from "../../core/failure.ts";
import { holdsRaw } from "../../core/json/raw.ts";
import type { Env } from "../../core/ports/env.ts";
import type { Log } from "../../core/ports/store.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import { tellForeign } from "../../handlers/shared/append.ts";
import type { Context, Introduction, Report, ServerFacts, Settings } from "../../handlers/shared/command.ts";
import type { EventName, EventPayload, Replacement } from "../../handlers/shared/events.ts";
import type { HookAnswer, HookName } from "../../handlers/shared/hooks.ts";
import { type Call, type Outcome, textOfParam } from "../connection/call.ts";
import type { DialectName, Pieces } from "../connection/dialect.ts";
import type { Hooks, Question } from "../connection/hooks.ts";
import { eventOf, type ToldEvent } from "../connection/host.ts";
import type { Message } from "../connection/output.ts";

/** A reply that is made already and leaves later: it needs nothing of a session any more. */
export interface Prepared {
  /** Undefined for what gets no reply. */
  readonly message: Message | undefined;
  /** Bytes of the frame it would be alone in, where the host limits that. */
  readonly size: number;
  /** Bytes of it that lie in memory. */
  readonly held: number;
}

export type Renewed = () => Outcome | undefined;

/**
 * Where finished calls go. Replies and events read stored entries as they are put together: an error in that becomes
 * the reply, or an event that tells less, and nothing of this throws it.
 */
export interface Sink {
  readonly hasRoom: boolean;
  /** `renewed` gives the outcome that counts instead when putting the reply together has shown this one to be wrong. */
  reply(call: Call, outcome: Outcome, renewed?: Renewed): void;
  /** Makes a reply that leaves later, as a part of a message of which so many bytes are `taken`. */
  prepare(call: Call, outcome: Outcome, taken: number, renewed?: Renewed): Prepared;
  send(prepared: Prepared): void;
  /** A reply that was ready before any call was made of its message. */
  refuse(reply: Pieces): void;
  batch(replies: readonly Prepared[], refusals: readonly Pieces[]): void;
  event(event: ToldEvent): void;
  /** How far a command is, at once; of no use to a host that does not keep up. */
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

/** Commands that decide themselves what a read-only session allows. */
const WRITES_WHERE_ALLOWED: ReadonlySet<string> = new Set([
  "branch",
  "migrate_session",
  "repair_session",
  "rollback_migration",
]);

/** Commands beside the reads whose results tell of sessions; to run them again changes nothing. */
const TELLS_OF_SESSIONS: ReadonlySet<string> = new Set(["initialize", "list_open_sessions", "open_session"]);

/** Sessions open at a time, the current one included. */
const MOST_OPEN = 64;

/** Milliseconds without a command after which a session lets other programs write. */
const REST_AFTER = 5 * 60_000;

/** Results of keyed commands that are remembered for a repeat, oldest forgotten first. */
const REMEMBERED_RESULTS = 10_000;

/** One request of a batch, or why it is none. */
export type BatchItem = { readonly call: Call } | { readonly refusal: Pieces };

interface Source {
  readonly session: Session;
  readonly log: Log;
  readonly losses: number;
}

/** A reply on its way, or something else that leaves in its turn. */
interface Slot {
  readonly call?: Call;
  readonly refusal?: Pieces;
  readonly batch?: Batch;
  outcome: Outcome;
  /** Of a read: the log that its result names places in, and how much of that was known to be unreadable before. */
  readFrom?: Source;
  /** The reply, where the session of the call was about to be left. */
  prepared?: Prepared;
  events: ToldEvent[];
  /** How many mutations of the lane must be durable before this may leave. */
  after: number;
}

/** A slot in which a reply waits. */
type Reply = Slot & { readonly call: Call };

function isReply(slot: Slot): slot is Reply {
  return slot.call !== undefined;
}

function sourceOf(session: Session | null): Source | undefined {
  return session ? { session, log: session.log, losses: session.log.nodes.losses } : undefined;
}

/** Whether a session has nothing left to make durable. Where the disk does not tell, a commit finds out. */
function isSettled(session: Session | null): boolean {
  try {
    return session?.settled ?? true;
  } catch {
    return false;
  }
}

/** The replies of one batch leave as one array when the last of them is ready. */
class Batch {
  readonly replies: { call: Call; prepared: Prepared }[] = [];
  /** Bytes of the array so far. */
  size = 2;
  readonly refusals: Pieces[] = [];
  events: ToldEvent[] = [];
  waiting = 0;
  sent = false;
}

/** One order of execution and of replies. */
class Lane {
  /** The session it belongs to; null for the current session, whichever that is, and for none. */
  readonly sessionId: string | null;
  /** The call that is being run, while others wait for it. */
  running: Call | undefined;
  /** What it asked the host and waits for, with the request's id as JSON text. */
  question: Question | undefined;
  questionId: string | undefined;
  readonly calls: { call: Call; readonly batch?: Batch }[] = [];
  readonly slots: Slot[] = [];
  applied = 0;
  durable = 0;
  committing: Promise<void> | undefined;
  /** When something happened here last. */
  touched = 0;
  /** The session whose file was looked at for a write since the input chunk began. */
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

/** What commands that change a session take beside their own params. */
interface KeyedParams {
  readonly expectedLeafId?: string | null;
  readonly idempotencyKey?: string;
}

/** Stands for what a lane does on its own account. */
const OWN_WORK = { name: "" } as Call;

export class Dispatcher {
  private readonly options: DispatchOptions;
  private readonly workspace: Workspace;
  private readonly sink: Sink;
  /** The order of the current session, of everything without one, and of malformed messages. */
  private readonly main = new Lane(null);
  /** Commands that touch no session. */
  private readonly aside = new Lane(null);
  /** Sessions that are open beside the current one. */
  private readonly beside = new Map<string, Lane>();
  private readonly settings: Settings = {
    steeringMode: "one-at-a-time",
    followUpMode: "one-at-a-time",
    autoCompactionEnabled: false,
    autoRetryEnabled: false,
  };
  private readonly results = new Map<string, unknown>();
  private readonly ids = new Set<string>();
  private whenIdle: (() => void)[] = [];
  private laneWaiters: { lane: Lane; resolve: () => void }[] = [];
  /** `shutdown` was asked for: nothing new is run. */
  ending = false;
  /** `initialize` was answered. */
  introduced = false;
  private started = false;
  private startEvent: ToldEvent | null | undefined;

  constructor(options: DispatchOptions) {
    this.options = options;
    this.workspace = options.workspace;
    this.sink = options.sink;
  }

  /** Calls and replies that are not out yet; the reader of input slows down by it. */
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

  /** The session whose changes a lane makes. */
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
   * The open session that a call of a command on any session names; null when that is not open here, undefined when it
   * names none.
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
      // It may not be looked at, which the command says itself.
      return null;
    }
  }

  /** Whether a call with this id is being worked on. */
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
   * A call that has not been run yet, or that waits for the host's consent, is not run and answered as cancelled. One
   * that has been run is applied whole, and its ordinary reply says so.
   */
  cancel(idText: string): void {
    for (const lane of this.lanes()) {
      if (lane.running?.idText === idText) lane.question?.cancel();
      const waiting = lane.calls.find(({ call }) => call.idText === idText);
      if (!waiting) continue;
      // It keeps its place, so that its reply comes in its turn.
      waiting.call = { ...waiting.call, fault: new Failure("cancelled") };
      return;
    }
  }

  submitBatch(items: readonly BatchItem[]): void {
    const batch = new Batch();
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

  /** The end of an input chunk: everything applied in it becomes durable together. */
  settle(): void {
    // What is ready leaves first: the medium may be waited for at once.
    this.sink.flush();
    for (const lane of this.lanes()) {
      lane.looked = undefined;
      if (lane.durable < lane.applied) this.commit(lane);
    }
  }

  /** The reader has room again. */
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

  /** Tells of the session that was opened at start; nothing but the reply to `initialize` precedes it. */
  start(): void {
    if (this.started) return;
    this.started = true;
    this.noteStart();
    if (this.startEvent) this.sink.event(this.startEvent);
  }

  /** The event tells the state before the first call changed it. */
  private noteStart(): void {
    if (this.startEvent !== undefined) return;
    const { current } = this.workspace;
    this.startEvent = current && eventOf(current, "session_start", { reason: "startup", sessionFile: current.file });
  }

  // --- running -------------------------------------------------------------------------------------------------

  private enqueue(call: Call, batch?: Batch): void {
    this.noteStart();
    if (call.idText !== undefined) this.ids.add(call.idText);
    const lane = this.laneOf(call);
    lane.touched = this.workspace.env.now();
    if (lane.questionId !== undefined && this.asksWhile(call, lane.questionId)) this.runNow(lane, call, batch);
    else if (lane.busy || lane.calls.length > 0) lane.calls.push({ call, batch });
    else this.run(lane, call, batch);
  }

  private run(lane: Lane, call: Call, batch?: Batch): void {
    if (lane === this.aside && this.sessionAt(call)) {
      // The session was opened since, and what changes it keeps its order.
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

  /** A host that is being asked may look at the session as it is before what it is asked about. */
  private asksWhile(call: Call, questionId: string): boolean {
    const { _meta } = (call.params ?? {}) as { _meta?: { hook?: string | number } };
    return call.command.effect === "read" && _meta?.hook !== undefined && JSON.stringify(_meta.hook) === questionId;
  }

  /** Runs a read beside the call that its lane is busy with. */
  private runNow(lane: Lane, call: Call, batch?: Batch): void {
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

  private sourceFor(lane: Lane, call: Call): Source | undefined {
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

  private write(lane: Lane, call: Call, context: Context): unknown {
    const { command } = call;
    const { expectedLeafId, idempotencyKey } = call.params as KeyedParams;
    if (idempotencyKey !== undefined) {
      const known = this.knownResult(context, call, idempotencyKey);
      if (known !== undefined) return known;
    }
    const { session } = context;
    // One look serves an input chunk: what comes in within its moment, the append itself finds.
    if (lane.looked !== session) this.takeForeign(lane, session, true);
    lane.looked = session;
    session.guard(expectedLeafId, WRITES_WHERE_ALLOWED.has(command.name));
    return this.remembered(call, command.run(context, call.params as never));
  }

  /** The same result, which a repeat of a call with its key is answered with, too. */
  private remembered(call: Call, result: unknown): unknown {
    const { idempotencyKey } = call.params as KeyedParams;
    if (idempotencyKey === undefined) return result;
    if (result instanceof Promise) return result.then((value) => this.remembered(call, value));
    // What the host vetoed was not done, and may be asked for again.
    const vetoed = (result as { cancelled?: boolean } | null)?.cancelled === true;
    if (!vetoed) this.remember(call, idempotencyKey, result);
    return result;
  }

  /**
   * Takes in what other programs wrote, and tells of it before anything else leaves. Throws what Session.refresh
   * throws.
   */
  private takeForeign(lane: Lane, session: Session, toWrite = false): void {
    const foreign = toWrite ? session.refreshToWrite() : session.refresh();
    if (!foreign) return;
    const events: ToldEvent[] = [];
    tellForeign(session, foreign, (name, payload) => events.push(eventOf(session, name, payload)));
    lane.slots.push({ outcome: { result: null }, events, after: lane.applied });
  }

  /** Looks for entries of other programs while nothing else is going on. */
  follow(): void {
    // A reply that is being read still names bytes of a file as it is.
    if (this.ending || !this.sink.hasRoom) return;
    for (const session of this.workspace.sessions) {
      const lane = this.laneFor(session);
      if (!lane.idle) continue;
      try {
        this.takeForeign(lane, session);
      } catch {
        // A file that is gone is told of when somebody wants to write to it.
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
   * Sessions that nobody used for a while let other programs write, and beyond a number of open ones the least
   * recently used are closed until they are named again.
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

  /** Runs something of our own in a lane's order. */
  private inLane(lane: Lane, run: () => Promise<void>, done: () => void = () => {}): void {
    lane.running = OWN_WORK;
    run()
      .catch(() => {
        // The next command meets the same obstacle and tells of it.
      })
      .then(() => {
        lane.running = undefined;
        if (lane.calls.length === 0) done();
        this.pump(lane);
        this.wakeIdle();
      });
  }

  /** What replaces the session runs when nothing of the old one is open any more. */
  private whenDurable(lane: Lane, run: () => unknown): unknown {
    const go = (): unknown => {
      this.renderWaiting(lane);
      return run();
    };
    if (lane.durable >= lane.applied) return go();
    this.commit(lane);
    // What was applied while an earlier commit was under way takes another.
    return Promise.resolve(lane.committing).then(() => this.whenDurable(lane, run));
  }

  /** Replies that wait for their reader still name bytes of the session that is about to be closed. */
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

  /** Returns the outcome as it can be told now. */
  private asOf(lane: Lane, slot: Reply): Outcome {
    return this.renewed(lane, slot) ?? slot.outcome;
  }

  /**
   * Runs a read again whose result does not hold any more: it names places in a log that another has taken the place of
   * since, or something that it tells of was found to be unreadable on the way, and what is left tells something else.
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

  /** Only what reads as it is put together can come to be wrong by that. */
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
      // It has read files rather than the session, and what it found is what it answers.
      result.catch(() => {});
      return slot.outcome;
    } catch (error) {
      return { error };
    }
  }

  /** The outcome in the shape of the host's dialect. */
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
    batch: Batch | undefined,
    ran: Outcome,
    events: ToldEvent[],
    readFrom?: Source,
  ): void {
    const outcome = this.shaped(call, ran);
    const failed = "error" in outcome;
    const session = this.sessionOf(lane);
    // A write that failed may have left something to make durable, too: that all is as before.
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

  private knownResult(context: Context, call: Call, key: string): unknown {
    const { command } = call;
    const remembered = this.results.get(this.resultKey(call, key));
    if (remembered !== undefined) return remembered;
    if (!command.repeat) return undefined;
    const entryIds = context.session.repeated(key)?.ids;
    return entryIds && command.repeat(context, entryIds, call.params as never);
  }

  /**
   * A session that a request with this key made is not made again: it is the current one again, as its maker was
   * told. When it is gone, there is nothing to repeat.
   */
  private async madeBefore(context: Context, call: Call, key: string): Promise<unknown> {
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

  /** A key belongs to its session; that of a command which leaves the session belongs to the process. */
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

  private contextFor(lane: Lane, call: Call, events: ToldEvent[]): Context {
    return new CallContext(this, this.options, this.settings, lane, call, events);
  }

  /** Makes another session the current one; `events` gets what there is to tell of it. */
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

  /** A session that becomes the current one brings what is under way in it to its end first. */
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

  /** A commit failed and the session is as it was: writes that waited fail, reads are asked again. */
  private undo(lane: Lane, error: unknown): void {
    for (const slot of lane.slots) {
      if (slot.after <= lane.durable || !slot.call) continue;
      slot.events = [];
      if (slot.call.command.effect === "write") {
        // What is wrong with a request itself is wrong with it still.
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
        // A part of a batch is ready; the array leaves in the place of its last part.
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

  private batchItemDone(batch: Batch): void {
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

  /** Bodies are read when replies are written, so that is when damage in them is met. */
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

  /** Tells of what a request found of others and could not tell itself, because it failed. */
  private tellUntold(session: Session): void {
    try {
      tellForeign(session, session.freshForeign(), (name, payload) => this.sink.event(eventOf(session, name, payload)));
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      // Its tree cannot be read for now; the next reply tries again.
    }
  }

  private sendBatch(batch: Batch): void {
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

/** What a command sees of the server while it runs. */
class CallContext implements Context {
  private readonly dispatcher: Dispatcher;
  private readonly options: DispatchOptions;
  private readonly lane: Lane;
  private readonly call: Call;
  private readonly events: ToldEvent[];
  readonly settings: Settings;

  constructor(
    dispatcher: Dispatcher,
    options: DispatchOptions,
    settings: Settings,
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
    // Where a session is to be switched to, its id names the new one.
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
