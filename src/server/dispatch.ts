/**
 * Runs calls: per session strictly in the order of arrival, applied at once, acknowledged when durable, answered in
 * order (architecture, "Apply in order, acknowledge when durable").
 */

import type { Env } from "../core/env.ts";
import { Failure, InvalidRequest } from "../core/failure.ts";
import { Raw, textPieces } from "../core/raw.ts";
import type { Session } from "../core/session.ts";
import type { Workspace } from "../core/workspace.ts";
import { foreignPayload } from "../handlers/appending.ts";
import type { Context, Introduction, ServerFacts, Settings } from "../handlers/command.ts";
import type { EventName, EventPayload, Replacement } from "../handlers/events.ts";
import { type Call, type Outcome, textOfParam } from "./call.ts";
import type { DialectName, Pieces } from "./dialect.ts";
import { eventOf, type ToldEvent } from "./host.ts";

/** Where finished calls go. */
export interface Sink {
  readonly hasRoom: boolean;
  reply(call: Call, outcome: Outcome): void;
  /** A reply that was ready before any call was made of its message. */
  refuse(reply: Pieces): void;
  batch(replies: readonly { call: Call; outcome: Outcome }[], refusals: readonly Pieces[]): void;
  event(event: ToldEvent): void;
  flush(): void;
}

export interface DispatchOptions {
  readonly workspace: Workspace;
  readonly sink: Sink;
  readonly server: ServerFacts;
  readonly dialect: () => DialectName;
  readonly maxReplyBytes: () => number | undefined;
  readonly introduce: (wishes: Introduction) => void;
  readonly shutDown: () => void;
}

/** Commands that decide themselves what a read-only session allows. */
const WRITES_WHERE_ALLOWED: ReadonlySet<string> = new Set(["branch", "repair_session"]);

/** Results of keyed commands that are remembered for a repeat, oldest forgotten first. */
const REMEMBERED_RESULTS = 10_000;

/** One request of a batch, or why it is none. */
export type BatchItem = { readonly call: Call } | { readonly refusal: Pieces };

/** A reply on its way, or something else that leaves in its turn. */
interface Slot {
  readonly call?: Call;
  readonly refusal?: Pieces;
  readonly batch?: Batch;
  outcome: Outcome;
  events: ToldEvent[];
  /** How many mutations of the lane must be durable before this may leave. */
  after: number;
}

/** The replies of one batch leave as one array when the last of them is ready. */
class Batch {
  readonly replies: { call: Call; outcome: Outcome }[] = [];
  readonly refusals: Pieces[] = [];
  events: ToldEvent[] = [];
  waiting = 0;
  sent = false;
}

/** One order of execution and of replies. */
class Lane {
  readonly calls: { call: Call; readonly batch?: Batch }[] = [];
  readonly slots: Slot[] = [];
  busy = false;
  applied = 0;
  durable = 0;
  committing: Promise<void> | undefined;

  get idle(): boolean {
    return !this.busy && this.calls.length === 0 && this.slots.length === 0;
  }
}

