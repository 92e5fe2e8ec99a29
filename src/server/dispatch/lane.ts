/**
 * A lane: calls that run one after the other, and their output in the same order.
 *
 * Each applied write raises `applied`; `durable` follows when a commit has brought it to the medium. Output waits until
 * all earlier writes are durable:
 *
 * slot.after <= lane.durable <= lane.applied
 *
 * holds for each slot that leaves. Only the methods below change these numbers: `markDurable` asserts the second half,
 * and `shift` keeps the first.
 */

import type { Log } from "../../core/ports/store.ts";
import type { Foreign, Session } from "../../core/session/session.ts";
import { notifyForeign } from "../../handlers/shared/append.ts";
import type { HookAnswer, HookName } from "../../handlers/shared/hooks.ts";
import { isForHolder } from "../../handlers/shared/repetition.ts";
import type { AskedHost, Call, Outcome, Peer, Question } from "../connection/call.ts";
import type { Pieces } from "../connection/dialect.ts";
import { makeEvent, type PendingEvent } from "../connection/events.ts";
import type { RemoteRunner } from "./gate.ts";
import type { Prepared } from "./sink.ts";

/** The parameters of a question to the host. */
export type Payload = Readonly<Record<string, unknown>>;

/** Continues with the calls of a lane that has become free. */
interface FreedLanes {
  goOn(lane: Lane): void;
}

/** The log behind the result of a read, with its known losses at that time. */
export interface ReadSource {
  readonly session: Session;
  readonly log: Log;
  readonly losses: number;
}

export function getReadSource(session: Session | null): ReadSource | undefined {
  return session ? { session, log: session.log, losses: session.log.nodes.losses } : undefined;
}

/** A call that runs later. */
export interface QueuedCall {
  call: Call;
  readonly batch?: BatchReply;
}

/** An entry in a lane's output queue: a reply, a refusal, a batch, or events. */
export interface Slot {
  readonly call?: Call;
  readonly refusal?: Pieces;
  readonly batch?: BatchReply;
  outcome: Outcome;
  /** For a read: the log whose positions its result names. */
  readFrom?: ReadSource;
  prepared?: Prepared;
  events: PendingEvent[];
  /** Number of the lane's writes that must be durable before this leaves. */
  after: number;
  /** The process that runs the call and has not answered yet. */
  runner?: RemoteRunner;
}

export type ReplySlot = Slot & { readonly call: Call };

export function isReply(slot: Slot): slot is ReplySlot {
  return slot.call !== undefined;
}

/** A batch, whose replies leave as one array when the last of them is ready. */
export class BatchReply {
  readonly replies: { call: Call; prepared: Prepared }[] = [];
  size = 2;
  readonly refusals: Pieces[] = [];
  events: PendingEvent[] = [];
  waiting = 0;
  sent = false;
}

export class Lane {
  /** Its session; null for the lane of the current session and of calls without one. */
  readonly sessionId: string | null;
  /** The session object last open, if it has its own lane: another one may be open with the same id. */
  session: Session | null = null;
  /** The running call, if others wait for it. */
  running: Call | undefined;
  /** Number of calls on the stack for which it is not known yet whether others must wait. */
  entered = 0;
  /** Number of slow reads by a host that is being asked, and of the server's own work between calls. */
  others = 0;
  /** The question of the running call to the host. */
  private question: Question | undefined;
  /** Calls of a shared session that wait for a host's answer, while calls of other hosts run. */
  private readonly suspended = new Map<Call, Question>();
  /** Suspended calls with an answer, which continue in order. */
  private readonly returning: { readonly call: Call; readonly goOn: () => void }[] = [];
  /** Ids, as JSON text, of questions to the host, including those for the holder of the session. */
  readonly questionIds = new Set<string>();
  readonly calls: QueuedCall[] = [];
  readonly slots: Slot[] = [];
  /** Slots that may leave and wait for the host, while guests of the session are answered. */
  readonly held: Slot[] = [];
  /** Number of calls passed to the holder of the session. */
  passed = 0;
  /** Number of events dropped because the host does not read. */
  lostEvents = 0;
  private appliedWrites = 0;
  private durableWrites = 0;
  committing: Promise<void> | undefined;
  /** Time of the latest call, or of the first check for rest if there was none, in milliseconds. */
  touched = 0;
  /** The session that was checked for foreign writes since the input chunk began. */
  checkedForForeignWrites: Session | undefined;

  constructor(sessionId: string | null) {
    this.sessionId = sessionId;
  }

  get applied(): number {
    return this.appliedWrites;
  }

