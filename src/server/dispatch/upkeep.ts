/** Upkeep while nothing is asked: looking for what other programs wrote, and letting go of what rests. */

import type { Foreign, Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { Sharing } from "../attach/sharing.ts";
import type { Call } from "../connection/call.ts";
import type { Lane } from "./lane.ts";
import type { Lanes } from "./lanes.ts";
import type { Replies } from "./replies.ts";
import type { Sink } from "./sink.ts";

/** Sessions that may be open at a time, including the current one; the others open again when they are named. */
const MAX_OPEN = 64;
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

  constructor(host: UpkeepHost) {
    this.host = host;
  }

  /** Looks for what other programs wrote to sessions of which nothing is asked. */
  poll(sharing: Sharing | undefined): void {
    const { workspace, sink, lanes, replies } = this.host;
    // A reply that is being read still refers to bytes of a file as it is now.
    if (!sink.hasRoom) return;
    for (const { log } of workspace.sessions) log.renewLock?.();
    sharing?.hosting.renew();
    sharing?.sweep();
    workspace.stores.giveOwed?.((id) => workspace.sessions.some((session) => session.id === id));
    for (const session of workspace.sessions) {
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

  /** Takes in what other programs wrote to a session. */
  takeIn(lane: Lane, session: Session): void {
    try {
      this.host.queueForeign(lane, session, session.refresh());
    } catch {
      // A missing file is reported when a command wants to write to it.
    }
  }

  /** Releases the locks of sessions that rest, and closes the least recently used ones beyond `MAX_OPEN`. */
  evictIdle(sharing: Sharing | undefined): void {
    const { workspace, sink, lanes } = this.host;
    if (!sink.hasRoom) return;
    const now = workspace.env.now();
    const { sessions, current } = workspace;
    lanes.dropClosed();
    for (const [index, session] of sessions.entries()) {
      const lane = lanes.ofSession(session);
      // One that is still on its way here has no file yet from which it could be opened again.
      if (!lane.idle || !lane.isDurable || session.log.arrival || sharing?.hosting.hasGuests(session)) continue;
      if (session !== current && index <= sessions.length - MAX_OPEN && !session.foreign.followsFile) {
        const drop = (): void => lanes.drop(session.id);
        this.occupy(lane, () => workspace.suspend(session), drop);
      } else if (now - lane.touched >= REST_AFTER && session.log.persisted && mayRest(session))
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
        this.host.pump(lane);
        this.host.lanes.wake();
      });
  }
}
