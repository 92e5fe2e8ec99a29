/**
 * One API message with the results of its calls. Claude Code writes each block of a message as a record of its own, and
 * parallel results as siblings: a step gathers them, until a record of another step comes.
 */

import {
  isObject,
  type JsonObject,
  makeAssistantMessage,
  NO_USAGE,
  type SourceUsage,
  toCount,
  toText,
} from "../../../../core/foreign/messages.ts";
import type { TranslatedEntry } from "../translator.ts";

/** An entry without its place in the tree. */
export type StepItem = Omit<TranslatedEntry, "parentId">;

/** The place of an agent's record among our entries: its successors come after `end`. */
export interface RecordPlace {
  /** The entry that was made of it; null for the place before the first. */
  readonly first: string | null;
  /** The last entry that was put behind it without being a branch. */
  end: string | null;
  readonly parent: RecordPlace | null;
  /** True for a message of the model with calls whose results are all in one line behind it. */
  calls: boolean;
  /** The calls that have a result in that line: a second one of the same call begins a branch. */
  answered?: Set<string>;
}

export interface AnswerStep {
  readonly place: RecordPlace;
  readonly messageId: string | undefined;
  readonly model: string;
  readonly at: string;
  readonly content: Readonly<Record<string, unknown>>[];
  readonly callIds: Set<string>;
  usage: SourceUsage;
  /** As the API reports it; null before that. */
  stopReason: string | null;
  readonly error: string | undefined;
  readonly results: StepItem[];
  /** Entries that were written in between and come after the results. */
  readonly after: StepItem[];
}

const STOP_REASONS: Readonly<Record<string, "stop" | "length" | "toolUse" | "error">> = {
  end_turn: "stop",
  stop_sequence: "stop",
  pause_turn: "stop",
  tool_use: "toolUse",
  max_tokens: "length",
  model_context_window_exceeded: "length",
  refusal: "error",
};

export function getStepItems(step: AnswerStep): StepItem[] {
  const { place, content, model, usage, stopReason, error, at, callIds } = step;
  const otherwise = callIds.size > 0 ? "toolUse" : "stop";
  const message = makeAssistantMessage({
    content,
    api: "anthropic-messages",
    provider: "anthropic",
    model,
    usage,
    stopReason: error !== undefined ? "error" : (STOP_REASONS[stopReason ?? ""] ?? otherwise),
    errorMessage: error,
    at,
  });
  const answer: StepItem = { type: "message", id: place.first as string, timestamp: at, members: message };
  return [answer, ...step.results, ...step.after];
}

/** Returns the calls that items answer; undefined unless all of them are results. */
export function getAnsweredCalls(items: readonly StepItem[]): string[] | undefined {
  const messages = items.map(({ type, members }) =>
    type === "message" && isObject(members.message) ? members.message : {},
  );
  const areResults = messages.every(({ role }: JsonObject) => role === "toolResult");
  return areResults ? messages.map(({ toolCallId }: JsonObject) => toText(toolCallId) ?? "") : undefined;
}

/** Returns the usage of an API message, with the cost from its record if that has one. */
export function parseClaudeUsage({ usage }: JsonObject, { costUSD }: JsonObject): SourceUsage {
  if (!isObject(usage)) return NO_USAGE;
  return {
    input: toCount(usage.input_tokens),
    output: toCount(usage.output_tokens),
    cacheRead: toCount(usage.cache_read_input_tokens),
    cacheWrite: toCount(usage.cache_creation_input_tokens),
    cost: toCount(costUSD),
  };
}

// --- compactions: a boundary, which names the kept messages, and the summary after it -------------------------------

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
  const members = { summary, firstKeptEntryId, tokensBefore, details };
  return { type: "compaction", id, timestamp: at, members };
}