export class Dispatcher {
  private readonly options: DispatchOptions;
  private readonly workspace: Workspace;
  private readonly sink: Sink;
  /** The order of the current session, of everything without one, and of malformed messages. */
  private readonly main = new Lane();
  /** Commands that touch no session. */
  private readonly aside = new Lane();
  private readonly settings: Settings = {
    steeringMode: "one-at-a-time",
    followUpMode: "one-at-a-time",
    autoCompactionEnabled: false,
    autoRetryEnabled: false,
  };
  private readonly results = new Map<string, unknown>();
  private readonly ids = new Set<string>();
  private whenIdle: (() => void)[] = [];
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
    return this.main.calls.length + this.main.slots.length + this.aside.calls.length + this.aside.slots.length;
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
   * A call that has not been run yet is not run and answered as cancelled. One that has been run is applied whole,
   * and its ordinary reply says so.
   */
  cancel(idText: string): void {
    for (const lane of [this.main, this.aside]) {
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
    for (const lane of [this.main, this.aside]) if (lane.durable < lane.applied) this.commit(lane);
    this.sink.flush();
  }

  /** The reader has room again. */
  resume(): void {
    this.flush(this.main);
    this.flush(this.aside);
    this.sink.flush();
  }

  /** Resolves when every call that was submitted has been answered. */
  idle(): Promise<void> {
    this.settle();
    if (this.main.idle && this.aside.idle) return Promise.resolve();
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
    const lane = call.command.effect === "server" ? this.aside : this.main;
    if (lane.busy || lane.calls.length > 0) lane.calls.push({ call, batch });
    else this.run(lane, call, batch);
  }

  private run(lane: Lane, call: Call, batch?: Batch): void {
    const events: ToldEvent[] = [];
    let result: unknown;
    try {
      result = this.execute(lane, call, events);
    } catch (error) {
      this.finish(lane, call, batch, { error }, events);
      return;
    }
    if (!(result instanceof Promise)) {
      this.finish(lane, call, batch, { result }, events);
      return;
    }
    lane.busy = true;
    result
      .then(
        (value): Outcome => ({ result: value }),
        (error): Outcome => ({ error }),
      )
      .then((outcome) => {
        lane.busy = false;
        this.finish(lane, call, batch, outcome, events);
        this.pump(lane);
        this.settle();
        this.wakeIdle();
      });
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
    if (this.ending) throw new Failure("shutting_down");
    const { command } = call;
    if (command.name === "initialize" && this.introduced)
      throw new InvalidRequest("initialize was answered already; it comes once.");
    const context = this.contextFor(call, events);
    if (command.effect === "read" || command.effect === "server" || command.effect === "control")
      return command.run(context, call.params as never);
    const { expectedLeafId, idempotencyKey } = call.params as {
      expectedLeafId?: string | null;
      idempotencyKey?: string;
    };
    if (idempotencyKey !== undefined) {
      const known = this.knownResult(context, call, idempotencyKey);
      if (known !== undefined) return known;
    }
    const remember = (result: unknown): unknown => {
      if (idempotencyKey !== undefined) this.remember(call, idempotencyKey, result);
      return result;
    };
    if (command.effect === "write") {
      this.takeForeign(lane, context.session);
      context.session.guard(expectedLeafId, WRITES_WHERE_ALLOWED.has(command.name));
      return remember(command.run(context, call.params as never));
    }
    return this.whenDurable(lane, () => {
      if (expectedLeafId !== undefined) context.session.guard(expectedLeafId, true);
      const result = command.run(context, call.params as never);
      return result instanceof Promise ? result.then(remember) : remember(result);
    });
  }

  /**
   * Takes in what other programs wrote, and tells of it before anything else leaves. Throws what Session.refresh
   * throws.
   */
  private takeForeign(lane: Lane, session: Session): void {
    const foreign = session.refresh();
    if (!foreign) return;
    const events: ToldEvent[] = [];
    if (foreign.positions.length > 0)
      events.push(eventOf(session, "session_append", foreignPayload(session, foreign.positions)));
    if (foreign.lost > 0) {
      const reason = `another program wrote the session anew and left out ${foreign.lost} entries that were there`;
      const damage = { kind: "lost_entries", line: 0, byteOffset: 0, length: 0, reason, salvaged: false };
      events.push(eventOf(session, "session_damage", { damage: [damage] }));
    }
    lane.slots.push({ outcome: { result: null }, events, after: lane.applied });
  }

  /** Looks for entries of other programs while nothing else is going on. */
  follow(): void {
    const { current } = this.workspace;
    if (!current || !this.main.idle || this.ending) return;
    try {
      this.takeForeign(this.main, current);
    } catch {
      // A file that is gone is told of when somebody wants to write to it.
    }
    this.flush(this.main);
    this.sink.flush();
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
    for (const slot of lane.slots) slot.outcome = rendered(slot.outcome);
  }

  /** The outcome in the shape of the host's dialect. */
  private shaped(call: Call, outcome: Outcome): Outcome {
    const { pi } = call.command;
    if (!pi || "error" in outcome || this.options.dialect() !== "pi") return outcome;
    return { result: pi(this.contextFor(call, []), outcome.result as never) };
  }

  private finish(lane: Lane, call: Call, batch: Batch | undefined, ran: Outcome, events: ToldEvent[]): void {
    const outcome = this.shaped(call, ran);
    const failed = "error" in outcome;
    const { current } = this.workspace;
    // A write that failed may have left something to make durable, too: that all is as before.
    if (call.command.effect === "write" && (!failed || current?.settled === false)) {
      lane.applied++;
      if (!current || current.settled) lane.durable = lane.applied;
    }
    lane.slots.push({ call, batch, outcome, events: failed ? [] : events, after: lane.applied });
    this.flush(lane);
  }

  private knownResult(context: Context, call: Call, key: string): unknown {
    const { command } = call;
    const remembered = this.results.get(this.resultKey(call, key));
    if (remembered !== undefined) return remembered;
    if (!command.repeat) return undefined;
    const entryIds = context.session.repeated(key)?.ids;
    return entryIds && command.repeat(context, entryIds);
  }

  /** A key belongs to its session; that of a command which leaves the session belongs to the process. */
  private resultKey({ command }: Call, key: string): string {
    const session = command.effect === "write" ? (this.workspace.current?.id ?? "") : "";
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

  private contextFor(call: Call, events: ToldEvent[]): Context {
    return new CallContext(this, this.options, this.settings, call, events);
  }

  /** Makes another session the current one; `events` gets what there is to tell of it. */
  async replace(next: Session, replacement: Replacement, events: ToldEvent[]): Promise<void> {
    const { reason, fork } = replacement;
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

  // --- durability ----------------------------------------------------------------------------------------------

  private commit(lane: Lane): void {
    if (lane.committing) return;
    const session = this.workspace.current;
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
      } else if (slot.call.command.effect === "read" && !("error" in slot.outcome)) {
        try {
          const result = slot.call.command.run(this.contextFor(slot.call, []), slot.call.params as never);
          slot.outcome = this.shaped(slot.call, { result });
        } catch (again) {
          slot.outcome = { error: again };
        }
      }
    }
    lane.durable = lane.applied;
  }

  private forget(call: Call): void {
    const { idempotencyKey } = call.params as { idempotencyKey?: string };
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
        slot.batch.replies.push({ call: slot.call, outcome: rendered(slot.outcome) });
        slot.batch.events.push(...slot.events);
        this.batchItemDone(slot.batch);
        if (slot.batch.waiting === 0) this.sendBatch(slot.batch);
        continue;
      }
      lane.slots.shift();
      this.send(slot);
    }
    this.wakeIdle();
  }

  private batchItemDone(batch: Batch): void {
    batch.waiting--;
  }

  private send(slot: Slot): void {
    if (slot.refusal) this.sink.refuse(slot.refusal);
    else if (slot.batch) this.sendBatch(slot.batch);
    else if (!slot.call) {
      this.start();
      for (const event of slot.events) this.sink.event(event);
    } else {
      const { call } = slot;
      const introduces = call.command.name === "initialize";
      if (!introduces) this.start();
      this.answer(call, slot.outcome);
      if (introduces) this.start();
      for (const event of slot.events) this.sink.event(event);
      this.tellDamage();
    }
  }

  /** Bodies are read when replies are written, so that is when damage in them is met. */
  private tellDamage(): void {
    const { current } = this.workspace;
    const damage = current?.freshDamage() ?? [];
    if (current && damage.length > 0)
      this.sink.event(eventOf(current, "session_damage", { damage: damage.map((found) => ({ ...found })) }));
  }

  private answer(call: Call, outcome: Outcome): void {
    if (call.idText !== undefined) this.ids.delete(call.idText);
    this.sink.reply(call, outcome);
  }

  private sendBatch(batch: Batch): void {
    if (batch.sent) return;
    batch.sent = true;
    const introduces = batch.replies.some(({ call }) => call.command.name === "initialize");
    if (!introduces && batch.replies.length > 0) this.start();
    for (const { call } of batch.replies) if (call.idText !== undefined) this.ids.delete(call.idText);
    this.sink.batch(batch.replies, batch.refusals);
    if (introduces) this.start();
    for (const event of batch.events) this.sink.event(event);
  }

  private wakeIdle(): void {
    if (this.whenIdle.length === 0 || !this.main.idle || !this.aside.idle) return;
    const woken = this.whenIdle;
    this.whenIdle = [];
    for (const wake of woken) wake();
  }
}

