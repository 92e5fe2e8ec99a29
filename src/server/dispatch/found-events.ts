/** Events of a call that found rather than did something: its failure does not take them back, and nobody finds them again. */

import type { Session } from "../../core/session/session.ts";
import { isFound, type PendingEvent } from "../connection/host.ts";

/**
 * Returns those of the events of a call that failed which hold all the same, with the leaf that there is now. Entries that
 * are still there are noted to be told again behind its reply, with those that stayed though their commit failed.
 */
export function stillFound(session: Session | null, events: readonly PendingEvent[]): PendingEvent[] {
  const left: PendingEvent[] = [];
  for (const event of events.filter(isFound)) {
    if (session?.id !== event.sessionId) left.push(event);
    else if (event.name === "session_append") session.foreign.noteAgain(event.payload.entryIds as string[]);
    else left.push({ ...event, leafId: session.ownLeafId, leaves: session.heads.leaves() });
  }
  return left;
}
