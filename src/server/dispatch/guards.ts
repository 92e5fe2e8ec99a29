/** Guards: what must hold before a write runs. */

import { Failure } from "../../core/failure.ts";
import type { Session } from "../../core/session/session.ts";
import type { Workspace } from "../../core/session/workspace.ts";
import type { Call } from "../connection/call.ts";
import type { KeyedParams } from "./keyed-results.ts";

/** Commands that decide themselves what they may do with a read-only session. */
const WRITES_WHERE_ALLOWED: ReadonlySet<string> = new Set([
  "branch",
  "migrate_session",
  "redo",
  "repair_session",
  "rollback_migration",
  "undo",
]);

/** Throws read_only and content_modified, as Session.guard does. */
export function guardWrite(session: Session, { command, params }: Call): void {
  session.guard((params as KeyedParams).expectedLeafId, WRITES_WHERE_ALLOWED.has(command.name));
}

/**
 * Throws content_modified unless the session that a write is about has the expected leaf, though it is not open. A command
 * that leaves entries looks itself.
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
    // The command says why the session cannot be opened, in its own words.
    if (error instanceof Failure) return;
    throw error;
  }
  try {
    session.guard(expectedLeafId, true);
  } finally {
    workspace.release(session);
  }
}
