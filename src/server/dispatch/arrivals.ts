/**
 * Calls of sessions that are still on their way here. What an agent's first turn asks for is answered as soon as its lines
 * are here; everything else waits, in its order, until the session is whole. An answer is the one that the whole session
 * would give: a call that meets a line that is not here is run again, and has had no effect until then.
 */

import { Raw } from "../../core/json/raw.ts";
import { closedOnItsWay, NotHere } from "../../core/ports/arrival.ts";
import type { Foreign, Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { Call, Outcome } from "../connection/call.ts";
import type { BatchReply, Lane, QueuedCall } from "./lane.ts";
import type { Lanes } from "./lanes.ts";
import type { Replies } from "./replies.ts";

/** Commands that ask for nothing but nodes and lines, or are not about what a session holds. */
const EARLY: ReadonlySet<string> = new Set([
  ...["get_state", "get_messages", "get_context", "get_entries", "get_entry", "get_path", "get_tree", "list_heads"],
  ...["get_last_assistant_text", "get_session_stats", "get_fork_messages", "list_clients", "list_open_sessions"],
  ...["prepare_compaction", "prepare_branch_summary", "get_available_models", "get_available_thinking_levels"],
  ...["get_commands", "clear_queue", "initialize", "open_session", "switch_session", "new_session", "close_session"],
  ...["shutdown", "exit"],
]);

/** The dispatcher, as arrivals need it. */
interface ArrivalsHost {
  readonly workspace: Workspace;
  readonly lanes: Lanes;
  readonly replies: Replies;
  /** Queues the events about changes by other programs. */
  queueForeign(lane: Lane, session: Session, foreign: Foreign | null): void;
  finish(lane: Lane, call: Call, batch: BatchReply | undefined, outcome: Outcome): void;
  /** Runs a call that waited. */
  runQueued(lane: Lane, next: QueuedCall): void;
  /** Goes on with the calls that come after it. */
  goOn(lane: Lane): void;
}

export class Arrivals {
  private readonly host: ArrivalsHost;

  constructor(host: ArrivalsHost) {
    this.host = host;
  }

  /** Continues with sessions that are here by now. Throws NotHere where a call needs more of them than there is. */
  require(lane: Lane, call: Call): void {
    const { command, params } = call;
    this.requireIn(this.sessionOf(lane, call), command.name);
    if (command.effect !== "replace") return;
    const { sessionId } = (params ?? {}) as { sessionId?: string };
    if (sessionId !== undefined) this.requireIn(this.host.workspace.openWith(sessionId), command.name);
  }

  private sessionOf(lane: Lane, { target }: Call): Session | null {
    return target === undefined ? this.host.lanes.sessionOf(lane) : target;
  }

  private requireIn(session: Session | null | undefined, command: string): void {
    const arrival = session?.log.arrival;
    if (!session || !arrival) return;
    const { host } = this;
    if (arrival.isOver) host.queueForeign(host.lanes.ofSession(session), session, session.refresh());
    else if (!EARLY.has(command)) throw new NotHere(() => arrival.whole());
  }

  /** Returns an outcome in the shape of the host's dialect, for which nothing is read later that may not be here. */
  outcome(lane: Lane, call: Call, ran: Outcome): Outcome {
    const outcome = this.host.replies.shaped(call, ran);
    if ("error" in outcome) {
      if (outcome.error instanceof NotHere) throw outcome.error;
      return outcome;
    }
    return this.sessionOf(lane, call)?.log.arrival ? { result: read(outcome.result) } : outcome;
  }

  /**
   * Keeps a call until what it asks for is here, and runs it again. It stands before its lane, which waits for it; beside
   * it there are only reads of a host that is asked, none of which waits for another.
   */
  hold(lane: Lane, call: Call, batch: BatchReply | undefined, { wait }: NotHere): void {
    const { host } = this;
    const held: QueuedCall = { call, batch };
    const session = this.sessionOf(lane, call);
    lane.lacking.push(held);
    wait()
      .then(() => {
        // What was asked of one session is not answered from the next one.
        if (this.sessionOf(lane, call) !== session) throw closedOnItsWay();
      })
      .then(
        () => undefined,
        (error: unknown) => ({ error }),
      )
      .then((failed) => {
        lane.lacking.splice(lane.lacking.indexOf(held), 1);
        // It may have been cancelled meanwhile.
        if (failed) host.finish(lane, held.call, batch, { error: held.call.fault ?? failed.error });
        else host.runQueued(lane, held);
        host.goOn(lane);
      });
  }
}

/** Returns a result whose texts were read. */
function read(result: unknown): unknown {
  if (result instanceof Raw) return Raw.of(result.bytes());
  if (typeof result !== "object" || result === null || Array.isArray(result)) return result;
  const members = Object.entries(result);
  if (!members.some(([, value]) => value instanceof Raw)) return result;
  return Object.fromEntries(members.map(([name, value]) => [name, value instanceof Raw ? read(value) : value]));
}
