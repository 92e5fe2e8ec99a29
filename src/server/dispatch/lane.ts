/**
 * A lane: calls that run one after the other, and what leaves for them in the same order.
 *
 * Each write that is applied raises `applied`; `durable` follows when a commit has brought it to the medium. Whatever
 * leaves waits until everything applied before it is durable:
 *
 * slot.after <= lane.durable <= lane.applied
 *
 * holds for each slot that leaves. Only the methods below move these numbers: `markDurable` asserts the second half,
 * and `shift` keeps the first.
 */

import type { Log } from "../../core/ports/store.ts";
import type { Session } from "../../core/session/session.ts";
import type { HookAnswer, HookName } from "../../handlers/shared/hooks.ts";
import { isBeside } from "../attach/words.ts";
import type { Call, Outcome, Peer } from "../connection/call.ts";
import type { Caller } from "../connection/caller.ts";
import type { Pieces } from "../connection/dialect.ts";
import type { Question } from "../connection/hooks.ts";
import type { PendingEvent } from "../connection/host.ts";
import type { Prepared } from "./sink.ts";

/** The parameters of a question to the host. */
export type Payload = Readonly<Record<string, unknown>>;

/** A question: the hosts that are asked, the hook, and its parameters. */
type HookQuestion = readonly [hooks: Caller["hooks"], name: HookName, payload: Payload];

/** The log that a read was answered from, with the losses that were known then. */
export interface ReadSource {
  readonly session: Session;
  readonly log: Log;
  readonly losses: number;
}

export function sourceOf(session: Session | null): ReadSource | undefined {
  return session ? { session, log: session.log, losses: session.log.nodes.losses } : undefined;
}

