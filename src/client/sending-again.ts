/** The rules for sending a request next to others, and again to another server. */

import { repetitions } from "./repetitions.ts";

/** Returns whether a command may be sent again, with the key that it has. */
export function mayBeRepeated(name: string): boolean {
  const repetition = repetitions[name];
  return repetition === "repeatable" || isKept(name);
}

/** Returns whether what a command did is found again by its key. */
export function isKept(name: string): boolean {
  return repetitions[name] === "entries" || repetitions[name] === "session";
}

/**
 * Returns true if no other request may be sent between a command and its answer. Its effect may leave no key, and then
 * it must not be repeated after later ones: the leaf of `branch`, the current session of `switch_session`.
 */
export function isAlone(name: string): boolean {
  const repetition = repetitions[name];
  if (repetition === "entries") return name === "branch";
  return repetition !== "repeatable" || CHANGES_WHAT_IS_OPEN.has(name);
}

/** Returns true if a command only reads, so that a lost answer leaves nothing in doubt. */
export function isRead(name: string): boolean {
  return /^(compare|get|list|prepare|preview|search|verify)_/.test(name);
}

const CHANGES_WHAT_IS_OPEN: ReadonlySet<string> = new Set(["switch_session", "open_session", "close_session"]);

/** Returns how many entries a write may leave: it is known for `append`, and never more than a few for others. */
export function countOf(name: string, params: object): number {
  if (repetitions[name] !== "entries") return 0;
  const { entries } = params as { entries?: unknown };
  return Array.isArray(entries) ? entries.length : 4;
}

/** Returns whether a failure leaves open if a command was done by the server that died. */
export function isUnknownAfter(failure: string, name: string): boolean {
  if (repetitions[name] === "repeatable") return false;
  // A branch that writes nothing has no key, and moves the leaf that it expects.
  return BEFORE_THE_KEY.has(failure) || (name === "branch" && failure === "content_modified");
}

/** Failures of a session that was not looked at, or may not have been. */
const BEFORE_THE_KEY: ReadonlySet<string> = new Set([
  "no_session",
  "session_not_found",
  "not_a_session",
  "corrupt",
  "unsupported_version",
  "path_outside_root",
  "storage_failed",
  "shutting_down",
  "internal_error",
]);
