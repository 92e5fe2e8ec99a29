/** Events between the processes that share a session. */

import type { EventName } from "../../handlers/shared/events.ts";
import type { PendingEvent } from "../connection/host.ts";

/** Events about a session itself, which all who share it hear; the others are about one host. */
const SHARED: ReadonlySet<EventName> = new Set([
  "session_append",
  "session_compact",
  "session_damage",
  "session_info_changed",
  "session_tree",
]);

export function isShared({ name }: PendingEvent): boolean {
  return SHARED.has(name);
}

/** Returns an event as those hear it who did not cause it. */
export function ofPeer(event: PendingEvent): PendingEvent {
  const { payload } = event;
  return payload.origin === "self" ? { ...event, payload: { ...payload, origin: "peer" } } : event;
}
