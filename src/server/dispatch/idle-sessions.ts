/** Sessions that nobody uses: they let other programs write, and too many of them are closed. */

import type { Workspace } from "../../core/session/workspace.ts";
import type { Call } from "../connection/call.ts";
import type { Lane } from "./lane.ts";
import type { Lanes } from "./lanes.ts";

/** Sessions that may be open at a time, including the current one. */
const MAX_OPEN = 64;

/** Milliseconds without a command after which a session releases its lock, so that other programs can write. */
const REST_AFTER = 5 * 60_000;

/** Sentinel for internal work (closing, unlocking) that occupies a lane. */
const OWN_WORK = { name: "" } as unknown as Call;

export class IdleSessions {
  private readonly workspace: Workspace;
  private readonly lanes: Lanes;
  /** Runs the calls that waited in a lane. */
  private readonly pump: (lane: Lane) => void;

  constructor(workspace: Workspace, lanes: Lanes, pump: (lane: Lane) => void) {
    this.workspace = workspace;
    this.lanes = lanes;
    this.pump = pump;
  }

  /** Releases the locks of sessions that rest, and closes the least recently used ones beyond `MAX_OPEN`. */
  evictIdle(): void {
    const now = this.workspace.env.now();
    const { sessions } = this.workspace;
    this.lanes.dropClosed();
    for (const [index, session] of sessions.entries()) {
      const lane = this.lanes.ofSession(session);
      if (!lane.idle || !lane.isDurable) continue;
      const isSurplus = session !== this.workspace.current && index <= sessions.length - MAX_OPEN;
      if (isSurplus)
        this.occupy(
          lane,
          () => this.workspace.suspend(session),
          () => this.lanes.drop(session.id),
        );
      else if (now - lane.touched >= REST_AFTER && session.log.persisted && !session.isSuspended)
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
}
