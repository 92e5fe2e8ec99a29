/** Becoming the writer of a session that other machines may write to, too. */

import type { Session } from "./session.ts";

/**
 * Makes this process the writer of a session, with all that others wrote to it; an append fails with the reason where that
 * cannot be. Returns undefined where nothing has to be waited for. Rejects where the session cannot be read any more.
 */
export function becomeWriter(session: Session): Promise<void> | undefined {
  const { log } = session;
  return log.ready?.()?.then(() => {
    session.foreign.becomeWriter();
    session.foreign.checkForChanges();
    // What took its place is asked about, too.
    return session.log === log ? undefined : becomeWriter(session);
  });
}
