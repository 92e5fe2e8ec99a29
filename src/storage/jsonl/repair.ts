/** The lines with which a damaged session file is published anew. */

import { withMember } from "../../core/format/entry.ts";
import { bytesOf } from "../../core/json/json.ts";
import type { Repairs } from "../../core/ports/store.ts";
import { MISSING } from "../../core/tree/nodes.ts";
import type { EntryReader } from "../log/entry-reader.ts";
import type { KnownEntries } from "../log/known-entries.ts";

/**
 * Sets the lines of entries that a repair changes: placeholders for damaged ones, the parents that opening worked out
 * for entries whose own is missing or was cut off, and those in `repairs`. Returns a function that takes back the last:
 * until they are written, the file has the old lines.
 */
export function overrideRepaired(entries: KnownEntries, reader: EntryReader, repairs: Repairs): () => void {
  const { nodes, damage, overrides, placeholders } = entries;
  const bridged = new Set(damage.filter(({ kind }) => kind === "missing_parent").map(({ entryId }) => entryId));
  for (let position = 0; position < nodes.count; position++) {
    const parent = nodes.parent(position);
    if (parent !== MISSING && !bridged.has(nodes.id(position))) continue;
    const parentId = parent < 0 ? null : nodes.id(parent);
    overrides.set(position, withMember(reader.read(position), "parentId", bytesOf(JSON.stringify(parentId))));
  }
  for (let position = 0; position < nodes.count; position++) reader.read(position);
  for (const [position, line] of placeholders) overrides.set(position, line);
  const before = Array.from(repairs.keys(), (position) => [position, overrides.get(position)] as const);
  for (const [position, complete] of repairs) overrides.set(position, complete(reader.read(position)));
  return () => {
    for (const [position, line] of before)
      if (line) overrides.set(position, line);
      else overrides.delete(position);
  };
}