  get durable(): number {
    return this.durableWrites;
  }

  get isDurable(): boolean {
    return this.durableWrites === this.appliedWrites;
  }

  get busy(): boolean {
    return this.running !== undefined || this.others > 0;
  }

  get pending(): number {
    return this.calls.length + this.slots.length + this.held.length;
  }

  get idle(): boolean {
    return !this.busy && this.pending === 0 && this.suspended.size === 0;
  }

  /** True if the lane has no work and no note until the end of the input chunk. */
  get isAtRest(): boolean {
    const isUsed = this.entered > 0 || this.committing || this.checkedForForeignWrites;
    return !isUsed && this.idle && this.isDurable;
  }

  /** Asks for consent for a call. The lane waits; if the session is shared, calls of other hosts run. */
  async ask(call: Call, question: Question, lanes: FreedLanes): Promise<HookAnswer> {
    if (question.asks) return this.askSuspended(call, question, lanes);
    this.question = question;
    try {
      return await question.answer;
    } finally {
      this.question = undefined;
    }
  }

  /** Waits for an answer outside the lane, and then for the lane. */
  private async askSuspended(call: Call, question: Question, lanes: FreedLanes): Promise<HookAnswer> {
    this.suspended.set(call, question);
    if (this.running === call) {
      this.running = undefined;
      queueMicrotask(() => lanes.goOn(this));
    }
    try {
      return await question.answer;
    } finally {
      await new Promise<void>((goOn) => {
        this.returning.push({ call, goOn });
        lanes.goOn(this);
      });
    }
  }

  /** Continues a suspended call with an answer, if the lane is free. Returns whether it did. */
  private resumeAnswered(): boolean {
    const next = this.busy || this.entered > 0 ? undefined : this.returning.shift();
    if (!next) return false;
    this.suspended.delete(next.call);
    this.running = next.call;
    next.goOn();
    return true;
  }

  isSuspended(call: Call): boolean {
    return this.suspended.has(call);
  }

  /** True if a call waits for an answer while others run. */
  get hasSuspended(): boolean {
    return this.suspended.size > 0;
  }

  /** True if a call waits for an answer of a host. */
  get isAsking(): boolean {
    return this.question !== undefined || this.hasSuspended;
  }

  /** Returns whether a call may run during the questions: its host neither asks nor is asked. */
  isFreeFor(call: Call): boolean {
    if (!this.hasSuspended) return true;
    const waits = ([{ peer }, question]: [Call, Question]): boolean =>
      peer === call.peer || question.asks?.(call.peer) === true;
    const { effect } = call.command;
    // Such calls replace no session.
    const mayOverlap = effect === "read" || effect === "server" || isForHolder(call);
    return mayOverlap && ![...this.suspended].some(waits);
  }

  /** Continues a suspended call with an answer, or runs the waiting calls that may run now, one after the other. */
  runWaiting(mayRun: (call: Call) => boolean, run: (next: QueuedCall) => void): void {
    if (this.resumeAnswered()) return;
    for (let next = this.takeNext(mayRun); next; next = this.takeNext(mayRun)) run(next);
  }

  /** Removes the waiting call that may run now: the first, or during a question, the first of a host. */
  private takeNext(mayRun: (call: Call) => boolean): QueuedCall | undefined {
    const waiting = new Set<Peer | undefined>();
    const found = this.calls.findIndex(({ call }, at) => {
      if (at > 0 && (!this.hasSuspended || waiting.has(call.peer))) return false;
      waiting.add(call.peer);
      return mayRun(call);
    });
    return found < 0 ? undefined : this.calls.splice(found, 1)[0];
  }

  /**
   * Has the waiting writes fail like one before them: they came while it waited for a fleet that did not answer. `isThere`:
   * whether the session has entries of a write.
   */
  failWaitingWrites(fault: unknown, isThere: (call: Call) => boolean): void {
    for (const waiting of this.calls) {
      const { call } = waiting;
      if (call.command.effect === "write" && call.fault === undefined && !isThere(call))
        waiting.call = { ...call, fault };
    }
  }

  /** Cancels the questions of matching calls, and the matching calls that another process runs. */
  cancelRunning(isMeant: (call: Call | undefined) => boolean): void {
    if (this.passed > 0) for (const runner of new Set(this.slots.map((slot) => slot.runner))) runner?.cancel(isMeant);
    if (isMeant(this.running)) this.question?.cancel();
    for (const [call, question] of this.suspended) if (isMeant(call)) question.cancel();
  }

