/** The idempotency keys of a session's appends. They survive a restart, because they are in the entries. */

import type { Batch } from "../format/entry.ts";
import type { SessionEntries } from "./entries.ts";

/** Entries at the end that are searched for a repeated idempotency key (protocol, `append`). */
const KEY_WINDOW = 10_000;

export interface KeyedAppend {
  readonly ids: string[];
  readonly leafId: string | null;
}

/** Returns the appends with a key, by their key. */
export function keyedAppends(entries: SessionEntries): Map<string, KeyedAppend> {
  const { header, nodes } = entries.log;
  const keyed = new Map<string, KeyedAppend>();
  let ids: string[] = [];
  for (let p = Math.max(0, nodes.count - KEY_WINDOW); p < nodes.count; p++) {
    if (!nodes.isBatch(p)) continue;
    const batch = entries.entry(p)._batch as Partial<Batch> | null;
    if (batch?.session !== header.id || typeof batch.key !== "string") continue;
    if (batch.index === 0) ids = [];
    ids.push(nodes.id(p));
    // The rest of a torn batch was never acknowledged, wherever it is.
    if (ids.length === batch.count && batch.index === batch.count - 1)
      keyed.set(batch.key, { ids, leafId: nodes.id(p) });
  }
  return keyed;
}
