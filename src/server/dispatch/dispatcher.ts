/** Runs calls: in order within a session, applied at once, acknowledged when durable, answered in order. */

import { Failure, InvalidRequest, isAway } from "../../core/failure.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type {
  ClientSettings,
  CommandContext,
  Introduction,
  PresentClient,
  ServerFacts,
} from "../../handlers/shared/command.ts";
import type { Replacement } from "../../handlers/shared/events.ts";
import type { HookName } from "../../handlers/shared/hooks.ts";
import { isForHolder } from "../../handlers/shared/repetition.ts";
import { type Call, isNestedRead, type Outcome, type Peer, type Question } from "../connection/call.ts";
import type { Caller } from "../connection/caller.ts";
import type { Pieces } from "../connection/dialect.ts";
import { makeEvent, type PendingEvent } from "../connection/events.ts";
import type { Hooks } from "../connection/hooks.ts";
import { CallContexts } from "./call-context.ts";
import { keepFoundEvents } from "./found-events.ts";
import { askGates, type Gate, Redirection } from "./gate.ts";
import { hasEntriesOf, type KeyedParams, KeyedResults, toKeyedError } from "./keyed-results.ts";
import { BatchReply, getReadSource, type Lane, type Payload, type QueuedCall, type ReadSource } from "./lane.ts";
import { LaneCommits } from "./lane-commits.ts";
import { Lanes } from "./lanes.ts";
import type { OpenLimit } from "./open-limit.ts";
import { OwnPresence } from "./own-presence.ts";
import { Replies } from "./replies.ts";
import type { Sharing, SharingServer, SharingStart } from "./sharing.ts";
import type { Sink } from "./sink.ts";
import { Upkeep } from "./upkeep.ts";
import { Writes } from "./writes.ts";

/** Most events of a lane that wait for a host that does not read; beyond, they are dropped. */
const MAX_QUEUED_EVENTS = 10_000;

/** How work of this server runs: by default it waits for the calls of its session, and keeps the session. */
interface WorkInOrder {
  /** `read` may be answered again from another log; `replace` waits until all changes of the session are durable. */
  readonly effect?: "control" | "read" | "replace";
  /** True if it opens one more session. */
  readonly opensSession?: boolean;
}

const makeNoText: Call["messageText"] = () => ({ bytes: Buffer.alloc(0), range: { start: 0, end: 0 }, toParams: [] });

export type BatchItem = { readonly call: Call } | { readonly refusal: Pieces };

interface DispatcherParts {
  readonly workspace: Workspace;
  readonly server: ServerFacts;
  readonly hooks: Hooks;
  readonly sink: Sink;
  readonly limit: OpenLimit;
}

export class Dispatcher implements Caller, SharingServer {
  readonly workspace: Workspace;
  readonly server: ServerFacts;
  readonly hooks: Hooks;
  readonly sink: Sink;
  readonly presence: OwnPresence;
  readonly settings: ClientSettings = {
    steeringMode: "one-at-a-time",
    followUpMode: "one-at-a-time",
    autoCompactionEnabled: false,
    autoRetryEnabled: false,
  };
  /** The sessions that other processes share; undefined if this process works alone. */
  readonly sharing: Sharing | undefined;
  /** Decide about each call, in this order. */
  private readonly gates: Gate[];
  private readonly lanes: Lanes;
  private readonly keyed: KeyedResults;
  private readonly contexts: CallContexts;
  private readonly replies: Replies;
  private readonly commits: LaneCommits;
  private readonly upkeep: Upkeep;
  private readonly writes: Writes;
  /** True if `shutdown` was requested; then only `exit` still runs. */
  private ending = false;
  /** True if replies have no reader any more; then calls that only read are dropped. */
  private isUnheard = false;
  /** Functions that end slow reads, each with a failure. */
  private readonly reading = new Set<(outcome: Outcome) => void>();
  private introduced = false;

  constructor(
    { workspace, server, hooks, sink, limit }: DispatcherParts,
    /** Shares sessions with other processes; by default this process works alone. */
    sharing?: SharingStart,
  ) {
    this.workspace = workspace;
    this.server = server;
    this.hooks = hooks;
    this.sink = sink;
    this.presence = new OwnPresence(workspace.env);
    this.lanes = new Lanes(workspace, (lane) => this.goOn(lane));
    this.keyed = new KeyedResults(workspace);
    this.sharing = sharing?.share(this);
    this.contexts = new CallContexts(this, this.lanes, this.sharing);
    this.replies = new Replies(sink, this.contexts);
    this.commits = new LaneCommits(sink, this.lanes, this.replies, this.keyed);
    this.upkeep = new Upkeep(sink, this.lanes, this.replies, this.sharing, limit);
    this.writes = new Writes(this.keyed, this.sharing);
    this.gates = [...(this.sharing ? [this.sharing] : []), this.upkeep];
  }

