/** Upkeep between calls: finds writes by other programs, and releases idle sessions. */

import type { Foreign, Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { Sharing } from "../attach/sharing.ts";
import type { Call } from "../connection/call.ts";
import type { Lane } from "./lane.ts";
import type { Lanes } from "./lanes.ts";
import type { OpenRoom } from "./open-room.ts";
import type { Replies } from "./replies.ts";
import type { Sink } from "./sink.ts";

/** Milliseconds without a command after which a session releases its lock, so that other programs can write. */
const REST_AFTER = 5 * 60_000;

/** Returns whether a session may release its lock: it has the lock, and no agent of this server writes there. */
function mayRest({ foreign }: Session): boolean {
  return !foreign.resting && !foreign.followsFile;
}

/** Sentinel for internal work (closing, unlocking) that occupies a lane. */
const OWN_WORK = { name: "" } as unknown as Call;

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
  private readonly room: OpenRoom;
  /** Sessions still to be checked in this round. */
  private turn: Session[] = [];
  private isPlanned = false;
  /** Functions that continue calls waiting to open a session, in the order of their arrival. */
  private readonly waiting: (() => void)[] = [];
  /** Sessions that could not be closed while calls wait for capacity. */
  private staying = new WeakSet<Session>();

  constructor(host: UpkeepHost, room: OpenRoom) {
    this.host = host;
    this.room = room;
  }

  /**
   * Looks for writes by other programs in idle sessions: each time in the last used ones, and in the others in turn.
   * One check costs 20 us, and those of a thousand sessions would take 4 % of a processor.
   */
  poll(sharing: Sharing | undefined): void {
    const { workspace, sink, lanes, replies } = this.host;
    // A reply that is being read still refers to present bytes of a file.
    if (!sink.hasRoom) return;
    const sessions = this.inTurn();
    for (const { log } of sessions) log.renewLock?.();
    sharing?.hosting.renew(sessions);
    sharing?.sweep(undefined, sessions);
    workspace.stores.giveOwed?.(() => workspace.sessions.map(({ log }) => log));
    for (const session of sessions) {
      const lane = lanes.ofSession(session);
      if (!lane.idle || sharing?.attaching.of(session)) continue;
      this.takeIn(lane, session);
      replies.flush(lane);
      replies.reportFound(session);
      const following = session.log.follow?.(workspace.env.now() - lane.touched);
      // The next poll finds the entries.
      if (following) this.occupy(lane, () => following);
    }
    sink.flush();
  }

  /** Returns the sessions to check now. */
  private inTurn(): readonly Session[] {
    const { workspace } = this.host;
    const { sessions, current } = workspace;
    const { lookedAt } = this.room;
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
  takeIn(lane: Lane, session: Session): void {
    try {
      this.host.queueForeign(lane, session, session.refresh());
    } catch {
      // A missing file is reported when a command wants to write to it.
    }
  }

  /** Releases the locks of idle sessions, and closes the least recently used ones over the limit. */
  evictIdle(sharing: Sharing | undefined): void {
    const { workspace, sink, lanes } = this.host;
    if (!sink.hasRoom) return;
    const now = workspace.env.now();
    const { sessions, current } = workspace;
    const surplus = this.surplus();
    for (const session of sessions) {
      const lane = lanes.ofSession(session);
      if (!lane.idle || !lane.isDurable || sharing?.hosting.hasGuests(session)) continue;
      if (session !== current && surplus.has(session) && !session.foreign.followsFile && !this.staying.has(session))
        this.occupy(lane, () => this.suspend(session));
      else if (now - lane.touched >= REST_AFTER && session.log.persisted && mayRest(session))
        this.occupy(lane, () => session.suspend());
    }
  }

  /** Closes sessions soon after one was opened, if the limit may be exceeded before the next poll. */
  noteOpened(sharing: Sharing | undefined): void {
    if (this.room.mayLack(this.host.workspace.sessionCount)) this.makeRoomSoon(sharing);
  }

  /** Returns a promise if a call must wait before it opens a session. */
  roomToOpen(sharing: Sharing | undefined): Promise<void> | undefined {
    if (this.waiting.length === 0 && !this.room.mayLack(this.host.workspace.sessionCount + 1)) return undefined;
    const hasRoom = new Promise<void>((goOn) => this.waiting.push(goOn));
    this.makeRoomSoon(sharing);
    return hasRoom;
  }

  /** Closes sessions soon, and again after each call, as long as other calls wait for capacity. */
  private makeRoomSoon(sharing: Sharing | undefined): void {
    if (this.isPlanned) return;
    this.isPlanned = true;
    setImmediate(() => {
      this.isPlanned = false;
      this.evictIdle(sharing);
      this.letIn();
      if (this.waiting.length > 0) void this.host.lanes.nextEnd().then(() => this.makeRoomSoon(sharing));
      else this.staying = new WeakSet();
    });
  }

  /** Continues as many waiting calls as the limit allows; all of them if no session can be closed any more. */
  private letIn(): void {
    const { waiting, host } = this;
    const { sessions } = host.workspace;
    let room = 0;
    while (room < waiting.length && !this.room.mayLack(sessions.length + room + 1)) room++;
    const isMoreToCome = room > 0 || sessions.some((session) => this.mayBecomeIdle(session));
    for (const goOn of waiting.splice(0, isMoreToCome ? room : waiting.length)) goOn();
  }

  /** Returns whether a session has work after which it can be closed. The host may never answer a question. */
  private mayBecomeIdle(session: Session): boolean {
    const { workspace, lanes } = this.host;
    if (session === workspace.current || session.foreign.followsFile) return false;
    const lane = lanes.ofSession(session);
    return (!lane.idle || !lane.isDurable) && !lane.isAsking;
  }

  private async suspend(session: Session): Promise<void> {
    const { workspace } = this.host;
    try {
      await workspace.suspend(session);
    } finally {
      if (this.waiting.length > 0 && workspace.isOpen(session)) this.staying.add(session);
    }
  }

  private surplus(): ReadonlySet<Session> {
    const { sessions, current } = this.host.workspace;
    const others = current ? sessions.slice(1) : sessions;
    return this.room.beyond([...(current ? [current] : []), ...others.toReversed()], this.waiting.length);
  }

  /** Runs internal work in a lane, whose calls wait for it. */
  private occupy(lane: Lane, run: () => Promise<void>): void {
    this.host.lanes.use(lane);
    lane.running = OWN_WORK;
    run()
      .catch(() => {
        // The next command meets the same obstacle and reports it.
      })
      .then(() => {
        lane.running = undefined;
        this.host.pump(lane);
        this.host.lanes.wake();
      });
  }
}
