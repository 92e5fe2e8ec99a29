/** The entries of a branch as readers see them, before they are HTML or Markdown. */

import type { PageFold } from "../core/export/head.ts";
import type { ExportPage, PageBranch, PageEntry } from "../core/export/page.ts";
import { type LooseMembers, toBlocks, toMembers } from "../core/format/loose.ts";
import { getToolCalls, type ToolCall, toAmount, toPreview, toShownText, toStored } from "../core/format/message.ts";
import { describeUsage, toIndentedJson } from "./blocks.ts";
import { type CallResult, toCallResult } from "./call-view.ts";
import { groupEntries } from "./groups.ts";

/** The state after drawing the earlier entries of the same branch. */
export interface Drawn {
  turns: number;
  model: string;
  /** True if the last drawn entry was the assistant's. */
  answering: boolean;
}

export type DrawnBranch = Pick<PageBranch, "folds" | "entries">;

/** A step through a branch: the end or the beginning of a stretch that was compacted, or an entry with its results. */
export type BranchStep =
  | { readonly is: "end" }
  | { readonly is: "fold"; readonly fold: PageFold }
  | { readonly is: "entry"; readonly entry: PageEntry; readonly results: ReadonlyMap<ToolCall, PageEntry> };

/** An entry as its readers know it. */
export type EntryView =
  | { readonly is: "question"; readonly turn: number; readonly content: unknown }
  | {
      readonly is: "answer";
      readonly message: LooseMembers;
      /** The model, if it is another than before, and what the answer used, in words. */
      readonly model: string;
      readonly usage: readonly string[];
      /** Its end, unless the model ended it. */
      readonly stop?: { readonly word: string; readonly said: string };
      /** True if it goes on after another of the same model. */
      readonly isContinued: boolean;
    }
  | {
      readonly is: "summary";
      readonly title: string;
      readonly text: string;
      readonly tokens: number;
      /** The position of the entry that was left, or -1. */
      readonly from: number;
    }
  | {
      readonly is: "custom";
      readonly title: string;
      readonly content: unknown;
      /** JSON. */
      readonly details: string;
      /** True if the agent's screen leaves it out; the model reads it. */
      readonly isHidden: boolean;
    }
  | { readonly is: "result" | "command"; readonly message: LooseMembers }
  | { readonly is: "fact"; readonly name: string; readonly value: string }
  /** A label that is set, or taken away if it is empty; `target` is the position of its entry, or -1. */
  | { readonly is: "label"; readonly label: string; readonly target: number }
  | { readonly is: "data"; readonly title: string; readonly json: string };

/** The writers of the blocks of a message. */
export interface BlockWriter {
  text(text: string): string;
  thinking(text: string): string;
  image(block: LooseMembers): string;
  call(call: ToolCall, result: CallResult | undefined): string;
}

/** Returns the blocks of a message, calls with their results. */
export function writeBlocks(content: unknown, to: BlockWriter, results?: ReadonlyMap<ToolCall, PageEntry>): string {
  const calls = results && results.size > 0 ? results.keys() : getToolCalls(content).values();
  const write = (block: LooseMembers): string => {
    if (block.type === "text") return to.text(toStored(block.text));
    if (block.type === "thinking") return to.thinking(toStored(block.thinking));
    if (block.type === "image") return to.image(block);
    if (block.type !== "toolCall") return "";
    const call = calls.next().value as ToolCall;
    return to.call(call, toCallResult(results?.get(call)));
  };
  return toBlocks(content).map(write).join("");
}

/** Returns how a branch stands before anything was drawn of it. */
export function startDrawing(): Drawn {
  return { turns: 0, model: "", answering: false };
}

/** Says to a reader who knows no agents why a stretch was compacted. */
export const TOO_LONG =
  "The conversation became too long for the model, so that it went on with a summary of this part";

/** Walks through a branch; entries replaced by compactions stand between the beginning and the end of a fold. */
export function* walkBranch({ folds, entries }: DrawnBranch): Generator<BranchStep> {
  const all = folds();
  const starts = new Map(all.map((fold) => [fold.start, fold]));
  const ends = new Set(all.map(({ end }) => end));
  for (const { index, entry, results } of groupEntries(entries(), new Set([...starts.keys(), ...ends]))) {
    if (ends.delete(index)) yield { is: "end" };
    const fold = starts.get(index);
    if (fold) yield { is: "fold", fold };
    starts.delete(index);
    yield { is: "entry", entry, results };
  }
  if (ends.size > 0) yield { is: "end" };
}

/** Returns an entry as it is seen after those that were drawn. */
export function viewEntry(page: ExportPage, { body }: PageEntry, drawn: Drawn): EntryView {
  const wasAnswering = drawn.answering;
  if (body.type === "message") return viewMessage(toMembers(body.message), drawn);
  drawn.answering = false;
  if (body.type === "compaction" || body.type === "branch_summary") {
    const isCompaction = body.type === "compaction";
    return {
      is: "summary",
      title: isCompaction ? "Summary of what came before (compaction)" : "Summary of a branch",
      text: toShownText(body.summary),
      tokens: isCompaction ? toAmount(body.tokensBefore) : 0,
      from: isCompaction ? -1 : page.find(toStored(body.fromId)),
    };
  }
  if (body.type === "custom_message") {
    const { customType, content, display, details } = body;
    const json = details === undefined ? "" : toIndentedJson(details);
    const title = toShownText(customType) || "Extension";
    return { is: "custom", title, content, details: json, isHidden: display === false };
  }
  drawn.answering = wasAnswering;
  return viewNote(page, body, drawn);
}

function viewMessage(message: LooseMembers, drawn: Drawn): EntryView {
  const { role, content } = message;
  const wasAnswering = drawn.answering;
  drawn.answering = role === "assistant" || (role === "toolResult" && wasAnswering);
  if (role === "user") return { is: "question", turn: ++drawn.turns, content };
  if (role === "toolResult") return { is: "result", message };
  if (role === "bashExecution") return { is: "command", message };
  if (role !== "assistant")
    return { is: "custom", title: toShownText(role) || "Message", content, details: "", isHidden: false };
  const model = toStored(message.model);
  const isNew = model !== "" && model !== drawn.model;
  if (isNew) drawn.model = model;
  const { stopReason, errorMessage } = message;
  const word = stopReason === "error" ? "Failed" : stopReason === "aborted" ? "Aborted" : undefined;
  return {
    is: "answer",
    message,
    model: isNew ? model : "",
    usage: describeUsage(message.usage),
    stop: word === undefined ? undefined : { word, said: toShownText(errorMessage) },
    isContinued: wasAnswering && !isNew,
  };
}

/** Returns an entry that is no message. */
function viewNote(page: ExportPage, body: LooseMembers, drawn: Drawn): EntryView {
  const { type, id: _id, parentId: _parent, timestamp: _time, ...rest } = body;
  switch (type) {
    case "model_change":
      drawn.model = toStored(rest.modelId);
      return { is: "fact", name: "Model:", value: [toShownText(rest.provider), drawn.model].filter(Boolean).join("/") };
    case "thinking_level_change":
      return { is: "fact", name: "Thinking:", value: toShownText(rest.thinkingLevel) };
    case "session_info":
      return { is: "fact", name: "Named", value: toShownText(rest.name) };
    case "label":
      return { is: "label", label: toShownText(rest.label), target: page.find(toStored(rest.targetId)) };
    default: {
      const title = toPreview([toShownText(type), toShownText(rest.customType)].filter(Boolean).join(": "));
      return { is: "data", title, json: toIndentedJson(rest) };
    }
  }
}
