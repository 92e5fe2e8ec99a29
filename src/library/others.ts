/**
 * The stores of sessions that are no session files. The built library has them in a file of their own, which it loads with
 * the first such session: importing the library takes half of the time without them.
 */

import { modules } from "../compose.ts";
import type { AgentSessions, ForeignModule } from "../storage/foreign-module.ts";

export { makeSegmentedStore as segmentedStore } from "../storage/v2/store.ts";

/** Returns undefined in a build without other agents' sessions. */
export function openAgentSessions(...place: Parameters<ForeignModule["openAgentSessions"]>): AgentSessions | undefined {
  return modules.foreign?.openAgentSessions(...place);
}
