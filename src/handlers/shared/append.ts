/** Appends for commands: with the idempotency key, and with events for the host. */

import { BadParams } from "../../core/failure.ts";
import { makeDamage } from "../../core/format/damage.ts";
import type { Draft } from "../../core/format/entry.ts";
import { Raw } from "../../core/json/raw.ts";
import { captureSettings, noteSettings } from "../../core/session/changes.ts";
import type { Appended, Foreign, Session } from "../../core/session/session.ts";
import type { CommandContext } from "./command.ts";

/** Sends events, through `notify`, for changes by other programs that have not been reported yet. */
export function notifyForeign(session: Session, foreign: Foreign | null, notify: CommandContext["notify"]): void {
  const { positions = [], lost = 0 } = foreign ?? {};
  if (positions.length > 0)
    notify("session_append", {
      entryIds: positions.map((position) => session.log.nodes.id(position)),
      origin: "foreign",
      entries: Raw.array(() => session.log.readMany(positions, true)),
    });
  if (lost > 0) {
    const reason = `another program rewrote the session without ${lost} entries that were there`;
    notify("session_damage", { damage: [{ ...makeDamage("lost_entries", reason, false) }] });
  }
}

export function getEntryTypes(context: CommandContext, entryIds: readonly string[]): string[] {
  const { nodes } = context.session.log;
  return entryIds.map((id) => nodes.type(nodes.position(id)));
}

/** Throws BadParams unless the entries of a key have these types; else another command used the key. */
export function requireTypes(context: CommandContext, entryIds: readonly string[], types: readonly string[]): void {
  const found = getEntryTypes(context, entryIds);
  if (found.length === types.length && found.every((type, index) => type === types[index])) return;
  throw new BadParams([
    { path: "idempotencyKey", message: "this session has used the key for another command; choose a new one" },
  ]);
}

/** Appends drafts, as Session.append does, and notifies the host. Throws what that throws. */
export function appendEntries(context: CommandContext, drafts: readonly Draft[], defer?: boolean): Appended {
  const appended = context.session.append(drafts, context.key, defer);
  notifyAppended(context, context.session, appended.ids);
  if (drafts.some(({ type }) => type === "session_info"))
    context.notify("session_info_changed", { name: context.session.name });
  return appended;
}

/** Does the same with the drafts of entries, and records the names and labels that they set as one operation. */
export function appendRecorded(
  context: CommandContext,
  drafts: readonly Draft[],
  entries: Parameters<typeof captureSettings>[1],
  defer?: boolean,
): Appended {
  const before = captureSettings(context.session, entries);
  const appended = appendEntries(context, drafts, defer);
  noteSettings(context.session, before, appended.ids);
  return appended;
}

/** Notifies the host of entries that were written for it, after those that other programs wrote before. */
export function notifyAppended(
  context: Pick<CommandContext, "notify">,
  session: Session,
  entryIds: readonly string[],
): void {
  notifyForeign(session, session.externalChanges.fresh(), (name, payload) => context.notify(name, payload));
  if (entryIds.length > 0) context.notify("session_append", { entryIds, origin: "self" });
}

/** Returns the `repeat` of a command that writes one entry of this type and answers with its id. */
export function makeRepeat(type: string): (context: CommandContext, entryIds: string[]) => { entryId: string } {
  return (context, entryIds) => {
    requireTypes(context, entryIds, [type]);
    return { entryId: entryIds[0] };
  };
}
