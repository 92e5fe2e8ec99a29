/** Events about facts that a call found: they remain true if the call fails, and no later call finds them again. */

import type { Session } from "../../core/session/session.ts";
import { isFoundEvent, type PendingEvent } from "../connection/events.ts";

/**
 * Returns the events of a failed call that remain true, with the present leaf. Entries that are still there are noted
 * for a report after its reply, including entries kept by a failed commit.
 */
export function keepFoundEvents(session: Session | null, events: readonly PendingEvent[]): PendingEvent[] {
  const left: PendingEvent[] = [];
  for (const event of events.filter(isFoundEvent)) {
    if (session?.id !== event.sessionId) left.push(event);
    else if (event.name === "session_append") session.externalChanges.noteAgain(event.payload.entryIds as string[]);
    else left.push({ ...event, leafId: session.ownLeafId, leaves: session.heads.leaves() });
  }
  return left;
}
