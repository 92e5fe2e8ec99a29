/** Compactions of Claude Code: a boundary, which names the kept messages, and the summary after it. */

import { isObject, toCount, toText } from "../../../../core/foreign/messages.ts";
import type { RecordPlace, StepItem } from "./step.ts";

export interface CompactBoundary {
  readonly uuid: string;
  readonly at: string;
  /** The last compacted record. */
  readonly parent: RecordPlace;
  /** The uuids of the kept records, if the boundary names any; the first one that exists counts. */
  readonly kept: readonly string[];
  readonly tokensBefore: number;
  readonly details: unknown;
  /** The boundary as it is. The compaction replaces it when its summary comes. */
  readonly raw: StepItem;
  /** Records between the boundary and its summary, which come after the compaction. */
  readonly after: { readonly uuid: string; readonly item: StepItem }[];
}

export function parseBoundary(
  record: Readonly<Record<string, unknown>>,
): Pick<CompactBoundary, "kept" | "tokensBefore" | "details"> {
  const { compactMetadata } = record;
  if (!isObject(compactMetadata)) return { kept: [], tokensBefore: 0, details: undefined };
  const { preservedSegment, preservedMessages, preTokens } = compactMetadata;
  const head = isObject(preservedSegment) ? toText(preservedSegment.headUuid) : undefined;
  const list = isObject(preservedMessages) ? preservedMessages.uuids : undefined;
  const uuids = Array.isArray(list) ? list.filter((uuid) => typeof uuid === "string") : [];
  return {
    kept: head === undefined ? uuids : [head],
    tokensBefore: toCount(preTokens),
    details: compactMetadata,
  };
}

/** Returns the first kept entry; undefined if no kept entry is on the way to the boundary. */
export function findKeptEntry(
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

export function makeCompactionItem(
  { at, tokensBefore, details }: CompactBoundary,
  id: string,
  summary: string,
  firstKeptEntryId: string,
): StepItem {
  const members = { summary, firstKeptEntryId, tokensBefore, ...(details === undefined ? {} : { details }) };
  return { type: "compaction", id, timestamp: at, members };
}
