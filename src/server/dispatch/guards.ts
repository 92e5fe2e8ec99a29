/** Guards: preconditions of a write. */

import { Failure } from "../../core/failure.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { Call } from "../connection/call.ts";
import type { KeyedParams } from "./keyed-results.ts";

/** Throws read_only and content_modified, as Session.guard does. */
export function guardWrite(session: Session, { command, params }: Call): void {
  session.guard((params as KeyedParams).expectedLeafId, command.checksReadOnly);
}

/**
 * Throws content_modified unless the closed session of a write has the expected leaf. A command that appends entries
 * checks this itself.
 */
export function guardClosed(workspace: Workspace, { command, params }: Call): void {
  const { expectedLeafId, sessionPath } = params as KeyedParams & { sessionPath?: string };
  if (expectedLeafId === undefined || command.repeat) return;
  const path = command.about ? command.about(workspace, params as never) : sessionPath;
  if (path === undefined) return;
  let session: Session;
  try {
    session = workspace.open({ sessionPath: workspace.stores.migrations.currentPathOf(path) });
  } catch (error) {
    // The command reports in its own words why the session cannot be opened.
    if (error instanceof Failure) return;
    throw error;
  }
  try {
    session.guard(expectedLeafId, true);
  } finally {
    workspace.release(session);
  }
}
