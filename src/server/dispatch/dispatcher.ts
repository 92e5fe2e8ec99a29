/** Runs calls: those of a session as they come, applied at once, acknowledged when durable, answered in order. */

import { Failure, InvalidRequest } from "../../core/failure.ts";
import type { Foreign, Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import { notifyForeign } from "../../handlers/shared/append.ts";
import type { ClientSettings, CommandContext, Introduction, ServerFacts } from "../../handlers/shared/command.ts";
import type { Replacement } from "../../handlers/shared/events.ts";
import type { HookAnswer, HookName } from "../../handlers/shared/hooks.ts";
import type { Call, Outcome } from "../connection/call.ts";
import type { Pieces } from "../connection/dialect.ts";
import type { Hooks } from "../connection/hooks.ts";
import { eventOf, type PendingEvent } from "../connection/host.ts";
import { CallContext, type CallHost } from "./call-context.ts";
import { type KeyedParams, KeyedResults } from "./keyed-results.ts";
import { BatchReply, type Lane, type ReadSource, sourceOf } from "./lane.ts";
import { LaneCommits } from "./lane-commits.ts";
import { Lanes } from "./lanes.ts";
import { Replies } from "./replies.ts";
import type { Sink } from "./sink.ts";

/** Commands that decide themselves what they may do with a read-only session. */
const WRITES_WHERE_ALLOWED: ReadonlySet<string> = new Set([
  "branch",
  "migrate_session",
  "redo",
  "repair_session",
  "rollback_migration",
  "undo",
]);

/** Sessions that may be open at a time, including the current one; the others open again when they are named. */
const MAX_OPEN = 64;
/** Milliseconds without a command after which a session releases its lock, so that other programs can write. */
const REST_AFTER = 5 * 60_000;

/** Sentinel for internal work (closing, unlocking) that occupies a lane. */
const OWN_WORK = { name: "" } as unknown as Call;

export type BatchItem = { readonly call: Call } | { readonly refusal: Pieces };

/** Returns whether a session has nothing left to make durable. If the disk cannot tell, a commit will. */
function isDurable(session: Session | null): boolean {
  try {
    return session?.isDurable ?? true;
  } catch {
    return false;
  }
}

export class Dispatcher implements CallHost {
  readonly workspace: Workspace;
  readonly server: ServerFacts;
  readonly hooks: Hooks;
  readonly sink: Sink;
  readonly settings: ClientSettings = {
    steeringMode: "one-at-a-time",
    followUpMode: "one-at-a-time",
    autoCompactionEnabled: false,
    autoRetryEnabled: false,
  };
  private readonly lanes: Lanes;
  private readonly keyed: KeyedResults;
  private readonly replies: Replies;
  private readonly commits: LaneCommits;
  /** Whether `shutdown` was requested; then nothing new is run but `exit`. */
  private ending = false;
  private introduced = false;
  private started = false;
  private startEvent: PendingEvent | null | undefined;

  constructor(workspace: Workspace, server: ServerFacts, hooks: Hooks, sink: Sink) {
    this.workspace = workspace;
    this.server = server;
    this.hooks = hooks;
    this.sink = sink;
    this.lanes = new Lanes(workspace);
    this.keyed = new KeyedResults(workspace);
    this.replies = new Replies(this, this.lanes, (lane, call) => this.contextFor(lane, call, []));
    this.commits = new LaneCommits(sink, this.lanes, this.replies, this.keyed);
  }

  /** Number of calls and replies that are not out yet; input is paused when there are too many. */
  get pending(): number {
    return this.lanes.pending;
  }

  // --- what comes in -------------------------------------------------------------------------------------------

  inFlight(idText: string): boolean {
    return this.replies.awaitedIds.has(idText);
  }

  submit(named: Call, batch?: BatchReply): void {
    this.noteStart();
    if (named.idText !== undefined) this.replies.awaitedIds.add(named.idText);
    this.enqueue(this.lanes.resolved(named), batch);
  }

  private enqueue(call: Call, batch?: BatchReply): void {
    const lane = this.lanes.ofCall(call);
    lane.touched = this.workspace.env.now();
    const isMeanwhile = lane.questionId !== undefined && this.asksWhile(call, lane.questionId);
    if (!isMeanwhile && (lane.busy || lane.calls.length > 0)) lane.calls.push({ call, batch });
    else this.run(lane, call, batch);
  }

  refuse(refusal: Pieces): void {
    const { main } = this.lanes;
    main.push({ refusal, outcome: { result: null }, events: [] });
    this.replies.flush(main);
  }

  /**
   * Cancels a call that has not been run yet, or that waits for the host's consent: it is not run, and fails with
   * `cancelled`. A call that has been run is applied whole, and its ordinary reply says so.
   */
  cancel(idText: string): void {
    for (const lane of this.lanes) {
      if (lane.running?.idText === idText) lane.question?.cancel();
      const waiting = lane.calls.find(({ call }) => call.idText === idText);
      if (!waiting) continue;
      // The call keeps its place, so that its reply comes in its turn.
      waiting.call = { ...waiting.call, fault: new Failure("cancelled") };
      return;
    }
  }

  submitBatch(items: readonly BatchItem[]): void {
    const { main } = this.lanes;
    const batch = new BatchReply();
    batch.waiting = 1;
    for (const item of items) {
      if ("refusal" in item) batch.refusals.push(item.refusal);
      else {
        batch.waiting++;
        this.submit(item.call, batch);
      }
    }
    batch.waiting--;
    if (batch.waiting > 0) return;
    main.push({ batch, outcome: { result: null }, events: [] });
    this.replies.flush(main);
  }

  /** Ends an input chunk: everything applied in it becomes durable together. */
  commitPending(): void {
    this.commits.commitAll();
  }

  /** Continues after the reader has room again. */
  resume(): void {
    for (const lane of this.lanes) this.replies.flush(lane);
    this.sink.flush();
  }

  /** Resolves when every call that was submitted has been answered. */
  idle(): Promise<void> {
    this.commitPending();
    return this.lanes.idle();
  }

  poll(): void {
    // A reply that is being read still refers to bytes of a file as it is now.
    if (this.ending || !this.sink.hasRoom) return;
    for (const session of this.workspace.sessions) {
      const lane = this.lanes.ofSession(session);
      if (!lane.idle) continue;
      try {
        this.queueForeign(lane, session, session.refresh());
      } catch {
        // A missing file is reported when a command wants to write to it.
      }
      this.replies.flush(lane);
    }
    this.sink.flush();
  }

  /** Queues the events about changes by other programs, so that the host hears of them before anything else leaves. */
  private queueForeign(lane: Lane, session: Session, foreign: Foreign | null): void {
    if (!foreign) return;
    const events: PendingEvent[] = [];
    notifyForeign(session, foreign, (name, payload) => events.push(eventOf(session, name, payload)));
    lane.push({ outcome: { result: null }, events });
  }

  /** Releases the locks of sessions that rest, and closes the least recently used ones beyond `MAX_OPEN`. */
  evictIdle(): void {
    if (!this.sink.hasRoom) return;
    const now = this.workspace.env.now();
    const { sessions, current } = this.workspace;
    this.lanes.dropClosed();
    for (const [index, session] of sessions.entries()) {
      const lane = this.lanes.ofSession(session);
      if (!lane.idle || !lane.isDurable) continue;
      if (session !== current && index <= sessions.length - MAX_OPEN) {
        const drop = (): void => this.lanes.drop(session.id);
        this.occupy(lane, () => this.workspace.suspend(session), drop);
      } else if (now - lane.touched >= REST_AFTER && session.log.persisted && !session.foreign.resting)
        this.occupy(lane, () => session.suspend());
    }
  }

  /** Runs internal work in a lane, whose calls wait for it. */
  private occupy(lane: Lane, run: () => Promise<void>, done: () => void = () => {}): void {
    lane.running = OWN_WORK;
    run()
      .catch(() => {
        // The next command meets the same obstacle and reports it.
      })
      .then(() => {
        lane.running = undefined;
        if (lane.calls.length === 0) done();
        this.pump(lane);
        this.lanes.wake();
      });
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

  private run(lane: Lane, call: Call, batch?: BatchReply): void {
    const events: PendingEvent[] = [];
    const readFrom = call.command.effect === "read" ? sourceOf(this.lanes.sessionOf(lane)) : undefined;
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
    const isRead = lane.running !== undefined;
    if (isRead) lane.reads++;
    else lane.running = call;
    result
      .then(
        (value): Outcome => ({ result: value }),
        (error): Outcome => ({ error }),
      )
      .then((outcome) => {
        if (isRead) lane.reads--;
        else lane.running = undefined;
        this.finish(lane, call, batch, outcome, events);
        this.pump(lane);
        this.commitPending();
        this.lanes.wake();
      });
  }

  /** Returns whether a call is a read that the host makes while it is asked. It sees the session before the change. */
  private asksWhile(call: Call, questionId: string): boolean {
    const { _meta } = (call.params ?? {}) as { _meta?: { hook?: string | number } };
    return call.command.effect === "read" && _meta?.hook !== undefined && JSON.stringify(_meta.hook) === questionId;
  }

  private pump(lane: Lane): void {
    while (!lane.busy) {
      const next = lane.calls.shift();
      if (!next) return;
      // What came before it may have opened, closed or replaced the session that it names.
      const call = this.lanes.resolved(next.call);
      // A session that was opened meanwhile has an order of its own.
      if (lane === this.lanes.sessionless && call.target) this.enqueue(call, next.batch);
      else this.run(lane, call, next.batch);
    }
  }

  private execute(lane: Lane, call: Call, events: PendingEvent[]): unknown {
    if (call.fault !== undefined) throw call.fault;
    const { command } = call;
    if (this.ending && command.name !== "exit") throw new Failure("shutting_down");
    if (command.name === "initialize" && this.introduced)
      throw new InvalidRequest("initialize was answered already; it is sent only once.");
    const context = this.contextFor(lane, call, events);
    const run = (): unknown => command.run(context, call.params as never);
    const { effect } = command;
    if (call.target === null || effect === "read" || effect === "server" || effect === "control") return run();
    if (effect === "close") return this.commits.whenDurable(lane, run);
    const { expectedLeafId, idempotencyKey } = call.params as KeyedParams;
    if (effect === "write") {
      const known = idempotencyKey === undefined ? undefined : this.keyed.ofWrite(context, call, idempotencyKey);
      if (known !== undefined) return known;
      const { session } = context;
      // One check serves a whole input chunk; the append itself finds what others write meanwhile.
      if (lane.checkedForForeignWrites !== session) this.queueForeign(lane, session, session.refreshToWrite());
      lane.checkedForForeignWrites = session;
      session.guard(expectedLeafId, WRITES_WHERE_ALLOWED.has(command.name));
      return this.keyed.remember(call, run());
    }
    return this.commits.whenDurable(lane, async () => {
      // A fork may be of a session with a lane of its own, and copies nothing that may still be undone there.
      const { sessionId } = call.params as { sessionId?: string };
      if (sessionId !== undefined) await this.lanes.finish(sessionId, () => this.commitPending());
      if (idempotencyKey !== undefined) {
        const known = await this.keyed.ofReplacement(context, call, idempotencyKey);
        if (known !== undefined) return known;
      }
      if (expectedLeafId !== undefined) context.session.guard(expectedLeafId, true);
      return this.keyed.remember(call, await run());
    });
  }

  private finish(
    lane: Lane,
    call: Call,
    batch: BatchReply | undefined,
    ran: Outcome,
    events: PendingEvent[],
    readFrom?: ReadSource,
  ): void {
    const outcome = this.replies.shaped(call, ran);
    const failed = "error" in outcome;
    // A failed write, too, may have left something to make durable: the state that it restored.
    if (call.command.effect === "write") {
      const wasDurable = isDurable(this.lanes.sessionOf(lane));
      if (!failed || !wasDurable) lane.apply(wasDurable);
    }
    lane.push({ call, batch, outcome, readFrom, events: failed ? [] : events });
    this.replies.flush(lane);
  }

  private contextFor(lane: Lane, call: Call, events: PendingEvent[]): CommandContext {
    return new CallContext(this, call, events, (name, payload) => this.ask(lane, name, payload));
  }

  /** Asks the host for its consent; the lane waits meanwhile. */
  private async ask(lane: Lane, name: HookName, payload: Readonly<Record<string, unknown>>): Promise<HookAnswer> {
    const question = this.hooks.ask(name, payload, (id) => {
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

  introduce(wishes: Introduction): void {
    this.introduced = true;
    this.sink.introduce(wishes);
  }

  shutDown(how?: { atOnce: boolean }): boolean {
    const isFirst = !this.ending;
    this.ending = true;
    this.sink.shutDown(how);
    return isFirst;
  }

  async replace(next: Session, replacement: Replacement, events: PendingEvent[]): Promise<void> {
    const { reason, fork } = replacement;
    await this.lanes.finish(next.id, () => this.commitPending());
    this.lanes.drop(next.id);
    const before = this.workspace.current;
    const left = before && eventOf(before, "session_shutdown", { reason, targetSessionFile: next.file });
    await this.workspace.replace(next);
    if (left) events.push(left);
    const previousSessionFile = before?.file ?? null;
    if (fork) events.push(eventOf(next, "session_fork", { ...fork, sessionFile: next.file, previousSessionFile }));
    const start = { reason, sessionFile: next.file, ...(before ? { previousSessionFile } : {}) };
    events.push(eventOf(next, "session_start", start));
  }
}
