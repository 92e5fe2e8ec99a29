/** Compactions of Claude Code: a boundary, which says what was kept, and the summary that comes after it. */

import { countIn, isObject, textIn } from "../messages.ts";
import type { RecordPlace, StepItem } from "./step.ts";

export interface CompactBoundary {
  readonly uuid: string;
  readonly at: string;
  /** The end of what was compacted. */
  readonly parent: RecordPlace;
  /** The uuids of what was kept, where the boundary names any; the first one counts that is there. */
  readonly kept: readonly string[];
  readonly tokensBefore: number;
  readonly details: unknown;
  /** The boundary as it is, in whose place the compaction comes when its summary is there. */
  readonly raw: StepItem;
  /** Records between the boundary and its summary, which come after the compaction. */
  readonly after: { readonly uuid: string; readonly item: StepItem }[];
}

/** Returns what the record of a boundary says. */
export function boundaryIn(
  record: Readonly<Record<string, unknown>>,
): Pick<CompactBoundary, "kept" | "tokensBefore" | "details"> {
  const { compactMetadata } = record;
  if (!isObject(compactMetadata)) return { kept: [], tokensBefore: 0, details: undefined };
  const { preservedSegment, preservedMessages, preTokens } = compactMetadata;
  const head = isObject(preservedSegment) ? textIn(preservedSegment.headUuid) : undefined;
  const list = isObject(preservedMessages) ? preservedMessages.uuids : undefined;
  const uuids = Array.isArray(list) ? list.filter((uuid) => typeof uuid === "string") : [];
  return {
    kept: head === undefined ? uuids : [head],
    tokensBefore: countIn(preTokens),
    details: compactMetadata,
  };
}

/** Returns the first entry that was kept; undefined when none was that is on the way to the boundary. */
export function keptIn(
  { kept, parent }: CompactBoundary,
  places: ReadonlyMap<string, RecordPlace>,
): string | undefined {
  const wanted = new Set<RecordPlace>();
  for (const uuid of kept) {
    const place = places.get(uuid);
    if (place) wanted.add(place);
  }
  let first: RecordPlace | undefined;
  if (wanted.size > 0)
    for (let at: RecordPlace | null = parent; at !== null; at = at.parent) if (wanted.has(at)) first = at;
  return first?.first ?? undefined;
}

export function compactionItem(
  { at, tokensBefore, details }: CompactBoundary,
  id: string,
  summary: string,
  firstKeptEntryId: string,
): StepItem {
  const members = { summary, firstKeptEntryId, tokensBefore, ...(details === undefined ? {} : { details }) };
  return { type: "compaction", id, timestamp: at, members };
}