  /** Asks, and lets reads of the asked host be answered at once. */
  questionTo(hooks: AskedHost, name: HookName, payload: Payload): Question {
    let id = "";
    const question = hooks.ask(name, payload, (asked) => {
      id = asked;
      this.questionIds.add(id);
    });
    return { ...question, answer: question.answer.finally(() => this.questionIds.delete(id)) };
  }

  /** Counts a finished write. A failed one, too, may have restored something that is not durable yet. */
  noteRun(session: Session | null, hasFailed: boolean): void {
    const wasDurable = isDurable(session);
    if (!hasFailed || !wasDurable) this.apply(wasDurable);
  }

  /** Counts an applied write; `settled`: it left nothing to make durable. */
  apply(settled: boolean): void {
    this.appliedWrites++;
    if (settled) this.durableWrites = this.appliedWrites;
  }

  /** Notes that the first `count` writes are durable, or were undone together. */
  markDurable(count: number): void {
    if (count > this.appliedWrites)
      throw new TypeError("the order of a lane is broken: no write is durable that was not applied");
    this.durableWrites = Math.max(this.durableWrites, count);
  }

  /**
   * Queues output that leaves when everything applied until now is durable. Written out, because slots of one shape,
   * made without a spread, let 120,000 replies leave in a second instead of 85,000.
   */
  push({ call, refusal, batch, outcome, readFrom, events }: Omit<Slot, "after">): void {
    const after = this.appliedWrites;
    this.slots.push({ call, refusal, batch, outcome, readFrom, prepared: undefined, events, after });
  }

  /** Queues the events about changes by other programs, so that the host receives them before anything else. */
  pushForeign(session: Session, foreign: Foreign | null): void {
    if (!foreign) return;
    const events: PendingEvent[] = [];
    notifyForeign(session, foreign, (name, payload) => events.push(makeEvent(session, name, payload)));
    this.push({ outcome: { result: null }, events });
  }

  /** Queues the reply to a read of a host that is being asked: its passed calls may wait for its answer. */
  pushMeanwhile(slot: Omit<Slot, "after">): void {
    const first = this.slots.findIndex(({ runner }) => runner);
    this.slots.splice(first < 0 ? this.slots.length : first, 0, { ...slot, after: this.appliedWrites });
  }

  /** Returns the last entry of the lane's session that is in no queued event; null for none. */
  lastReported({ log: { nodes, durableCount } }: Session): string | null {
    // A leaf marker has no event. Before it is durable, other processes need not find it.
    let first = Math.min(nodes.count, durableCount);
    for (const { events } of this.slots)
      for (const { name, payload } of events)
        if (name === "session_append")
          for (const id of payload.entryIds as string[]) first = Math.min(first, nodes.position(id));
    // A marker before them is written with them, and has no event.
    while (first < nodes.count && first > 0 && nodes.isMarker(first - 1)) first--;
    return first > 0 ? nodes.id(first - 1) : null;
  }

  /** Reserves the position of a reply from the holder of the session. */
  reserve({ call, batch, events, runner }: Pick<Slot, "call" | "batch" | "events" | "runner">): Slot {
    const slot: Slot = { call, batch, outcome: { result: null }, events, after: this.appliedWrites, runner };
    this.slots.push(slot);
    return slot;
  }

  /** Fills a reserved position. */
  fill(slot: Slot, outcome: Outcome): void {
    slot.outcome = outcome;
    slot.after = this.appliedWrites;
    slot.runner = undefined;
  }

  /** Queues events from the holder: after its replies so far, and before the outstanding ones. */
  insert(events: PendingEvent[], most: number): void {
    if (this.pending >= most) {
      this.lostEvents += events.length;
      return;
    }
    const first = this.slots.findIndex(({ runner }) => runner);
    const slot: Slot = { outcome: { result: null }, events, after: 0 };
    this.slots.splice(first < 0 ? this.slots.length : first, 0, slot);
  }

  /** Holds output until the host reads again. Slots with events alone are dropped if there are too many. */
  hold(slot: Slot, most: number): void {
    if (this.held.length < most || slot.call || slot.batch || slot.refusal) this.held.push(slot);
    else this.lostEvents += slot.events.length;
  }

  /** Removes the next slot, if it may leave. */
  shift(): Slot | undefined {
    const [next] = this.slots;
    if (!next || next.runner || next.after > this.durableWrites) return undefined;
    return this.slots.shift();
  }
}

/** Returns whether a session has nothing to make durable. If the disk fails here, a commit reports it. */
function isDurable(session: Session | null): boolean {
  try {
    return session?.isDurable ?? true;
  } catch {
    return false;
  }
}
