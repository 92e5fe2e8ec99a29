/** Entries of other programs: they are read before a write, and looked for while a session is idle. */

import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import { notifyForeign } from "../../handlers/shared/append.ts";
import { eventOf, type PendingEvent } from "../connection/host.ts";
import type { Lane } from "./lane.ts";
import type { Lanes } from "./lanes.ts";
import type { Replies } from "./replies.ts";

export class ForeignWrites {
  private readonly workspace: Workspace;
  private readonly lanes: Lanes;
  private readonly replies: Replies;

  constructor(workspace: Workspace, lanes: Lanes, replies: Replies) {
    this.workspace = workspace;
    this.lanes = lanes;
    this.replies = replies;
  }

  /**
   * Reads what other programs wrote, before this lane writes. One check serves a whole input chunk; the append itself
   * finds what others write meanwhile. Throws what Session.refreshToWrite throws.
   */
  beforeWrite(lane: Lane, session: Session): void {
    if (lane.checkedForForeignWrites !== session) this.queueEvents(lane, session, session.refreshToWrite());
    lane.checkedForForeignWrites = session;
  }

  /** Polls idle sessions for entries of other programs. */
  poll(): void {
    for (const session of this.workspace.sessions) {
      const lane = this.lanes.ofSession(session);
      if (!lane.idle) continue;
      try {
        this.queueEvents(lane, session, session.refresh());
      } catch {
        // A missing file is reported when a command wants to write to it.
      }
      this.replies.flush(lane);
    }
  }

  /** Queues the events about foreign changes, so that the host hears of them before anything else leaves. */
  private queueEvents(lane: Lane, session: Session, foreign: ReturnType<Session["refresh"]>): void {
    if (!foreign) return;
    const events: PendingEvent[] = [];
    notifyForeign(session, foreign, (name, payload) => events.push(eventOf(session, name, payload)));
    lane.push({ outcome: { result: null }, events });
  }
}
