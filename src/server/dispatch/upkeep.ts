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
export interface UpkeepHost {
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
      const following = session.log.follow?.();
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
      // One that is still on its way here has no file yet from which it could be opened again.
      if (!lane.idle || !lane.isDurable || session.log.arrival || sharing?.hosting.hasGuests(session)) continue;
      if (session !== current && surplus.has(session) && !session.foreign.followsFile)
        this.occupy(lane, () => workspace.suspend(session));
      else if (now - lane.touched >= REST_AFTER && session.log.persisted && mayRest(session))
        this.occupy(lane, () => session.suspend());
    }
  }

  /** Closes sessions soon, where one was opened and there may be no room for it until the next look. */
  noteOpened(sharing: Sharing | undefined): void {
    if (this.isPlanned || !this.room.mayLack(this.host.workspace.sessions.length)) return;
    this.isPlanned = true;
    setImmediate(() => {
      this.isPlanned = false;
      this.evictIdle(sharing);
    });
  }

  private surplus(): ReadonlySet<Session> {
    const { sessions, current } = this.host.workspace;
    const others = current ? sessions.slice(1) : sessions;
    return this.room.beyond([...(current ? [current] : []), ...others.toReversed()]);
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
