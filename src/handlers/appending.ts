/** Appending for a command: with its idempotency key, and told to the host. */

import type { Draft } from "../core/entry.ts";
import { Raw } from "../core/raw.ts";
import type { Appended, Session } from "../core/session.ts";
import type { Context } from "./command.ts";
import type { EventPayload } from "./events.ts";

/** What to tell of entries that another program wrote. */
export function foreignPayload(session: Session, positions: readonly number[]): EventPayload<"session_append"> {
  return {
    entryIds: positions.map((position) => session.log.nodes.id(position)),
    origin: "foreign",
    entries: Raw.array(() => session.log.readMany(positions)),
  };
}

/** Throws what Session.append throws. */
export function appendEntries(context: Context, drafts: readonly Draft[]): Appended {
  const appended = context.session.append(drafts, context.key);
  if (appended.foreign.length > 0) context.tell("session_append", foreignPayload(context.session, appended.foreign));
  context.tell("session_append", { entryIds: appended.ids, origin: "self" });
  return appended;
}
