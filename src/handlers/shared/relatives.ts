/** The family of a session that is exported. */

import { findPageFamily, type PageFamily } from "../../core/export/head.ts";
import { Failure } from "../../core/failure.ts";
import type { Session } from "../../core/session/session.ts";
import type { CommandContext } from "./command.ts";

/**
 * Returns the sessions that one was forked from and that were forked from it; undefined if the list of sessions cannot
 * be read, which does not stop an export. Leaves out the names of other sessions if secrets are left out.
 */
export async function findRelatives(
  { workspace }: CommandContext,
  session: Session,
  isRedacted: boolean,
): Promise<PageFamily | undefined> {
  try {
    const { catalog } = workspace.stores;
    const listed = await catalog.list({});
    const archived = await catalog.list({ archived: true });
    return findPageFamily(session, [...listed.found, ...archived.found], !isRedacted);
  } catch (error) {
    if (error instanceof Failure) return undefined;
    throw error;
  }
}
