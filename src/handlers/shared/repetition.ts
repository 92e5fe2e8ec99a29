/** The rules for sending a command again after the server that had it died (protocol, "Sending again"). */

import type { Command } from "./command.ts";

/**
 * The reason why a command may be sent to another process: it is `repeatable` as it is; its idempotency key is kept
 * in the `entries` that it wrote or in the header of the `session` that it made; or it may not, because the key is
 * remembered by the `process` alone, or because it takes `none`.
 */
export type Repetition = "repeatable" | "entries" | "session" | "process" | "none";

export function getRepetition(command: Command): Repetition {
  const { effect, repeatable = effect === "read" || effect === "control" || effect === "close" } = command;
  if (repeatable) return "repeatable";
  if (command.repeat) return "entries";
  if (command.recall) return "session";
  return effect === "write" || effect === "replace" ? "process" : "none";
}
