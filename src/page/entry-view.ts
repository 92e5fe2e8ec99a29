/** The entries of a branch as readers see them, before they are HTML or Markdown. */

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

/** An entry as its readers know it. */
export type EntryView = ReturnType<typeof viewEntry>;

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

/** Yields the entries of a branch with their results; those that a compaction replaced, between a fold and its end. */
export function* walkBranch({ folds, entries }: DrawnBranch) {
  const all = folds();
  const starts = new Map(all.map((fold) => [fold.start, fold]));
  const ends = new Set(all.map(({ end }) => end));
  for (const { index, entry, results } of groupEntries(entries(), new Set([...starts.keys(), ...ends]))) {
    if (ends.delete(index)) yield { is: "end" } as const;
    const fold = starts.get(index);
    if (fold) yield { is: "fold", fold } as const;
    starts.delete(index);
    yield { is: "entry", entry, results } as const;
  }
  if (ends.size > 0) yield { is: "end" } as const;
}

/** Returns an entry as it is seen after those that were drawn. */
export function viewEntry(page: ExportPage, { body }: PageEntry, drawn: Drawn) {
  const wasAnswering = drawn.answering;
  if (body.type === "message") return viewMessage(toMembers(body.message), drawn);
  drawn.answering = false;
  if (body.type === "compaction" || body.type === "branch_summary") {
    const isCompaction = body.type === "compaction";
    return {
      is: "summary" as const,
      title: isCompaction ? "Summary of what came before (compaction)" : "Summary of a branch",
      text: toShownText(body.summary),
      tokens: isCompaction ? toAmount(body.tokensBefore) : 0,
      // The position of the entry that was left, or -1.
      from: isCompaction ? -1 : page.find(toStored(body.fromId)),
    };
  }
  if (body.type === "custom_message") {
    const { customType, content, display, details } = body;
    const json = details === undefined ? "" : toIndentedJson(details);
    const title = toShownText(customType) || "Extension";
    // The agent's screen leaves hidden ones out; the model reads them.
    return { is: "custom" as const, title, content, details: json, isHidden: display === false };
  }
  drawn.answering = wasAnswering;
  return viewNote(page, body, drawn);
}

function viewMessage(message: LooseMembers, drawn: Drawn) {
  const { role, content } = message;
  const wasAnswering = drawn.answering;
  drawn.answering = role === "assistant" || (role === "toolResult" && wasAnswering);
  if (role === "user") return { is: "question" as const, turn: ++drawn.turns, content };
  if (role === "toolResult") return { is: "result" as const, message };
  if (role === "bashExecution") return { is: "command" as const, message };
  if (role !== "assistant")
    return { is: "custom" as const, title: toShownText(role) || "Message", content, details: "", isHidden: false };
  const model = toStored(message.model);
  const isNew = model !== "" && model !== drawn.model;
  if (isNew) drawn.model = model;
  const { stopReason, errorMessage } = message;
  const word = stopReason === "error" ? "Failed" : stopReason === "aborted" ? "Aborted" : undefined;
  return {
    is: "answer" as const,
    message,
    // Another one than before.
    model: isNew ? model : "",
    usage: describeUsage(message.usage),
    // Its end, unless the model ended it.
    stop: word === undefined ? undefined : { word, said: toShownText(errorMessage) },
    isContinued: wasAnswering && !isNew,
  };
}

/** Returns an entry that is no message. */
function viewNote(page: ExportPage, body: LooseMembers, drawn: Drawn) {
  const { type, id: _id, parentId: _parent, timestamp: _time, ...rest } = body;
  switch (type) {
    case "model_change":
      drawn.model = toStored(rest.modelId);
      return {
        is: "fact" as const,
        name: "Model:",
        value: [toShownText(rest.provider), drawn.model].filter(Boolean).join("/"),
      };
    case "thinking_level_change":
      return { is: "fact" as const, name: "Thinking:", value: toShownText(rest.thinkingLevel) };
    case "session_info":
      return { is: "fact" as const, name: "Named", value: toShownText(rest.name) };
    case "label":
      return { is: "label" as const, label: toShownText(rest.label), target: page.find(toStored(rest.targetId)) };
    default: {
      const title = toPreview([toShownText(type), toShownText(rest.customType)].filter(Boolean).join(": "));
      return { is: "data" as const, title, json: toIndentedJson(rest) };
    }
  }
}
