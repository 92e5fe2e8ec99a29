/** Appending for a command: with its idempotency key, and told to the host. */

import type { Draft } from "../core/entry.ts";
import { BadParams } from "../core/failure.ts";
import { Raw } from "../core/raw.ts";
import type { Appended, Session } from "../core/session.ts";
import type { Context } from "./command.ts";
import type { EventPayload } from "./events.ts";

/** What to tell of entries that another program wrote. */
export function foreignPayload(session: Session, positions: readonly number[]): EventPayload<"session_append"> {
  return {
    entryIds: positions.map((position) => session.log.nodes.id(position)),
    origin: "foreign",
    entries: Raw.array(() => session.log.readMany(positions, true)),
  };
}

export function typesOf(context: Context, entryIds: readonly string[]): string[] {
  const { nodes } = context.session.log;
  return entryIds.map((id) => nodes.type(nodes.position(id)));
}

/** What a key stands for must be what the command writes; else the key was another command's. Throws BadParams. */
export function demandTypes(context: Context, entryIds: readonly string[], types: readonly string[]): void {
  const found = typesOf(context, entryIds);
  if (found.length === types.length && found.every((type, index) => type === types[index])) return;
  throw new BadParams([
    { path: "idempotencyKey", message: "this session has used the key for another command; choose a new one" },
  ]);
}

/** Throws what Session.append throws. */
export function appendEntries(context: Context, drafts: readonly Draft[]): Appended {
  const appended = context.session.append(drafts, context.key);
  if (appended.foreign.length > 0) context.tell("session_append", foreignPayload(context.session, appended.foreign));
  context.tell("session_append", { entryIds: appended.ids, origin: "self" });
  return appended;
}
