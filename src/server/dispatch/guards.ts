/** Guards: what must hold before a write runs. */

import type { Session } from "../../core/session/session.ts";
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
