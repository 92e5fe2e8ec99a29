/** The rules for sending a command again after the server that had it died (protocol, "Sending again"). */

import type { RunnableCommand } from "./command.ts";

/**
 * The reason why a command may be sent to another process: it is `repeatable` as it is; its idempotency key is kept
 * in the `entries` that it wrote or in the header of the `session` that it made; or it may not, because the key is
 * remembered by the `process` alone, or because it takes `none`.
 */
export type Repetition = "repeatable" | "entries" | "session" | "process" | "none";

/**
 * Returns whether the holder of a shared session runs a call for other processes: it writes entries and is recognised by
 * its key, so that a repeat after the holder's death changes nothing, or only the holder knows the answer.
 */
export function isForHolder({ command, params }: { command: RunnableCommand; params: unknown }): boolean {
  if (command.needsHolder) return true;
  if (command.effect !== "write" || getRepetition(command) !== "entries") return false;
  return command.readsOther?.((params ?? {}) as never) !== true;
}

export function getRepetition(command: RunnableCommand): Repetition {
  const { effect, repeatable = effect === "read" || effect === "control" || effect === "close" } = command;
  if (repeatable) return "repeatable";
  if (command.repeat) return "entries";
  if (command.recall) return "session";
  return effect === "write" || effect === "replace" ? "process" : "none";
}
