/** Runs writes: once each, on the session's present state, and only in a process that may write. */

import { Failure } from "../../core/failure.ts";
import type { Log } from "../../core/ports/store.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import {
  areCertain,
  becomeWriter,
  confirmEntries,
  fetchLostCopy,
  settleEntries,
  type WriterState,
} from "../../core/session/writer.ts";
import type { CommandContext } from "../../handlers/shared/command.ts";
import type { Call } from "../connection/call.ts";
import type { PendingEvent } from "../connection/events.ts";
import { Redirection } from "./gate.ts";
import type { KeyedParams, KeyedResults } from "./keyed-results.ts";
import type { Lane } from "./lane.ts";
import type { Sharing } from "./sharing.ts";

/** A write that is being run, with what was found out about it so far. */
interface WriteAttempt {
  readonly lane: Lane;
  readonly call: Call;
  readonly context: CommandContext;
  readonly events: PendingEvent[];
  /** The id of the session that the call means, and its idempotency key. */
  readonly id: string;
  readonly key: string | undefined;
  /** The log whose replica has just answered. */
  askedLog?: Log;
  /** True if the holder of the session could not be joined. */
  isRefused: boolean;
  /** True if the session's copy was fetched again. */
  isFetched: boolean;
}

/** Looks for the session that another process is about to name, and milliseconds between them. */
const MOST_LOOKS = 20;
const BETWEEN_LOOKS = 10;

/** Returns whether another program has taken the path or the id of a new session. */
function isTaken(error: unknown): error is Failure {
  return error instanceof Failure && error.name === "already_exists";
}

/** Returns the session of a write, which a guest sees at a head. */
function getSession({ call, context }: WriteAttempt): Session {
  return call.target ?? context.session;
}

export class Writes {
  private readonly keyed: KeyedResults;
  private readonly sharing: Sharing | undefined;

  constructor(keyed: KeyedResults, sharing: Sharing | undefined) {
    this.keyed = keyed;
    this.sharing = sharing;
  }

  /** Runs a write. Returns a redirection if another process runs it. */
  run(lane: Lane, call: Call, context: CommandContext, events: PendingEvent[]): unknown {
    const { sessionId, idempotencyKey: key } = call.params as KeyedParams;
    // An open session can have another id since another program replaced its file. A target was named by its path.
    const id = (call.target && !call.peer ? undefined : sessionId) ?? (call.target ?? context.session).id;
    const attempt = { lane, call, context, events, id, key, isRefused: false, isFetched: false };
    return this.orFetched(attempt, () => this.begin(attempt));
  }

  /** Takes a step of a write. If the step cannot read the session's copy, the copy is fetched again first, once. */
  private orFetched(attempt: WriteAttempt, step: () => unknown): unknown {
    const { context, events, isFetched } = attempt;
    const { length } = events;
    try {
      return step();
    } catch (error) {
      if (isTaken(error) && context.workspace.mayGoOnAsStored(getSession(attempt))) {
        events.length = length;
        return this.goOnAsStored(attempt, error);
      }
      const fetching = isFetched ? undefined : fetchLostCopy(getSession(attempt), context.workspace.stores, error);
      if (!fetching) throw error;
      events.length = length;
      return fetching.then(() => this.again(attempt, { askedLog: undefined, isFetched: true }));
    }
  }

  /** Goes on in the session that another process began with the id of a new one; waits while that gets its name. */
  private async goOnAsStored(attempt: WriteAttempt, failure: Failure): Promise<unknown> {
    const { lane, context } = attempt;
    const session = getSession(attempt);
    for (let tries = 1; !context.workspace.goesOnAsStored(session); tries++) {
      if (tries === MOST_LOOKS) throw failure;
      await new Promise((resolve) => setTimeout(resolve, BETWEEN_LOOKS));
    }
    lane.pushForeign(session, session.externalChanges.fresh());
    return this.again(attempt, { askedLog: undefined });
  }

