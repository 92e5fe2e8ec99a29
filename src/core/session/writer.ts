/**
 * The write protocol: whether this process may write to a session, and what it must know before. A process goes through
 * these states, and after each wait it looks again, because the session may have changed:
 *
 * - unasked: other machines may write to the session, too, and its replica is asked for permission and their entries.
 * - unread: the lock is taken if it can be had, and the entries of other programs are read. If the log was replaced, the
 *   new one is unasked. If other machines have the session and this copy of it is lost, it is fetched again, once.
 * - held: another process holds the session, or writes for this one, which has joined it.
 * - writer: this process may write. If it may not after all, an append fails with the reason.
 */

import { toNotUndoneFailure } from "../errno.ts";
import { Failure } from "../failure.ts";
import type { Log } from "../ports/store.ts";
import type { Stores } from "../ports/stores.ts";
import type { Session } from "./session.ts";

/** The end of the way to a write. */
export type WriterState = "held" | "writer";

export interface WriterOptions {
  /** The id of the session that is meant; that of the open one by default. Another one can take its place meanwhile. */
  readonly id?: string;
  /** The log whose replica has just answered. */
  readonly askedLog?: Log;
  /** True if the entries of other programs were read just now. */
  readonly isRead?: boolean;
  /** The stores that fetch a lost copy again; without them, it is reported as missing or damaged. */
  readonly stores?: Stores;
}

/**
 * Makes this process the writer of a session, with all entries of other writers, which are still to be reported. Returns
 * a promise if there is something to wait for. Throws or rejects if the session cannot be read any more, or if another
 * one is in its place.
 */
export function becomeWriter(session: Session, options: WriterOptions = {}): WriterState | Promise<WriterState> {
  const { id = session.id, askedLog, isRead = false, stores } = options;
  while (session.holder === undefined) {
    const { log } = session;
    const asking = log === askedLog ? undefined : log.replica?.ready();
    if (asking) return asking.then(() => becomeWriter(session, { id, askedLog: log, stores }));
    if (isRead) return stateOf(session, id);
    let fetching: Promise<void> | undefined;
    let isAsked = true;
    try {
      session.externalChanges.checkAsWriter();
      isAsked = session.log === log || !session.log.replica;
      fetching = stores && fetchLostCopy(session, stores);
      if (isAsked && !fetching) session.externalChanges.follow();
    } catch (error) {
      fetching = stores && fetchLostCopy(session, stores, error);
      if (!fetching) throw error;
    }
    if (fetching) return fetching.then(() => becomeWriter(session, { id }));
    if (isAsked) return stateOf(session, id);
  }
  return "held";
}

function stateOf({ log, externalChanges }: Session, id: string): WriterState {
  externalChanges.requireSession(id);
  return log.lock.holder === null ? "writer" : "held";
}

/** Becomes the writer of a session that is not open for a client. Rejects with the reason if another process is. */
export async function requireWriter(session: Session): Promise<void> {
  await becomeWriter(session);
  session.externalChanges.requireLock();
}

/** Takes over from a holder that is gone, with all that it wrote. Returns false if the lock cannot be had yet. */
export function takeOver(session: Session): boolean {
  const { externalChanges, log } = session;
  if (!externalChanges.becomeWriter() && !session.hasLock) return false;
  // The changes of the holder are reported as its own.
  externalChanges.readAlong();
  log.settle();
  return true;
}

/**
 * Returns a promise if a session's copy is missing or unreadable and other machines have the session: it is then fetched
 * again. `error`: the error of an attempt to read or write.
 */
export function fetchLostCopy(session: Session, stores: Stores, error?: unknown): Promise<void> | undefined {
  const { file, log } = session;
  if (!stores.arrive || file === null) return undefined;
  const isGone =
    error instanceof Failure &&
    (error.byOthers || error.name === "not_a_session" || ["ENOENT", "EIO"].includes(String(error.details.errno)));
  if (!(isGone || isDamaged(log)) || log.durableCount < log.nodes.count) return undefined;
  // The lock belongs to the lost file.
  log.lock.release();
  return stores.arrive({ sessionPath: file }, () => true);
}

/** Returns whether a log lacks its header, or entries that it had. */
function isDamaged({ readOnly, damage }: Log): boolean {
  return readOnly?.name === "corrupt" || (readOnly !== null && damage.some(({ kind }) => kind === "bad_header"));
}

// --- the entries of an earlier request with the same key ---------------------------------------------------------

/** Returns whether no process discards these entries any more; their request can be answered once they are confirmed. */
export function areCertain({ log }: Session, positions: readonly number[]): boolean {
  return positions.every((position) => log.outcome(position) === "certain");
}

/** Returns a promise if it must be confirmed that all entries are durable. Rejects with a failure. */
export function confirmEntries({ log }: Session): Promise<void> | undefined {
  return log.replica?.confirm();
}

/**
 * Settles entries of a process that may be gone. Returns false if this process has just become the writer: the entries
 * of other programs are to be read first. Throws session_locked, and outcome_unknown if the entries stay uncertain.
 */
export function settleEntries({ log }: Session, positions: readonly number[]): boolean {
  if (log.lock.acquire()) return false;
  log.settle();
  if (positions.some((position) => log.outcome(position) === "unknown"))
    throw toNotUndoneFailure(new Failure("storage_failed"));
  return true;
}
