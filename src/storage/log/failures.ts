/** Failures of sessions on disk that several backends throw. */

import { toNotMadeFailure, toStorageFailure } from "../../core/errno.ts";
import { Failure } from "../../core/failure.ts";
import { type Disk, isAbsent } from "../fs/disk.ts";
import { readHeader } from "../fs/header.ts";

export function makeNotASessionFailure(
  file: string,
  reason: string,
  details: { readonly format?: string } = {},
): Failure {
  const sentence = `${file} is not a session file: ${reason}. It was left as it is.`;
  return new Failure("not_a_session", sentence, { sessionPath: file, ...details });
}

export function makeNoSessionFailure(path: string): Failure {
  return new Failure("session_not_found", `There is no session at ${path}. list_sessions shows those that exist.`, {
    sessionPath: path,
  });
}

/** Returns the failure of a new session that had its path already, and was to be removed from there. */
export function makeNotPublishedFailure(error: unknown, disk: Disk, sessionPath: string, id: string): Failure {
  const doing = "making the file of the session";
  return toStorageFailure(
    toNotMadeFailure(error, doing, { id, sessionPath, found: foundAt(disk, sessionPath) }),
    doing,
  );
}

function foundAt(disk: Disk, path: string): string | null | undefined {
  try {
    if (isAbsent(disk, path)) return null;
  } catch {
    return undefined;
  }
  const { id } = readHeader(disk, path) ?? {};
  return typeof id === "string" ? id : undefined;
}

/** Returns the failure of an operation that another program prevented. `deed`: its action; `state`: that of the data. */
export function makeOtherProgramFailure(deed: string, state?: string, advice = "Try again."): Failure {
  return new Failure("storage_failed", { what: `Another program ${deed}.`, state, advice }, {}, { byOthers: true });
}

/** Returns the failure of a write whose basis differs from the stored bytes. */
export function makeChangedFailure(what: "file" | "files"): Failure {
  return makeOtherProgramFailure(`changed the session's ${what} meanwhile`, "Nothing was written.");
}

/** Returns the failure of a copy that met bytes which another program is changing. */
export function makeChangingFailure(what: "file" | "files"): Failure {
  return makeOtherProgramFailure(`is changing the session's ${what}`, "Nothing was done.");
}
