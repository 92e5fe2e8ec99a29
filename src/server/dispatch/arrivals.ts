/**
 * Calls of sessions that are still on their way here. What an agent's first turn asks for is answered as soon as its lines
 * are here; everything else waits, in its order, until the session is whole. An answer is the one that the whole session
 * would give: a call that meets a line that is not here is run again, and has had no effect until then.
 */

import { Raw } from "../../core/json/raw.ts";
import { NotHere } from "../../core/ports/arrival.ts";
import type { Foreign, Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { Call, Outcome } from "../connection/call.ts";
import type { BatchReply, Lane } from "./lane.ts";
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
export interface ArrivalsHost {
  readonly workspace: Workspace;
  readonly lanes: Lanes;
  readonly replies: Replies;
  /** Queues the events about changes by other programs. */
  queueForeign(lane: Lane, session: Session, foreign: Foreign | null): void;
  finish(lane: Lane, call: Call, batch: BatchReply | undefined, outcome: Outcome): void;
  /** Runs the calls that waited. */
  goOn(lane: Lane): void;
}

export class Arrivals {
  private readonly host: ArrivalsHost;

  constructor(host: ArrivalsHost) {
    this.host = host;
  }

  /** Continues with sessions that are here by now. Throws NotHere where a call needs more of them than there is. */
  require(lane: Lane, { command, params, target }: Call): void {
    const { lanes, workspace } = this.host;
    const session = target === undefined ? lanes.sessionOf(lane) : target;
    this.requireIn(session, command.name);
    if (command.effect !== "replace") return;
    const { sessionId } = (params ?? {}) as { sessionId?: string };
    if (sessionId !== undefined) this.requireIn(workspace.openWith(sessionId), command.name);
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
    const { lanes, replies } = this.host;
    const outcome = replies.shaped(call, ran);
    if ("error" in outcome) {
      if (outcome.error instanceof NotHere) throw outcome.error;
      return outcome;
    }
    const session = call.target === undefined ? lanes.sessionOf(lane) : call.target;
    return session?.log.arrival ? { result: read(outcome.result) } : outcome;
  }

  /** Keeps a call at the head of its lane until what it asks for is here. */
  hold(lane: Lane, call: Call, batch: BatchReply | undefined, { wait }: NotHere): void {
    const { host } = this;
    const held = { call, batch };
    lane.calls.unshift(held);
    lane.isHeld = true;
    wait()
      .then(
        () => undefined,
        (error: unknown) => ({ error }),
      )
      .then((failed) => {
        lane.isHeld = false;
        if (failed) {
          lane.calls.splice(lane.calls.indexOf(held), 1);
          // It may have been cancelled meanwhile.
          host.finish(lane, held.call, batch, { error: held.call.fault ?? failed.error });
        }
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