/** What a command sees of the server while it runs. */
class CallContext implements Context {
  private readonly dispatcher: Dispatcher;
  private readonly options: DispatchOptions;
  private readonly call: Call;
  private readonly events: ToldEvent[];
  readonly settings: Settings;

  constructor(dispatcher: Dispatcher, options: DispatchOptions, settings: Settings, call: Call, events: ToldEvent[]) {
    this.dispatcher = dispatcher;
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
    return this.workspace.session(this.call.command.effect === "replace" ? undefined : sessionId);
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

  get key(): string | undefined {
    return (this.call.params as { idempotencyKey?: string }).idempotencyKey;
  }

  text(...path: (string | number)[]): Uint8Array | undefined {
    return textOfParam(this.call, path);
  }

  tell<N extends EventName>(name: N, payload: EventPayload<N>): void {
    this.events.push(eventOf(this.workspace.session(), name, payload));
  }

  replace(next: Session, replacement: Replacement): Promise<void> {
    return this.dispatcher.replace(next, replacement, this.events);
  }

  introduce(wishes: Introduction): void {
    this.dispatcher.introduced = true;
    this.options.introduce(wishes);
  }

  shutDown(): void {
    const { current } = this.workspace;
    if (current) this.events.push(eventOf(current, "session_shutdown", { reason: "quit" }));
    this.dispatcher.ending = true;
    this.options.shutDown();
  }
}

function rendered(outcome: Outcome): Outcome {
  if ("error" in outcome) return outcome;
  try {
    const pieces = [...textPieces(outcome.result)].map((piece) =>
      typeof piece === "string" ? Buffer.from(piece) : piece,
    );
    return { result: new Raw(() => pieces) };
  } catch (error) {
    return { error };
  }
}
