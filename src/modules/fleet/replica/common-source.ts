/** The session that another was forked from, as far as both have the same lines: the database copies those by itself. */

import type { Fleet, FleetEnd } from "../../../core/ports/fleet.ts";
import type { Log } from "../../../core/ports/store.ts";
import { getIdInPath } from "../../../core/search/listing.ts";
import { getHeaderFacts } from "../../../storage/catalog/summary.ts";
import { computeEnd, isSameEnd, NOTHING } from "../postgres/ends.ts";
import type { CommonSource } from "./commit.ts";

/** Stretches that are compared before other work runs: 2 ms each. */
const AT_ONCE = 4;

/** Returns the common source for the first `count` entries of a log; undefined if it does not exist. */
export async function findCommonSource(fleet: Fleet, log: Log, count: number): Promise<CommonSource | undefined> {
  const { parentSession } = getHeaderFacts(log.header);
  if (parentSession === null || !fleet.stretches) return undefined;
  const sessionId = getIdInPath(parentSession);
  let known: readonly FleetEnd[];
  try {
    known = await fleet.stretches(sessionId);
  } catch {
    // Then all lines are sent.
    return undefined;
  }
  const ends: FleetEnd[] = [];
  let end = NOTHING;
  for (const there of known) {
    if (there.entries > count) break;
    if (ends.length % AT_ONCE === AT_ONCE - 1) await new Promise((resolve) => setImmediate(resolve));
    end = computeEnd(log, there.entries, end);
    if (!isSameEnd(end, there)) break;
    ends.push(end);
  }
  return ends.length === 0 ? undefined : { sessionId, ends };
}
