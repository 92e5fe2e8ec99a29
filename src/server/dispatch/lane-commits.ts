/** Group commit: all writes of a lane in one input chunk become durable together, or are undone together. */

import { Failure } from "../../core/failure.ts";
import { keepFoundEvents } from "./found-events.ts";
import { hasEntriesOf, type KeyedResults, toKeyedError } from "./keyed-results.ts";
import { getReadSource, isReply, type Lane } from "./lane.ts";
import type { Lanes } from "./lanes.ts";
import type { Replies } from "./replies.ts";
import type { Sink } from "./sink.ts";

export class LaneCommits {
  private readonly sink: Sink;
  private readonly lanes: Lanes;
  private readonly replies: Replies;
  private readonly keyed: KeyedResults;
  private isGoingOn = false;

  constructor(sink: Sink, lanes: Lanes, replies: Replies, keyed: KeyedResults) {
    this.sink = sink;
    this.lanes = lanes;
    this.replies = replies;
    this.keyed = keyed;
  }

  commitAll(): void {
    // Ready replies leave first, because a commit may wait for the disk at once.
    this.sink.flush();
    for (const lane of this.lanes) {
      lane.checkedForForeignWrites = undefined;
      if (!lane.isDurable) this.commit(lane);
      else this.lanes.passOver(lane);
    }
  }

  /** Runs an operation that closes the lane's session, once all changes are durable and no reply needs the session. */
  whenDurable(lane: Lane, run: () => unknown): unknown {
    if (lane.isDurable) {
      this.replies.prepareAll(lane);
      return run();
    }
    this.commit(lane);
    // Changes that were applied during an earlier commit need another one.
    return Promise.resolve(lane.committing).then(() => this.whenDurable(lane, run));
  }

  private commit(lane: Lane): void {
    if (lane.committing) return;
    const session = this.lanes.sessionOf(lane);
    if (!session) {
      lane.markDurable(lane.applied);
      this.replies.flush(lane);
      return;
    }
    let mark = lane.applied;
    const begins = (): void => {
      mark = lane.applied;
    };
    lane.committing = session
      .commit(begins)
      .then(
        () => lane.markDurable(mark),
        (error) => {
          this.undo(lane, error);
          return session.keepPosition();
        },
      )
      // A position that could not be recorded is recorded with the next commit.
      .catch(() => {})
      .then(() => {
        lane.committing = undefined;
        this.replies.flush(lane);
        this.goOn();
      });
  }

  /** Commits the changes since, once for all commits that end in one turn: their replies leave together. */
  private goOn(): void {
    if (this.isGoingOn) return;
    this.isGoingOn = true;
    queueMicrotask(() => {
      this.isGoingOn = false;
      this.commitAll();
      this.lanes.wake();
    });
  }

  /** Handles a failed commit, which restored the session: waiting writes fail, and reads run again. */
  private undo(lane: Lane, error: unknown): void {
    const session = this.lanes.sessionOf(lane);
    for (const slot of lane.slots) {
      if (slot.after <= lane.durable || !isReply(slot)) continue;
      const { command } = slot.call;
      slot.events = keepFoundEvents(session, slot.events);
      if (command.effect === "write") {
        // An invalid request is still invalid, and entries of an earlier one with its key are still there, or may be.
        if ("error" in slot.outcome ? !isUndone(slot.outcome.error) : hasEntriesOf(session, slot.call)) continue;
        slot.outcome = { error: toKeyedError(slot.call, error) };
        this.keyed.forget(slot.call);
      } else if ((command.effect === "read" || command.describesSessions) && !("error" in slot.outcome)) {
        slot.outcome = this.replies.again(lane, slot);
        slot.readFrom = getReadSource(session);
      }
    }
    lane.markDurable(lane.applied);
  }
}

/** Returns whether an error means that its call changed nothing. */
function isUndone(error: unknown): boolean {
  return error instanceof Failure && error.name !== "outcome_unknown";
}