/** A call that is run later. */
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
  /** Number of the lane's writes that must be durable before this may leave. */
  after: number;
  /** Whether another process, which holds the session, has not answered yet. */
  isPassed?: boolean;
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
  /** The session it belongs to; null for the current session, whichever that is, and for calls without a session. */
  readonly sessionId: string | null;
  /** That session as it was open last, if it has a lane of its own: another one may be open with the same id. */
  session: Session | null = null;
  /** The call that is being run while others wait for it. */
  running: Call | undefined;
  /** Number of calls that are on the stack, and of which it is not known yet whether others wait for them. */
  entered = 0;
  /** Number of reads that the host makes while it is asked, and that take their time. */
  reads = 0;
  /** The question to the host that the call waits for. */
  private question: Question | undefined;
  /** Calls of a session that several hosts share, which wait for a host's answer: those of other hosts run meanwhile. */
  private readonly aside = new Map<Call, Question>();
  /** Those of them that were answered, and go on in their turn. */
  private readonly returning: { readonly call: Call; readonly goOn: () => void }[] = [];
  /** Ids, as JSON text, of the requests by which the host is asked, also for the holder of the session. */
  readonly questionIds = new Set<string>();
  readonly calls: QueuedCall[] = [];
  readonly slots: Slot[] = [];
  /** Slots that may leave and wait for room, while other processes that joined the session are answered. */
  readonly held: Slot[] = [];
  /** Number of calls that the holder of the session has been asked to run. */
  passed = 0;
  /** Number of events that the host has not heard of, because it does not read. */
  lostEvents = 0;
  private appliedWrites = 0;
  private durableWrites = 0;
  committing: Promise<void> | undefined;
  /** Time of the latest call, in milliseconds. */
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
    return this.running !== undefined || this.reads > 0;
  }

  get pending(): number {
    return this.calls.length + this.slots.length + this.held.length;
  }

  get idle(): boolean {
    return !this.busy && this.pending === 0 && this.aside.size === 0;
  }

  /** Whether nothing is under way, and nothing noted until the input chunk ends. */
  get isAtRest(): boolean {
    const isUsed = this.entered > 0 || this.committing || this.checkedForForeignWrites;
    return !isUsed && this.idle && this.isDurable;
  }

  /** Asks for consent for a call. The lane waits meanwhile; where others share the session, it is free for their calls. */
  async ask(call: Call, [hooks, name, payload]: HookQuestion, freed: () => void): Promise<HookAnswer> {
    const question = this.questionTo(hooks, name, payload);
    if (question.asks) return this.askAside(call, question, freed);
    this.question = question;
    try {
      return await question.answer;
    } finally {
      this.question = undefined;
    }
  }

  /** Waits for an answer beside the lane, and then for the lane. */
  private async askAside(call: Call, question: Question, freed: () => void): Promise<HookAnswer> {
    this.aside.set(call, question);
    if (this.running === call) {
      this.running = undefined;
      queueMicrotask(freed);
    }
    try {
      return await question.answer;
    } finally {
      await new Promise<void>((goOn) => {
        this.returning.push({ call, goOn });
        freed();
      });
    }
  }

  /** Lets a call go on that waited for an answer, if the lane is free. Returns whether one does. */
  private takeBack(): boolean {
    const next = this.busy || this.entered > 0 ? undefined : this.returning.shift();
    if (!next) return false;
    this.aside.delete(next.call);
    this.running = next.call;
    next.goOn();
    return true;
  }

  isAside(call: Call): boolean {
    return this.aside.has(call);
  }

  /** Whether any call waits for an answer while others run. */
  get hasAside(): boolean {
    return this.aside.size > 0;
  }

  /** Whether a call waits for an answer of a host. */
  get isAsking(): boolean {
    return this.question !== undefined || this.hasAside;
  }

  /** Whether a call need not wait for an answer: its host neither asked for that nor has to give it. */
  isFreeFor(call: Call): boolean {
    if (!this.hasAside) return true;
    const waits = ([{ peer }, question]: [Call, Question]): boolean =>
      peer === call.peer || question.asks?.(call.peer) === true;
    return isBeside(call) && ![...this.aside].some(waits);
  }

  /** Lets a call go on that waited for an answer, or runs the waiting calls that may run now, one after the other. */
  runWaiting(mayRun: (call: Call) => boolean, run: (next: QueuedCall) => void): void {
    if (this.takeBack()) return;
    for (let next = this.takeNext(mayRun); next; next = this.takeNext(mayRun)) run(next);
  }

  /** Takes out the waiting call that may run now: the first, or while one waits for an answer, the first of a host. */
  private takeNext(mayRun: (call: Call) => boolean): QueuedCall | undefined {
    const waiting = new Set<Peer | undefined>();
    const found = this.calls.findIndex(({ call }, at) => {
      if (at > 0 && (!this.hasAside || waiting.has(call.peer))) return false;
      waiting.add(call.peer);
      return mayRun(call);
    });
    return found < 0 ? undefined : this.calls.splice(found, 1)[0];
  }

  /** Cancels the questions of calls that are meant. */
  cancelQuestions(isMeant: (call: Call | undefined) => boolean): void {
    if (isMeant(this.running)) this.question?.cancel();
    for (const [call, question] of this.aside) if (isMeant(call)) question.cancel();
  }

  /** Asks, and has reads that the asked host makes meanwhile answered at once. */
  questionTo(hooks: Caller["hooks"], name: HookName, payload: Payload): Question {
    let id = "";
    const question = hooks.ask(name, payload, (asked) => {
      id = asked;
      this.questionIds.add(id);
    });
    return { ...question, answer: question.answer.finally(() => this.questionIds.delete(id)) };
  }

  /** Counts a write that has run. A failed one, too, may have left something to make durable: what it restored. */
  noteRun(session: Session | null, hasFailed: boolean): void {
    const wasDurable = isDurable(session);
    if (!hasFailed || !wasDurable) this.apply(wasDurable);
  }

  /** Counts a write that was applied; `settled`: it left nothing that has to be made durable. */
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
   * Queues what leaves when everything applied until now is durable. Written out, because slots of one shape, made
   * without a spread, let 120,000 replies leave in a second where 85,000 did.
   */
  push({ call, refusal, batch, outcome, readFrom, events }: Omit<Slot, "after">): void {
    const after = this.appliedWrites;
    this.slots.push({ call, refusal, batch, outcome, readFrom, prepared: undefined, events, after });
  }

  /** Queues the reply to a read of a host that is asked: what it passed on may wait for its answer. */
  pushMeanwhile(slot: Omit<Slot, "after">): void {
    const first = this.slots.findIndex(({ isPassed }) => isPassed);
    this.slots.splice(first < 0 ? this.slots.length : first, 0, { ...slot, after: this.appliedWrites });
  }

  /** Returns the last entry of the lane's session that no queued event tells of; null for none. */
  lastTold({ log: { nodes, durableCount } }: Session): string | null {
    // No event tells of a leaf marker. Before it is durable, others need not find it.
    let first = Math.min(nodes.count, durableCount);
    for (const { events } of this.slots)
      for (const { name, payload } of events)
        if (name === "session_append")
          for (const id of payload.entryIds as string[]) first = Math.min(first, nodes.position(id));
    // A marker before them is written with them, and never told of.
    while (first < nodes.count && first > 0 && nodes.isMarker(first - 1)) first--;
    return first > 0 ? nodes.id(first - 1) : null;
  }

  /** Keeps the place of a reply that the holder of the session will give. */
  reserve({ call, batch, events }: Pick<Slot, "call" | "batch" | "events">): Slot {
    const slot: Slot = { call, batch, outcome: { result: null }, events, after: this.appliedWrites, isPassed: true };
    this.slots.push(slot);
    return slot;
  }

  /** Fills a reserved place. */
  fill(slot: Slot, outcome: Outcome): void {
    slot.outcome = outcome;
    slot.after = this.appliedWrites;
    slot.isPassed = false;
  }

  /** Queues events that came from the holder: after what it has answered, and before what it has not. */
  insert(events: PendingEvent[], most: number): void {
    if (this.pending >= most) {
      this.lostEvents += events.length;
      return;
    }
    const first = this.slots.findIndex(({ isPassed }) => isPassed);
    const slot: Slot = { outcome: { result: null }, events, after: 0 };
    this.slots.splice(first < 0 ? this.slots.length : first, 0, slot);
  }

  /** Holds what may leave until the host reads again. Events alone are given up when there are too many. */
  hold(slot: Slot, most: number): void {
    if (this.held.length < most || slot.call || slot.batch || slot.refusal) this.held.push(slot);
    else this.lostEvents += slot.events.length;
  }

  /** Takes the next slot out, if it may leave. */
  shift(): Slot | undefined {
    const [next] = this.slots;
    if (!next || next.isPassed || next.after > this.durableWrites) return undefined;
    return this.slots.shift();
  }
}

/** Returns whether a session has nothing left to make durable. If the disk cannot tell, a commit will. */
function isDurable(session: Session | null): boolean {
  try {
    return session?.isDurable ?? true;
  } catch {
    return false;
  }
}
