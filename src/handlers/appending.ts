/** Appending for a command: with its idempotency key, and told to the host. */

import type { Draft } from "../core/entry.ts";
import type { Appended } from "../core/session.ts";
import type { Context } from "./command.ts";

/** Throws what Session.append throws. */
export function appendEntries(context: Context, drafts: readonly Draft[]): Appended {
  const appended = context.session.append(drafts, context.key);
  context.tell("session_append", { entryIds: appended.ids, origin: "self" });
  return appended;
}