  private begin(attempt: WriteAttempt): unknown {
    const session = getSession(attempt);
    const earlier = this.earlierResult(attempt);
    if (earlier === undefined || !areCertain(session, this.positionsOf(attempt))) return this.becomeWriter(attempt);
    const confirming = confirmEntries(session);
    // The answer may have changed during the wait.
    return confirming ? confirming.then(() => this.again(attempt, { askedLog: session.log })) : earlier;
  }

  /** Continues after a wait, with what it has shown. */
  private again(attempt: WriteAttempt, found: Partial<WriteAttempt>): unknown {
    attempt.lane.checkedForForeignWrites = undefined;
    return this.becomeWriter({ ...attempt, ...found });
  }

  private becomeWriter(attempt: WriteAttempt): unknown {
    const { lane, context, id, askedLog, isFetched } = attempt;
    const session = getSession(attempt);
    // One check serves a whole input chunk; the append itself finds later writes by others.
    const isRead = lane.checkedForForeignWrites === session;
    const stores = isFetched ? undefined : context.workspace.stores;
    const becoming = becomeWriter(session, { id, askedLog, isRead, stores });
    const run = (state: WriterState): unknown => this.orFetched(attempt, () => this.runAsWriter(attempt, state));
    return becoming instanceof Promise ? becoming.then(run) : run(becoming);
  }

  private runAsWriter(attempt: WriteAttempt, state: WriterState): unknown {
    const { lane, call, context } = attempt;
    const session = getSession(attempt);
    if (!session.holder) {
      lane.pushForeign(session, session.externalChanges.fresh());
      lane.checkedForForeignWrites = session;
    }
    // Another server may have used the key.
    const earlier = this.earlierResult(attempt);
    if (earlier !== undefined && areCertain(session, this.positionsOf(attempt))) {
      const confirming = confirmEntries(session);
      return confirming ? confirming.then(() => earlier) : earlier;
    }
    if (state === "held" && !attempt.isRefused) {
      const holder = this.sharing?.findHolder(call, session);
      if (holder instanceof Redirection) return holder;
      if (holder)
        return holder.then(
          (redirection) => redirection ?? this.again(attempt, { askedLog: session.log, isRefused: true }),
        );
    }
    if (earlier !== undefined) {
      if (!settleEntries(session, this.positionsOf(attempt))) return this.again(attempt, { askedLog: session.log });
      // A result that is not durable yet is answered once it is.
      return earlier;
    }
    const { expectedLeafId } = call.params as KeyedParams;
    context.session.guard(expectedLeafId, call.command.checksReadOnly);
    return this.keyed.remember(call, call.command.run(context, call.params as never), session);
  }

  /** Runs a write about a closed session, unless this process remembers its key. */
  runClosed(call: Call, context: CommandContext): unknown {
    return this.keyed.once(call, () => {
      guardClosed(context.workspace, call);
      return call.command.run(context, call.params as never);
    });
  }

  /** Returns the result of an earlier call with the same key, if there is one. */
  private earlierResult({ call, context, key }: WriteAttempt): unknown {
    return key === undefined ? undefined : this.keyed.ofWrite(context, call, key);
  }

  /** Returns the positions of the entries of that earlier call. */
  private positionsOf({ call, context, key }: WriteAttempt): number[] {
    return key === undefined ? [] : this.keyed.positionsOf(context, call, key);
  }
}

/**
 * Throws content_modified unless the closed session of a write has the expected leaf. A command that appends entries
 * checks this itself.
 */
function guardClosed(workspace: Workspace, { command, params }: Call): void {
  const { expectedLeafId, sessionPath } = params as KeyedParams & { sessionPath?: string };
  if (expectedLeafId === undefined || command.repeat) return;
  const path = command.about ? command.about(workspace, params as never) : sessionPath;
  if (path === undefined) return;
  let session: Session;
  try {
    session = workspace.open({ sessionPath: workspace.stores.migrations.currentPathOf(path) });
  } catch (error) {
    // The command reports in its own words why the session cannot be opened.
    if (error instanceof Failure) return;
    throw error;
  }
  try {
    session.guard(expectedLeafId, true);
  } finally {
    workspace.release(session);
  }
}
