/** Errors of the operating system: what they say, and the failures that they are to a caller. */

import { Failure } from "./failure.ts";

/** Whether an error is one of the system. Errors of Node itself have codes, too; those begin with ERR_. */
export function isErrno(error: unknown): error is NodeJS.ErrnoException & { code: string } {
  const { code } = (error ?? {}) as { code?: unknown };
  return typeof code === "string" && /^E(?!RR_)[A-Z0-9]+$/.test(code);
}

/**
 * What an errno error of a write or read means to a caller. Throws what is none: it is no doing of the disk, and no
 * advice to ask again would help.
 */
export function storageFailure(error: unknown, doing: string): Failure {
  if (error instanceof Failure) return error;
  // Not the disk's doing: a bug of ours.
  if (!isErrno(error)) throw error;
  const { code } = error;
  if (code === "ENOSPC" || code === "EDQUOT")
    return new Failure(
      "storage_full",
      `No room on the disk while ${doing}. Nothing was changed; ask again when there is room.`,
      { errno: code },
      { cause: error },
    );
  if (code === "ELOOP")
    return new Failure(
      "storage_failed",
      `A link lies where a file or a folder should be (ELOOP) while ${doing}. Nothing was changed. Put what it leads to in its place.`,
      { errno: code },
      { cause: error, retryable: false },
    );
  const permanent = ["EROFS", "EACCES", "EPERM", "ENAMETOOLONG", "EISDIR", "ENOTDIR"].includes(code);
  return new Failure(
    "storage_failed",
    `The disk refused (${code}) while ${doing}. Nothing was changed.${permanent ? " Check the folder's permissions and path." : ""}`,
    { errno: code },
    { cause: error, retryable: !permanent },
  );
}

/** Returns whether an error says that nothing has the path. */
export function isMissing(error: unknown): boolean {
  const { code } = (error ?? {}) as { code?: unknown };
  return code === "ENOENT" || code === "ENOTDIR";
}

/** Codes that say that a folder, a link or a socket has the path of a file. */
const NO_FILE: ReadonlySet<unknown> = new Set(["EISDIR", "ELOOP", "ENXIO"]);

/** Returns whether an error says that something else has the path of a file. */
export function isNoFile(error: unknown): boolean {
  return NO_FILE.has(((error ?? {}) as { code?: unknown }).code);
}
