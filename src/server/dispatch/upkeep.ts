/** Upkeep between calls: finds writes by other programs, and releases idle sessions. */

import { Failure } from "../../core/failure.ts";
import type { Log } from "../../core/ports/store.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import { fetchLostCopy } from "../../core/session/writer.ts";
import type { Call } from "../connection/call.ts";
import type { Gate } from "./gate.ts";
import type { Lane } from "./lane.ts";
import type { Lanes } from "./lanes.ts";
import type { OpenLimit } from "./open-limit.ts";
import type { Replies } from "./replies.ts";
import type { Sharing } from "./sharing.ts";
import type { Sink } from "./sink.ts";

/** Milliseconds without a command after which a session releases its lock, so that other programs can write. */
const REST_AFTER = 5 * 60_000;

/** Returns whether a session may release its lock: it has the lock, and no agent of this server writes there. */
function mayRest({ externalChanges }: Session): boolean {
  return !externalChanges.resting && !externalChanges.followsFile;
}

/** First and longest wait in milliseconds before an unreadable copy is fetched again. */
const FETCHED_AFTER = 500;
const LONGEST_FETCH_WAIT = 30_000;

/** Returns whether the file of a session is missing. */
function isGone(error: unknown): boolean {
  return error instanceof Failure && error.details.errno === "ENOENT";
}

export class Upkeep implements Gate {
  private readonly sink: Sink;
  private readonly lanes: Lanes;
  private readonly replies: Replies;
  private readonly sharing: Sharing | undefined;
  private readonly limit: OpenLimit;
  /** Sessions still to be checked in this round. */
  private turn: Session[] = [];
  private isPlanned = false;
  /** Functions that continue calls waiting to open a session, in the order of their arrival. */
  private readonly waiting: (() => void)[] = [];
  /** Sessions that could not be closed while calls wait for capacity. */
  private unclosable = new WeakSet<Session>();
  /** The times at which unreadable copies are fetched again, and the waits after that. */
  private readonly fetches = new WeakMap<Log, { readonly due: number; readonly wait: number }>();

  constructor(sink: Sink, lanes: Lanes, replies: Replies, sharing: Sharing | undefined, limit: OpenLimit) {
    this.sink = sink;
    this.lanes = lanes;
    this.replies = replies;
    this.sharing = sharing;
    this.limit = limit;
  }

  private get workspace(): Workspace {
    return this.lanes.workspace;
  }

  /** Lets a call wait until one more session may be open. Throws storage_failed if too few files may be open. */
  before(call: Call, session: Session | null): Promise<undefined> | undefined {
    const isOpening = this.mayOpen(call, session);
    const admission = isOpening ? this.awaitCapacity() : undefined;
    const requireHandles = (): undefined => {
      if (isOpening || (call.command.effect === "write" && !session?.hasLock)) this.limit.requireHandles();
    };
    return admission ? admission.then(requireHandles) : requireHandles();
  }

  /** Returns whether a call may add one more open session. */
  private mayOpen({ command, target, params }: Call, session: Session | null): boolean {
    if (target) return false;
    if (command.effect === "replace") return true;
    const { sessionId, sessionPath } = (params ?? {}) as { sessionId?: string; sessionPath?: string };
    // A call to a session that was closed for capacity opens it again.
    if (!command.opensSession)
      return target === undefined && session === null && sessionId !== undefined && command.effect !== "server";
    try {
      const { workspace } = this;
      return !(sessionPath === undefined ? workspace.openWith(sessionId ?? "") : workspace.openAt(sessionPath));
    } catch {
      // The command reports it.
      return true;
    }
  }

  /**
   * Looks for writes by other programs in idle sessions: each time in the last used ones, and in the others in turn.
   * One check costs 20 us, and those of a thousand sessions would take 4 % of a processor.
   */
  poll(): void {
    const { workspace, sink, lanes, replies, sharing } = this;
    // A reply that is being read still refers to present bytes of a file.
    if (!sink.hasCapacity) return;
    const sessions = this.selectSessions();
    for (const { log } of sessions) log.lock.renew();
    sharing?.poll(sessions);
    workspace.stores.uploadPending?.(() => workspace.sessions.map(({ log }) => log));
    for (const session of sessions) {
      const lane = lanes.ofSession(session);
      if (!lane.idle || session.holder) continue;
      this.readForeign(lane, session);
      replies.flush(lane);
      replies.reportFound(session);
      const following = session.log.replica?.follow(workspace.env.now() - lane.touched);
      // The next poll finds the entries.
      if (following) this.occupy(lane, () => following);
    }
    sink.flush();
  }

  /** Returns the sessions to check now. */
  private selectSessions(): readonly Session[] {
    const { workspace } = this;
    const { sessions, current } = workspace;
    const { lookedAt } = this.limit;
    if (sessions.length <= 2 * lookedAt) {
      this.turn = [];
      return sessions;
    }
    const others = current ? sessions.slice(1) : sessions;
    const recent = others.slice(-lookedAt);
    if (this.turn.length === 0) this.turn = others.slice(0, -lookedAt);
    const next = this.turn.splice(0, lookedAt).filter((session) => workspace.isOpen(session));
    return [...new Set([...(current ? [current] : []), ...recent, ...next])];
  }

