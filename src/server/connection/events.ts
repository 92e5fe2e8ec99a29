/** Events, which the server sends on its own, as of the moment they happen. */

import type { Session } from "../../core/session/session.ts";
import type { EventName, EventPayload } from "../../handlers/shared/events.ts";
import type { ReportedLeaves } from "./call.ts";

/** An event as of the moment it happened; it gets its number when it is sent. */
export interface PendingEvent extends ReportedLeaves {
  readonly name: EventName;
  readonly sessionId: string;
  readonly payload: Readonly<Record<string, unknown>>;
}

export function makeEvent<N extends EventName>(session: Session, name: N, payload: EventPayload<N>): PendingEvent {
  const said = payload as PendingEvent["payload"];
  return { name, sessionId: session.id, leafId: session.ownLeafId, leaves: session.heads.leaves(), payload: said };
}

/** Returns whether an event reports changes by other programs or damage: any call that finds these reports them. */
export function isFoundEvent({ name, payload }: Pick<PendingEvent, "name" | "payload">): boolean {
  return name === "session_damage" || payload.origin === "foreign";
}
