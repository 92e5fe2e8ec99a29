/** Errors of the operating system, and the failures that callers get for them. */

import { describeUnchanged, Failure } from "./failure.ts";

/** Returns whether an error is one of the system. Errors of Node itself also have codes; those begin with ERR_. */
export function isErrno(error: unknown): error is NodeJS.ErrnoException & { code: string } {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code === "string" && /^E(?!RR_)[A-Z0-9]+$/.test(code);
}

const PERMANENT = new Set(["EROFS", "EACCES", "EPERM", "ENAMETOOLONG", "EISDIR", "ENOTDIR"]);

/**
 * Returns the failure that a caller gets for an errno error of a write or read; a failure is returned as it is.
 * Rethrows any other error: the disk did not cause it, and advice to ask again would not help.
 */
export function toStorageFailure(error: unknown, doing: string): Failure {
  if (error instanceof Failure) return error;
  if (!isErrno(error)) throw error;
  const { code } = error;
  if (code === "ENOSPC" || code === "EDQUOT") {
    const text = describeUnchanged(`No room on the disk while ${doing}.`, "Try again when there is room.");
    return new Failure("storage_full", text, { errno: code }, { cause: error });
  }
  if (code === "EMFILE" || code === "ENFILE") {
    const whose = code === "EMFILE" ? "this process" : "this system";
    const what = `The limit of files that ${whose} may have open is reached (${code}) while ${doing}.`;
    const advice =
      "Close sessions that you do not need, or start the program with a higher limit (ulimit -n), and try again.";
    return new Failure("storage_failed", describeUnchanged(what, advice), { errno: code }, { cause: error });
  }
  const isLink = code === "ELOOP";
  const isPermanent = isLink || PERMANENT.has(code);
  const text = isLink
    ? describeUnchanged(
        `There is a link where a file or a folder should be (ELOOP) while ${doing}.`,
        "Replace it with the file or folder that it leads to.",
      )
    : describeUnchanged(
        `The disk refused (${code}) while ${doing}.`,
        isPermanent ? "Check the folder's permissions and path." : "",
      );
  return new Failure("storage_failed", text, { errno: code }, { cause: error, retryable: !isPermanent });
}

/**
 * Returns that failure for an error after which something stays changed. `state`: sentences about the data, and advice.
 * `isDone`: a repeated request would do something else.
 */
export function toUnfinishedFailure(
  error: unknown,
  doing: string,
  state: string,
  more: object = {},
  isDone = false,
): Failure {
  const { name, text, details, retryable } = toStorageFailure(error, doing);
  const options = { cause: error, retryable: retryable && !isDone };
  return new Failure(name, { what: text.what, state }, { ...details, ...more }, options);
}

/** Returns the failure for an error after the work was done: a repeated request would do something else. */
export function toDoneFailure(error: unknown, doing: string, state: string): Failure {
  return toUnfinishedFailure(error, doing, state, {}, true);
}

/**
 * Returns the failure for an error after which a new session was to be removed. `found`: the id of the session that is
 * at its path now; null if the path is empty; undefined if something else is there or the path is unreadable.
 */
export function toNotMadeFailure(
  error: unknown,
  doing: string,
  { id, sessionPath, found }: { id: string; sessionPath: string; found: string | null | undefined },
): unknown {
  const isGone = found === null || (found !== undefined && found !== id);
  if (isGone) return error;
  const state =
    found === id
      ? `The new session is there all the same, at ${sessionPath}, because another process works with it or it could not be removed. switch_session opens it, delete_session removes it.`
      : `The file at ${sessionPath} may be a rest of the new session, or another program's. Look at it before you remove it.`;
  return toUnfinishedFailure(error, doing, state, { sessionPath });
}

/**
 * Returns the failure for an error of a commit whose entries stay in the session's file, because another program wrote
 * to it after them. A successful sync after a failed one proves nothing: Linux counts the lost pages as written.
 */
export function toNotUndoneFailure(error: unknown): Failure {
  const { name, details } = toStorageFailure(error, "making the changes durable");
  if (name === "outcome_unknown") return error as Failure;
  const sentence =
    "The changes could not be made durable, and stay in the session's file all the same, because another program wrote to it after them. A loss of power may take them away. Read the state and decide again; clone writes all that is there to a new file, durably.";
  return new Failure("outcome_unknown", sentence, details, { cause: error, retryable: true });
}

/** Returns the failure for an error of a commit whose entries could not be taken away again, and may be there. */
export function toUncertainFailure(error: unknown): Failure {
  const { name, details } = toStorageFailure(error, "making the changes durable");
  if (name === "outcome_unknown") return error as Failure;
  const sentence =
    "The changes could not be made durable, and could not be taken back either: the disk refused, or another program moved the session's files. They may be there, now or after the next opening. Read the state and decide again.";
  return new Failure("outcome_unknown", sentence, details, { cause: error, retryable: true });
}

/** Returns whether an error says that nothing exists at the path. */
export function isMissing(error: unknown): boolean {
  const { code } = (error ?? {}) as { code?: unknown };
  return code === "ENOENT" || code === "ENOTDIR";
}

/** Codes for a folder, a link or a socket at the path of a file. */
const NO_FILE: ReadonlySet<unknown> = new Set(["EISDIR", "ELOOP", "ENXIO"]);

/** Returns whether an error says that something other than a file is at the path. */
export function isNoFile(error: unknown): boolean {
  return NO_FILE.has(((error ?? {}) as { code?: unknown }).code);
}
