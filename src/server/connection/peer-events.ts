/** Events between the processes that share a session. */

import type { SharedClient } from "../../core/ports/attach.ts";
import type { EventName } from "../../handlers/shared/events.ts";
import type { PendingEvent } from "./events.ts";

/** Events about a session itself, for all clients that share it; the others are about one host. */
const SHARED: ReadonlySet<EventName> = new Set([
  "session_append",
  "session_compact",
  "session_damage",
  "session_info_changed",
  "session_tree",
]);

export function isSharedEvent({ name }: PendingEvent): boolean {
  return SHARED.has(name);
}

/** Events with a member for the other client that caused them. */
const CAUSED: ReadonlySet<EventName> = new Set([
  "session_append",
  "session_compact",
  "session_info_changed",
  "session_tree",
]);

/** Returns an event for the hosts that did not cause it; `by` did, if that is known. */
export function toPeerEvent(event: PendingEvent, by: SharedClient | undefined): PendingEvent {
  const { name, payload } = event;
  if (!CAUSED.has(name) || payload.origin === "foreign") return event;
  const cause = by && { client: { id: by.id, name: by.name, pid: by.pid } };
  return { ...event, payload: { ...payload, ...(payload.origin === "self" ? { origin: "peer" } : {}), ...cause } };
}