  /** Asks a gate of an agent about calls from now on, after the others. */
  addGate(gate: Gate): void {
    this.gates.push(gate);
  }

  /** Number of calls and replies that are not sent yet; input is paused when there are too many. */
  get pending(): number {
    return this.lanes.pending;
  }

  // --- input ---------------------------------------------------------------------------------------------------

  inFlight(idText: string): boolean {
    return this.replies.awaitedIds.has(idText);
  }

  submit(named: Call, batch?: BatchReply): void {
    this.replies.noteStart();
    if (named.peer) return this.enqueue(named);
    if (named.idText !== undefined) this.replies.awaitedIds.add(named.idText);
    this.enqueue(this.lanes.resolved(named), batch);
  }

  private enqueue(call: Call, batch?: BatchReply): void {
    const lane = this.lanes.ofCall(call);
    lane.touched = this.workspace.env.now();
    if (isNestedRead(call, lane.questionIds) || (lane.calls.length === 0 && this.isNext(lane, call)))
      return this.run(lane, call, batch);
    lane.calls.push({ call, batch });
    if (lane.hasSuspended) this.pump(lane);
  }

  /** Returns whether a call may run now: while the holder of the session runs calls, only calls for the holder may. */
  private isNext(lane: Lane, call: Call): boolean {
    if (!lane.isFreeFor(call)) return false;
    if (lane.busy || lane.passed === 0) return !lane.busy;
    // Calls sent to a holder that is gone run here first.
    return !call.command.runsAlone && isForHolder(call) && this.lanes.sessionOf(lane)?.holder !== undefined;
  }

  /**
   * Runs work of this server in the order of a session's calls, by default of the current session's. Resolves to its
   * result once all changes until then are durable; rejects with its failure, or with shutting_down when the server is
   * ending and has not run it.
   */
  runInOrder<T>(
    sessionId: string | undefined,
    work: (context: CommandContext) => T | Promise<T>,
    { effect = "control", opensSession }: WorkInOrder = {},
  ): Promise<T> {
    return new Promise((resolve, reject) => {
      const answer = (outcome: Outcome): void =>
        "error" in outcome ? reject(outcome.error) : resolve(outcome.result as T);
      const command = { name: "", effect, opensSession, run: work };
      const params = sessionId === undefined ? {} : { sessionId };
      this.submit({ command, name: "", params, idText: undefined, messageText: makeNoText, answer });
      this.commitPending();
    });
  }

  refuse(refusal: Pieces): void {
    const { main } = this.lanes;
    main.push({ refusal, outcome: { result: null }, events: [] });
    this.replies.flush(main);
  }

