/** Upkeep between calls: finds writes by other programs, and releases idle sessions. */

import type { Foreign, Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { Sharing } from "../../modules/attach/sharing.ts";
import type { Lane } from "./lane.ts";
import type { Lanes } from "./lanes.ts";
import type { OpenLimit } from "./open-limit.ts";
import type { Replies } from "./replies.ts";
import type { Sink } from "./sink.ts";

/** Milliseconds without a command after which a session releases its lock, so that other programs can write. */
const REST_AFTER = 5 * 60_000;

/** Returns whether a session may release its lock: it has the lock, and no agent of this server writes there. */
function mayRest({ externalChanges }: Session): boolean {
  return !externalChanges.resting && !externalChanges.followsFile;
}

/** Parts of the dispatcher that upkeep uses. */
interface UpkeepHost {
  readonly workspace: Workspace;
  readonly sink: Sink;
  readonly lanes: Lanes;
  readonly replies: Replies;
  /** Queues the events about changes by other programs. */
  queueForeign(lane: Lane, session: Session, foreign: Foreign | null): void;
  /** Runs the waiting calls. */
  pump(lane: Lane): void;
}

export class Upkeep {
  private readonly host: UpkeepHost;
  private readonly limit: OpenLimit;
  /** Sessions still to be checked in this round. */
  private turn: Session[] = [];
  private isPlanned = false;
  /** Functions that continue calls waiting to open a session, in the order of their arrival. */
  private readonly waiting: (() => void)[] = [];
  /** Sessions that could not be closed while calls wait for capacity. */
  private unclosable = new WeakSet<Session>();

  constructor(host: UpkeepHost, limit: OpenLimit) {
    this.host = host;
    this.limit = limit;
  }

  /**
   * Looks for writes by other programs in idle sessions: each time in the last used ones, and in the others in turn.
   * One check costs 20 us, and those of a thousand sessions would take 4 % of a processor.
   */
  poll(sharing: Sharing | undefined): void {
    const { workspace, sink, lanes, replies } = this.host;
    // A reply that is being read still refers to present bytes of a file.
    if (!sink.hasCapacity) return;
    const sessions = this.selectSessions();
    for (const { log } of sessions) log.renewLock?.();
    sharing?.hosting.renew(sessions);
    sharing?.sweep(undefined, sessions);
    workspace.stores.uploadPending?.(() => workspace.sessions.map(({ log }) => log));
    for (const session of sessions) {
      const lane = lanes.ofSession(session);
      if (!lane.idle || sharing?.attaching.of(session)) continue;
      this.readForeign(lane, session);
      replies.flush(lane);
      replies.reportFound(session);
      const following = session.log.follow?.(workspace.env.now() - lane.touched);
      // The next poll finds the entries.
      if (following) this.occupy(lane, () => following);
    }
    sink.flush();
  }

  /** Returns the sessions to check now. */
  private selectSessions(): readonly Session[] {
    const { workspace } = this.host;
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
    try {
      this.host.queueForeign(lane, session, session.refresh());
    } catch {
      // A missing file is reported when a command wants to write to it.
    }
  }

  /** Releases the locks of idle sessions, and closes the least recently used ones over the limit. */
  evictIdle(sharing: Sharing | undefined): void {
    const { workspace, sink, lanes } = this.host;
    if (!sink.hasCapacity) return;
    const now = workspace.env.now();
    const { sessions, current } = workspace;
    const getSurplus = this.surplus();
    for (const session of sessions) {
      const lane = lanes.ofSession(session);
      if (!lane.idle || !lane.isDurable || sharing?.hosting.hasGuests(session)) continue;
      if (
        session !== current &&
        getSurplus.has(session) &&
        !session.externalChanges.followsFile &&
        !this.unclosable.has(session)
      )
        this.occupy(lane, () => this.suspend(session));
      else if (now - lane.touched >= REST_AFTER && session.log.persisted && mayRest(session))
        this.occupy(lane, () => session.suspend());
    }
  }

  /** Closes sessions soon after one was opened, if the limit may be exceeded before the next poll. */
  noteOpened(sharing: Sharing | undefined): void {
    if (this.limit.mayExceed(this.host.workspace.sessionCount)) this.closeSoon(sharing);
  }

  /** Returns a promise if a call must wait before it opens a session. */
  awaitCapacity(sharing: Sharing | undefined): Promise<void> | undefined {
    if (this.waiting.length === 0 && !this.limit.mayExceed(this.host.workspace.sessionCount + 1)) return undefined;
    const isAdmitted = new Promise<void>((goOn) => this.waiting.push(goOn));
    this.closeSoon(sharing);
    return isAdmitted;
  }

  /** Closes sessions soon, and again after each call, as long as other calls wait for capacity. */
  private closeSoon(sharing: Sharing | undefined): void {
    if (this.isPlanned) return;
    this.isPlanned = true;
    setImmediate(() => {
      this.isPlanned = false;
      this.evictIdle(sharing);
      this.admit();
      if (this.waiting.length > 0) void this.host.lanes.nextEnd().then(() => this.closeSoon(sharing));
      else this.unclosable = new WeakSet();
    });
  }

  /** Continues as many waiting calls as the limit allows; all of them if no session can be closed any more. */
  private admit(): void {
    const { waiting, host } = this;
    const { sessions } = host.workspace;
    let count = 0;
    while (count < waiting.length && !this.limit.mayExceed(sessions.length + count + 1)) count++;
    const isMoreToCome = count > 0 || sessions.some((session) => this.mayBecomeIdle(session));
    for (const goOn of waiting.splice(0, isMoreToCome ? count : waiting.length)) goOn();
  }

  /** Returns whether a session has work after which it can be closed. The host may never answer a question. */
  private mayBecomeIdle(session: Session): boolean {
    const { workspace, lanes } = this.host;
    if (session === workspace.current || session.externalChanges.followsFile) return false;
    const lane = lanes.ofSession(session);
    return (!lane.idle || !lane.isDurable) && !lane.isAsking;
  }

  private async suspend(session: Session): Promise<void> {
    const { workspace } = this.host;
    try {
      await workspace.suspend(session);
    } finally {
      if (this.waiting.length > 0 && workspace.isOpen(session)) this.unclosable.add(session);
    }
  }

  private surplus(): ReadonlySet<Session> {
    const { sessions, current } = this.host.workspace;
    const others = current ? sessions.slice(1) : sessions;
    return this.limit.findSurplus([...(current ? [current] : []), ...others.toReversed()], this.waiting.length);
  }

  /** Runs internal work in a lane, whose calls wait for it. */
  private occupy(lane: Lane, run: () => Promise<void>): void {
    this.host.lanes.use(lane);
    lane.others++;
    run()
      .catch(() => {
        // The next command meets the same obstacle and reports it.
      })
      .then(() => {
        lane.others--;
        this.host.pump(lane);
        this.host.lanes.wake();
      });
  }
}
