/** The library: Pi's SessionManager and its helper functions, with Pi's names, arguments and results. */

export { Failure } from "./core/failure.ts";
export {
  buildContextEntries,
  buildSessionContext,
  buildSessionProjection,
  CURRENT_SESSION_VERSION,
  getLatestCompactionEntry,
  loadEntriesFromFile,
  migrateSessionEntries,
  parseSessionEntries,
  sessionEntryToContextMessages,
} from "./library/entries.ts";
export { getDefaultSessionDir } from "./library/here.ts";
export { findMostRecentSession } from "./library/list.ts";
export { assertValidSessionId, type ReadonlySessionManager, SessionManager } from "./library/manager.ts";
export type * from "./library/types.ts";
