/**
 * One API message with the results of its calls. Claude Code writes each block of a message as a record of its own, and
 * parallel results as siblings: a step gathers them, until a record comes that belongs to another.
 */

import {
  assistantMessage,
  countIn,
  isObject,
  type JsonObject,
  NO_USAGE,
  type SourceUsage,
  textIn,
} from "../messages.ts";
import type { TranslatedEntry } from "../translator.ts";

/** An entry without its place in the tree. */
export type StepItem = Omit<TranslatedEntry, "parentId">;

/** Where a record of the agent's is among our entries: those who continue it come after `end`. */
export interface RecordPlace {
  /** The entry that was made of it; null for the place before the first. */
  readonly first: string | null;
  /** The last of those that were put behind it without being a branch. */
  end: string | null;
  readonly parent: RecordPlace | null;
  /** Whether it is a message of the model with calls, whose results are all in one line behind it. */
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
  /** As the API says it; null while it has not. */
  stopReason: string | null;
  readonly error: string | undefined;
  readonly results: StepItem[];
  /** Entries that were written meanwhile and come after the results. */
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

/** Returns the items of a step in their order. */
export function itemsOf(step: AnswerStep): StepItem[] {
  const { place, content, model, usage, stopReason, error, at, callIds } = step;
  const otherwise = callIds.size > 0 ? "toolUse" : "stop";
  const message = assistantMessage({
    content,
    api: "anthropic-messages",
    provider: "anthropic",
    model,
    usage,
    stopReason: error !== undefined ? "error" : (STOP_REASONS[stopReason ?? ""] ?? otherwise),
    ...(error === undefined ? {} : { errorMessage: error }),
    at,
  });
  const speech: StepItem = { type: "message", id: place.first as string, timestamp: at, members: message };
  return [speech, ...step.results, ...step.after];
}

/** Returns the calls that items answer; undefined unless all of them are results. */
export function answersOf(items: readonly StepItem[]): string[] | undefined {
  const messages = items.map(({ type, members }) =>
    type === "message" && isObject(members.message) ? members.message : {},
  );
  const areResults = messages.every(({ role }: JsonObject) => role === "toolResult");
  return areResults ? messages.map(({ toolCallId }: JsonObject) => textIn(toolCallId) ?? "") : undefined;
}

/** Returns the usage that an API message says it has, with its cost where the record says that. */
export function usageIn({ usage }: JsonObject, { costUSD }: JsonObject): SourceUsage {
  if (!isObject(usage)) return NO_USAGE;
  return {
    input: countIn(usage.input_tokens),
    output: countIn(usage.output_tokens),
    cacheRead: countIn(usage.cache_read_input_tokens),
    cacheWrite: countIn(usage.cache_creation_input_tokens),
    cost: countIn(costUSD),
  };
}