  /** Reads entries that other programs wrote to a session. */
  readForeign(lane: Lane, session: Session): void {
    // A container finds damage in place only when it is read.
    let failure: unknown = this.replies.failedReads.get(session.log);
    try {
      lane.pushForeign(session, session.refresh());
    } catch (error) {
      failure = error;
    }
    // A missing file is reported when a command wants to write to it.
    if (!isGone(failure)) this.fetchAgain(session, failure);
  }

  /** Fetches the copy of a session again if it cannot be read; calls do not wait for that, and the next poll finds it. */
  private fetchAgain(session: Session, failure: unknown): void {
    const { log } = session;
    const { env, stores } = this.workspace;
    const known = this.fetches.get(log);
    if (known && env.now() < known.due) return;
    const fetching = fetchLostCopy(session, stores, failure);
    if (!fetching) return;
    const { wait } = known ?? { wait: FETCHED_AFTER };
    this.fetches.set(log, { due: Number.POSITIVE_INFINITY, wait });
    // The log stays until other machines can be asked, and for good if none of them has the lost entries.
    const end = (): void =>
      void this.fetches.set(log, { due: env.now() + wait, wait: Math.min(2 * wait, LONGEST_FETCH_WAIT) });
    fetching.then(() => this.replies.failedReads.delete(log)).then(end, end);
  }

  /** Releases the locks of idle sessions, and closes the least recently used ones over the limit. */
  evictIdle(): void {
    const { workspace, sink, lanes, sharing } = this;
    if (!sink.hasCapacity) return;
    const now = workspace.env.now();
    const { sessions, current } = workspace;
    const surplus = this.surplus();
    for (const session of sessions) {
      const lane = lanes.ofSession(session);
      // No call has come for a session that this server made at its start.
      lane.touched ||= now;
      if (!lane.idle || !lane.isDurable || sharing?.hasGuests(session)) continue;
      if (
        session !== current &&
        surplus.has(session) &&
        !session.externalChanges.followsFile &&
        !this.unclosable.has(session)
      )
        this.occupy(lane, () => this.suspend(session));
      else if (now - lane.touched >= REST_AFTER && session.log.persisted && mayRest(session))
        this.occupy(lane, () => session.suspend());
    }
  }

  /** Closes sessions soon after one was opened, if the limit may be exceeded before the next poll. */
  noteOpened(): void {
    if (this.limit.mayExceed(this.workspace.sessionCount)) this.closeSoon();
  }

  /** Returns a promise if a call must wait before it opens a session. */
  private awaitCapacity(): Promise<void> | undefined {
    if (this.waiting.length === 0 && !this.limit.mayExceed(this.workspace.sessionCount + 1)) return undefined;
    const isAdmitted = new Promise<void>((goOn) => this.waiting.push(goOn));
    this.closeSoon();
    return isAdmitted;
  }

  /** Closes sessions soon, and again after each call, as long as other calls wait for capacity. */
  private closeSoon(): void {
    if (this.isPlanned) return;
    this.isPlanned = true;
    setImmediate(() => {
      this.isPlanned = false;
      this.evictIdle();
      this.admit();
      if (this.waiting.length > 0) void this.lanes.nextEnd().then(() => this.closeSoon());
      else this.unclosable = new WeakSet();
    });
  }

  /** Continues as many waiting calls as the limit allows; all of them if no session can be closed any more. */
  private admit(): void {
    const { waiting } = this;
    const { sessions } = this.workspace;
    let count = 0;
    while (count < waiting.length && !this.limit.mayExceed(sessions.length + count + 1)) count++;
    const isMoreToCome = count > 0 || sessions.some((session) => this.mayBecomeIdle(session));
    for (const goOn of waiting.splice(0, isMoreToCome ? count : waiting.length)) goOn();
  }

  /** Returns whether a session has work after which it can be closed. The host may never answer a question. */
  private mayBecomeIdle(session: Session): boolean {
    const { workspace, lanes } = this;
    if (session === workspace.current || session.externalChanges.followsFile) return false;
    const lane = lanes.ofSession(session);
    return (!lane.idle || !lane.isDurable) && !lane.isAsking;
  }

  private async suspend(session: Session): Promise<void> {
    const { workspace } = this;
    try {
      await workspace.suspend(session);
    } finally {
      if (this.waiting.length > 0 && workspace.isOpen(session)) this.unclosable.add(session);
    }
  }

  private surplus(): ReadonlySet<Session> {
    const { sessions, current } = this.workspace;
    const others = current ? sessions.slice(1) : sessions;
    return this.limit.findSurplus([...(current ? [current] : []), ...others.toReversed()], this.waiting.length);
  }

  /** Runs internal work in a lane, whose calls wait for it. */
  private occupy(lane: Lane, run: () => Promise<void>): void {
    this.lanes.use(lane);
    lane.others++;
    run()
      .catch(() => {
        // The next command meets the same obstacle and reports it.
      })
      .then(() => {
        lane.others--;
        this.lanes.goOn(lane);
      });
  }
}
