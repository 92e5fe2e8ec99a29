/** Becoming the writer of a session that other machines may write to, too. */

import type { Session } from "./session.ts";

/**
 * Makes this process the writer of a session, with all entries of other writers; if that is impossible, an append fails
 * with the reason. Returns undefined if there is nothing to wait for. Rejects if the session cannot be read any more.
 */
export function becomeWriter(session: Session): Promise<void> | undefined {
  const { log } = session;
  return log.ready?.()?.then(() => {
    session.externalChanges.becomeWriter();
    session.externalChanges.checkForChanges();
    // The log that replaced it is asked, too.
    return session.log === log ? undefined : becomeWriter(session);
  });
}
