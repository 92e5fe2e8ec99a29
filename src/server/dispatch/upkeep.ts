/** Upkeep while nothing is asked: looking for what other programs wrote, and letting go of what rests. */

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

/** Whether a session may release its lock: it has it, and no agent of ours writes there. */
function mayRest({ foreign }: Session): boolean {
  return !foreign.resting && !foreign.followsFile;
}

/** Sentinel for internal work (closing, unlocking) that occupies a lane. */
const OWN_WORK = { name: "" } as unknown as Call;

/** The dispatcher, as upkeep needs it. */
interface UpkeepHost {
  readonly workspace: Workspace;
  readonly sink: Sink;
  readonly lanes: Lanes;
  readonly replies: Replies;
  /** Queues the events about changes by other programs. */
  queueForeign(lane: Lane, session: Session, foreign: Foreign | null): void;
  /** Runs the calls that waited. */
  pump(lane: Lane): void;
}

export class Upkeep {
  private readonly host: UpkeepHost;
  private readonly room: OpenRoom;
  /** Sessions whose turn it is to be looked at. */
  private turn: Session[] = [];
  private isPlanned = false;
  /** Lets calls go on that wait for room to open a session, in the order in which they came. */
  private readonly waiting: (() => void)[] = [];
  /** Sessions that could not be closed while calls wait for room. */
  private staying = new WeakSet<Session>();

  constructor(host: UpkeepHost, room: OpenRoom) {
    this.host = host;
    this.room = room;
  }

  /**
   * Looks for what other programs wrote to sessions of which nothing is asked: to those used last each time, to others
   * each a while after the one before. A look costs 20 us, and those of a thousand would take 4 % of a processor.
   */
  poll(sharing: Sharing | undefined): void {
    const { workspace, sink, lanes, replies } = this.host;
    // A reply that is being read still refers to bytes of a file as it is now.
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
      // The next look finds what came.
      if (following) this.occupy(lane, () => following);
    }
    sink.flush();
  }

  /** Returns the sessions that are looked at now. */
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

  /** Takes in what other programs wrote to a session. */
  takeIn(lane: Lane, session: Session): void {
    try {
      this.host.queueForeign(lane, session, session.refresh());
    } catch {
      // A missing file is reported when a command wants to write to it.
    }
  }

  /** Releases the locks of sessions that rest, and closes the least recently used ones that there is no room for. */
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

  /** Closes sessions soon, where one was opened and there may be no room for it until the next look. */
  noteOpened(sharing: Sharing | undefined): void {
    if (this.room.mayLack(this.host.workspace.sessionCount)) this.makeRoomSoon(sharing);
  }

  /** Returns what a call waits for that is about to open a session; undefined where there is room for one more. */
  roomToOpen(sharing: Sharing | undefined): Promise<void> | undefined {
    if (this.waiting.length === 0 && !this.room.mayLack(this.host.workspace.sessionCount + 1)) return undefined;
    const hasRoom = new Promise<void>((goOn) => this.waiting.push(goOn));
    this.makeRoomSoon(sharing);
    return hasRoom;
  }

  /** Closes sessions soon, and again with each call that ends, as long as other calls wait for room. */
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

  /** Lets as many calls open sessions as there is room for; where no session can be closed any more, all of them. */
  private letIn(): void {
    const { waiting, host } = this;
    const { sessions } = host.workspace;
    let room = 0;
    while (room < waiting.length && !this.room.mayLack(sessions.length + room + 1)) room++;
    const isMoreToCome = room > 0 || sessions.some((session) => this.mayBecomeIdle(session));
    for (const goOn of waiting.splice(0, isMoreToCome ? room : waiting.length)) goOn();
  }

  /** Whether something is under way in a session that can be closed then. The host may never answer what it is asked. */
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
