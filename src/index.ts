/** The library: Pi's SessionManager and its helper functions, with Pi's names, arguments and results. */

import type { SessionManager } from "./library/manager.ts";

export { Failure } from "./core/failure.ts";
export { CURRENT_VERSION as CURRENT_SESSION_VERSION } from "./core/format/entry.ts";
export {
  buildContextEntries,
  buildSessionContext,
  buildSessionProjection,
  getLatestCompactionEntry,
  loadEntriesFromFile,
  migrateSessionEntries,
  parseSessionEntries,
  sessionEntryToContextMessages,
} from "./library/entries.ts";
export { getDefaultSessionDir } from "./library/here.ts";
export { findMostRecentSession } from "./library/list.ts";
export { SessionManager } from "./library/manager.ts";
export { assertValidSessionId } from "./library/sessions.ts";
export type * from "./library/types.ts";

/** The methods that an extension may call on a session that is not its own. */
export type ReadonlySessionManager = Pick<
  SessionManager,
  | "getCwd"
  | "getSessionDir"
  | "getSessionId"
  | "getSessionFile"
  | "getLeafId"
  | "getLeafEntry"
  | "getEntry"
  | "getLabel"
  | "getBranch"
  | "buildContextEntries"
  | "buildSessionProjection"
  | "getHeader"
  | "getEntries"
  | "getTree"
  | "getSessionName"
>;
