/** Runs writes: once each, on the session's present state, and only in a process that may write. */

import { toNotUndoneFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import type { Log } from "../../core/ports/store.ts";
import type { Foreign, Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { CommandContext } from "../../handlers/shared/command.ts";
import { isForHolder } from "../../handlers/shared/repetition.ts";
import type { Sharing } from "../../modules/attach/sharing.ts";
import type { Call } from "../connection/call.ts";
import type { PendingEvent } from "../connection/host.ts";
import { guardWrite } from "./guards.ts";
import type { KeyedParams, KeyedResults } from "./keyed-results.ts";
import type { Lane } from "./lane.ts";

/** Parts of the dispatcher that writes use. */
interface WritesHost {
  readonly keyed: KeyedResults;
  /** Undefined while sessions are not shared. */
  sharing(): Sharing | undefined;
  contextFor(lane: Lane, call: Call, events: PendingEvent[]): CommandContext;
  /** Queues the events about changes by other programs. */
  queueForeign(lane: Lane, session: Session, foreign: Foreign | null): void;
}

/** State of a write between its waits. */
interface WriteAttempt {
  readonly context?: CommandContext;
  /** True if the process that holds the session may be joined for it. */
  readonly mayJoin?: boolean;
  /** The log for which the permission to write was checked. */
  readonly checkedLog?: Log;
  /** True if the session's copy was fetched again. */
  readonly isFetched?: boolean;
}

export class Writes {
  private readonly host: WritesHost;

  constructor(host: WritesHost) {
    this.host = host;
  }

  /** Runs a write. If another process holds the session and can be joined, returns the attachment, if `mayJoin`. */
  run(lane: Lane, call: Call, events: PendingEvent[], attempt: WriteAttempt = {}): unknown {
    const { host } = this;
    const { keyed } = host;
    const { context = host.contextFor(lane, call, events), mayJoin = !call.peer, checkedLog, isFetched } = attempt;
    const { command } = call;
    const { idempotencyKey } = call.params as KeyedParams;
    const repeated = (): unknown =>
      idempotencyKey === undefined ? undefined : keyed.ofWrite(context, call, idempotencyKey);
    const { session } = context;
    const { log } = session;
    const again = (): unknown => {
      if (call.peer) session.heads.resume(call.head);
      lane.checkedForForeignWrites = undefined;
      return this.run(lane, call, events, { mayJoin, checkedLog: log, isFetched });
    };
    // The answer may have changed during the wait: the check follows below.
    const before = log === checkedLog ? undefined : repeated();
    const left = (): number[] => keyed.positionsOf(context, call, idempotencyKey as string);
    const isCertain = (): boolean => left().every((position) => session.log.isCertain?.(position) !== false);
    if (before !== undefined && isCertain()) {
      const confirming = log.confirm?.();
      return confirming ? confirming.then(again) : before;
    }
    host.sharing()?.requireLocal(call, session);
    const ready = log === checkedLog ? undefined : log.ready?.();
    if (ready) return ready.then(again);
    const fetching = (error?: unknown): Promise<unknown> | undefined =>
      isFetched
        ? undefined
        : fetchAgain(context.workspace, session, error)?.then(() => {
            if (call.peer) session.heads.resume(call.head);
            lane.checkedForForeignWrites = undefined;
            return this.run(lane, call, events, { mayJoin, isFetched: true });
          });
    // One check serves a whole input chunk; the append itself finds later writes by others.
    if (lane.checkedForForeignWrites !== session) {
      try {
        host.queueForeign(lane, session, session.refreshToWrite());
      } catch (error) {
        const fetched = fetching(error);
        if (!fetched) throw error;
        return fetched;
      }
      const fetched = fetching();
      if (fetched) return fetched;
      lane.checkedForForeignWrites = session;
      // A log that replaced it is checked, too.
      if (checkedLog && session.log !== checkedLog)
        return this.run(lane, call, events, { context, mayJoin, checkedLog });
    }
    // Another server may have used the key.
    const since = repeated();
    if (since !== undefined && isCertain()) return confirm(session.log, since);
    const { attaching } = host.sharing() ?? {};
    const { lockedBy } = session.log;
    // A holder on another machine cannot be joined.
    const isHere = lockedBy !== null && lockedBy.host === undefined;
    if (attaching && mayJoin && isHere && isForHolder(call))
      return attaching
        .join(session)
        .then((attachment) => attachment ?? this.run(lane, call, events, { mayJoin: false, checkedLog: session.log }));
    if (since !== undefined) {
      // Entries found without the lock are uncertain.
      if (session.log.acquireLock()) return again();
      session.log.settle?.();
      if (left().some((position) => session.log.hasUncertainOutcome?.(position)))
        throw toNotUndoneFailure(new Failure("storage_failed"));
      // A result that is not durable yet is answered once it is.
      return since;
    }
    guardWrite(session, call);
    const { length } = events;
    try {
      return keyed.remember(call, command.run(context, call.params as never), session);
    } catch (error) {
      const fetched = fetching(error);
      if (!fetched) throw error;
      events.length = length;
      return fetched;
    }
  }
}

/** Returns the result of an earlier request, once its entries are durable. */
function confirm(log: Log, result: unknown): unknown {
  const confirming = log.confirm?.();
  return confirming ? confirming.then(() => result) : result;
}

/** Returns whether a log lacks its header, or entries that it had. */
function isDamaged({ readOnly, damage }: Log): boolean {
  return readOnly?.name === "corrupt" || (readOnly !== null && damage.some(({ kind }) => kind === "bad_header"));
}

/** Fetches a missing or unreadable copy of a session again, if other machines have the session. */
function fetchAgain({ stores }: Workspace, { file, log }: Session, error: unknown): Promise<void> | undefined {
  if (!stores.arrive || file === null) return undefined;
  const isGone =
    error instanceof Failure &&
    (error.byOthers || error.name === "not_a_session" || ["ENOENT", "EIO"].includes(String(error.details.errno)));
  if (!(isGone || isDamaged(log)) || log.durableCount < log.nodes.count) return undefined;
  // The lock belongs to the lost file.
  log.unlock();
  return stores.arrive({ sessionPath: file }, () => true);
}