  /**
   * Cancels a call that has not run yet or waits for the host's consent: it fails with `cancelled`. A call that has run
   * is applied whole, and gets its ordinary reply.
   */
  cancel(idText: string, peer?: Peer): void {
    const isMeant = (call: Call | undefined): boolean => call?.idText === idText && call.peer === peer;
    for (const lane of this.lanes) {
      lane.cancelRunning(isMeant);
      const waiting = lane.calls.find(({ call }) => isMeant(call));
      if (!waiting) continue;
      // The call keeps its position, so that its reply stays in order.
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

  /** Continues after the reader caught up. */
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
    if (!this.ending) this.upkeep.poll();
  }

  evictIdle(): void {
    this.upkeep.evictIdle();
  }

  start(): void {
    this.replies.start();
  }

  /** Reads entries that another program, such as an agent, wrote to a session. */
  readForeign(session: Session): void {
    this.upkeep.readForeign(this.lanes.ofSession(session), session);
  }

  // --- sessions that several processes share -------------------------------------------------------------------

  get canSendEvents(): boolean {
    return this.sink.canSendEvents;
  }

  clientsOf(session: Session): readonly PresentClient[] {
    const alone = { ...this.presence.on(session), isHolder: session.hasLock, isSelf: true };
    return this.sharing?.clientsOf(session) ?? [alone];
  }

  alone<T>(session: Session, doing: string, run: () => T): T {
    return this.sharing ? this.sharing.alone(session, doing, run) : run();
  }

  passOn(session: Session, events: PendingEvent[]): void {
    const lane = this.lanes.ofSession(session);
    lane.insert(events, MAX_QUEUED_EVENTS);
    this.replies.flush(lane);
    this.sink.flush();
  }

  missed(session: Session, count: number): void {
    this.lanes.ofSession(session).lostEvents += count;
    this.passOn(session, []);
  }

  /** Reports the changes by other programs that were found and not reported yet. */
  reportForeign(session: Session): void {
    this.lanes.ofSession(session).pushForeign(session, session.externalChanges.fresh());
  }

  lastReported(session: Session): string | null {
    this.reportForeign(session);
    return this.lanes.ofSession(session).lastReported(session);
  }

  /** Passes a call to the process that runs it. */
  private pass(lane: Lane, call: Call, batch: BatchReply | undefined, { runner }: Redirection): void {
    const events: PendingEvent[] = [];
    const slot = lane.reserve({ call, batch, events, runner });
    lane.passed++;
    if (call.command.runsAlone) lane.running = call;
    let running = call;
    const runHere = (keyed: Call): unknown => {
      lane.running = running = keyed;
      return this.perform(lane, keyed, events);
    };
    const settle = (outcome: Outcome): void => {
      if ("result" in outcome && outcome.result instanceof Redirection) {
        slot.runner = outcome.result.runner;
        const { idempotencyKey: key } = running.params as KeyedParams;
        return slot.runner.pass({ call, key, events, runHere, settle });
      }
      lane.passed--;
      if (lane.running === running) lane.running = undefined;
      if (running !== call) this.noteApplied(lane, outcome);
      if ("error" in outcome) events.splice(0, events.length, ...keepFoundEvents(this.lanes.sessionOf(lane), events));
      lane.fill(slot, this.replies.shaped(call, outcome));
      this.replies.flush(lane);
      this.goOn(lane);
    };
    runner.pass({ call, events, runHere, settle });
  }

  // --- running -------------------------------------------------------------------------------------------------

  private run(lane: Lane, call: Call, batch?: BatchReply): void {
    const events: PendingEvent[] = [];
    const readFrom = call.command.effect === "read" ? getReadSource(this.lanes.sessionOf(lane)) : undefined;
    let result: unknown;
    lane.entered++;
    try {
      result = this.execute(lane, call, events);
    } catch (error) {
      return this.settle(lane, call, batch, { error }, events);
    } finally {
      lane.entered--;
    }
    if (result instanceof Redirection) return this.pass(lane, call, batch, result);
    if (!(result instanceof Promise)) return this.settle(lane, call, batch, { result }, events, readFrom);
    const isRead = lane.running !== undefined;
    if (isRead) lane.others++;
    else if (!lane.isSuspended(call)) lane.running = call;
    let hasEnded = false;
    const end = (outcome: Outcome): void => {
      if (hasEnded) return;
      hasEnded = true;
      this.reading.delete(end);
      if (isRead) lane.others--;
      else lane.running = undefined;
      if ("result" in outcome && outcome.result instanceof Redirection) this.pass(lane, call, batch, outcome.result);
      else this.settle(lane, call, batch, outcome, events);
      this.goOn(lane);
    };
    if (isReadOnly(call)) this.reading.add(end);
    result
      .then(
        (value): Outcome => ({ result: value }),
        (error): Outcome => ({ error }),
      )
      .then(end);
  }

  /** Drops all calls that only read, because replies have no reader. Returns whether there were any. */
  leaveReads(): boolean {
    this.isUnheard = true;
    const left = [...this.reading];
    for (const end of left) end({ error: new Failure("shutting_down") });
    return left.length > 0;
  }

  /** Runs the calls that a lane can run now; during a pause in the input, their changes become durable at once. */
  private goOn(lane: Lane): void {
    for (const next of [...this.lanes.takeMoved(), lane]) this.pump(next);
    this.commitPending();
    this.lanes.wake();
  }

  private pump(lane: Lane): void {
    lane.runWaiting(
      (call) => this.isNext(lane, call),
      (next) => this.runQueued(lane, next),
    );
  }

  private runQueued(lane: Lane, next: QueuedCall): void {
    // Earlier calls may have opened, closed or replaced the named session.
    const call = this.lanes.resolved(next.call);
    if (this.lanes.isElsewhere(lane, call)) this.enqueue(call, next.batch);
    else this.run(lane, call, next.batch);
  }

  private execute(lane: Lane, call: Call, events: PendingEvent[]): unknown {
    if (call.fault !== undefined) throw call.fault;
    const { command } = call;
    if ((this.ending && !command.runsAtEnd) || (this.isUnheard && isReadOnly(call))) throw new Failure("shutting_down");
    if (call.peer && !this.workspace.isOpen(call.target as Session)) throw new Failure("shutting_down");
    if (command.introduces && this.introduced)
      throw new InvalidRequest("initialize was answered already; it is sent only once.");
    const perform = (): unknown => this.perform(lane, call, events);
    const decision = askGates(this.gates, call, this.lanes.getSession(lane, call));
    return decision instanceof Promise
      ? decision.then((redirection) => redirection ?? perform())
      : (decision ?? perform());
  }

  /** Runs a call whose preconditions hold. */
  private perform(lane: Lane, call: Call, events: PendingEvent[]): unknown {
    const { command } = call;
    const context = this.contexts.make(lane, call, events);
    const run = (): unknown => command.run(context, call.params as never);
    const { effect } = command;
    if (effect === "write" && call.target === null) return this.writes.runClosed(call, context);
    if (call.target === null || effect === "read" || effect === "server" || effect === "control") return run();
    if (effect === "close") return this.commits.whenDurable(lane, run);
    if (effect === "write") return this.writes.run(lane, call, context, events);
    const { expectedLeafId, idempotencyKey } = call.params as KeyedParams;
    return this.commits.whenDurable(lane, async () => {
      // A fork may copy a session with its own lane, but never changes there that may still be undone.
      const { sessionId } = call.params as { sessionId?: string };
      if (sessionId !== undefined) {
        await this.lanes.finish(this.workspace.openWith(sessionId) ?? sessionId, this.commits);
        const named = this.workspace.openWith(sessionId);
        if (named) this.sharing?.follow(named);
      }
      const findKnown = async (): Promise<unknown> =>
        idempotencyKey === undefined ? undefined : this.keyed.ofReplacement(context, call, idempotencyKey);
      const known = await findKnown();
      if (known !== undefined) return known;
      if (expectedLeafId !== undefined) context.session.guard(expectedLeafId, true);
      try {
        return this.keyed.remember(call, await run());
      } catch (error) {
        // Another process may have made the session of this key meanwhile.
        const isThere = error instanceof Failure && error.name === "already_exists";
        const made = isThere ? await findKnown() : undefined;
        if (made === undefined) throw error;
        return made;
      }
    });
  }

  private noteApplied(lane: Lane, outcome: Outcome): void {
    const session = this.lanes.sessionOf(lane);
    lane.noteRun(session, "error" in outcome);
    this.sharing?.plan(session);
  }

  /** Ends a call after its run. */
  private settle(
    lane: Lane,
    call: Call,
    batch: BatchReply | undefined,
    ran: Outcome,
    events: PendingEvent[],
    readFrom?: ReadSource,
  ): void {
    const isFailedWrite = "error" in ran && call.command.effect === "write";
    const outcome = this.replies.shaped(call, isFailedWrite ? { error: toKeyedError(call, ran.error) } : ran);
    const left = "error" in outcome ? keepFoundEvents(this.lanes.sessionOf(lane), events) : events;
    if (call.command.effect === "write") {
      this.noteApplied(lane, outcome);
      const session = this.lanes.sessionOf(lane);
      if ("error" in ran && isAway(ran.error) && call.fault === undefined)
        lane.failWaitingWrites(ran.error, (waiting) => hasEntriesOf(session, waiting));
    } else if (call.command.effect !== "read") this.sharing?.plan();
    else if ("error" in ran) this.replies.noteFailedRead(this.lanes.sessionOf(lane), ran.error);
    // Any call that names a session may have opened it.
    this.upkeep.noteOpened();
    // A host with its own leaf from the start gets no event about another leaf.
    if (call.command.introduces && this.workspace.current?.heads.own) this.replies.noteStart(true);
    const slot = { call, batch, outcome, readFrom, events: left };
    // Only reads of a host that is being asked overtake calls passed to the holder.
    if (lane.passed > 0 && call.command.effect === "read") lane.pushMeanwhile(slot);
    else lane.push(slot);
    this.replies.flush(lane);
  }

  askForHolder(session: Session, name: HookName, payload: Payload): Question {
    return this.lanes.ofSession(session).questionTo(this.hooks, name, payload);
  }

  introduce(introduction: Introduction): void {
    this.introduced = true;
    this.sink.introduce(introduction);
    if (introduction.hooks) this.hooks.register(introduction.hooks);
    this.presence.introduce(introduction);
    this.sharing?.introduce();
  }

  shutDown(how?: { atOnce: boolean }): boolean {
    const isFirst = !this.ending;
    this.ending = true;
    this.sink.shutDown(how);
    return isFirst;
  }

  async replace(next: Session, { reason, fork }: Replacement, events: PendingEvent[]): Promise<void> {
    const before = this.workspace.current;
    const ready = (): Promise<void> => this.lanes.finish(next, this.commits);
    const left = before && makeEvent(before, "session_shutdown", { reason, targetSessionFile: next.file });
    // Later calls belong to the lane of the current session, which is set in the same turn.
    await this.workspace.replace(next, ready, () => this.lanes.moveFrom(before));
    const [sessionFile, previousSessionFile] = [next.file, before?.file ?? null];
    if (left) events.push(left);
    if (fork) events.push(makeEvent(next, "session_fork", { ...fork, sessionFile, previousSessionFile }));
    const came = { reason, sessionFile, ...(before ? { previousSessionFile } : {}) };
    events.push(makeEvent(next, "session_start", came));
  }
}

/** Returns whether a call of the local host only reads. */
function isReadOnly({ command: { effect, repeatable }, peer }: Call): boolean {
  return !peer && (effect === "read" || (effect === "server" && repeatable === true));
}
