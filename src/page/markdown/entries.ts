/** The entries of a branch in Markdown: questions as headings, everything else below them. */

import type { ExportPage, PageBranch, PageEntry } from "../../core/export/page.ts";
import { type LooseMembers, toBlocks, toMembers } from "../../core/format/loose.ts";
import { getToolCalls, type ToolCall, toAmount, toPreview, toShownText, toStored } from "../../core/format/message.ts";
import { formatAmount, formatCount } from "../amounts.ts";
import { describeUsage, toIndentedJson } from "../blocks.ts";
import { toCallResult } from "../calls.ts";
import { groupEntries } from "../groups.ts";
import { writeBlock, writeCall, writeCommandRun, writeImage, writeLoneResult } from "./calls.ts";
import { escapeTextLine, foldCode, foldText, makeAnchor, makeSummary } from "./escape.ts";
import { writeProse } from "./prose.ts";

/** The state after writing the earlier entries of the same branch. */
interface Written {
  turns: number;
  model: string;
}

/** Yields a branch; entries replaced by compactions are folded. */
export function* writeBranch(page: ExportPage, branch: Pick<PageBranch, "folds" | "entries">): Generator<string> {
  const written: Written = { turns: 0, model: "" };
  const folds = branch.folds();
  const starts = new Map(folds.map((fold) => [fold.start, fold]));
  const ends = new Set(folds.map(({ end }) => end));
  for (const { index, entry, results } of groupEntries(branch.entries(), new Set([...starts.keys(), ...ends]))) {
    if (ends.delete(index)) yield FOLD_END;
    const fold = starts.get(index);
    if (fold) {
      const count = formatCount(fold.end - fold.start, "entry", "entries");
      yield `What follows was compacted: [read the summary](#${page.anchorOf(fold.by)}).\n\n`;
      yield writeFoldStart(`${count} that a compaction replaced`);
    }
    yield entryMarkdown(page, entry, results, written);
    for (const one of [entry, ...results.values()]) yield* leftHere(page, one);
  }
  if (ends.size > 0) yield FOLD_END;
}

/** The beginning of a fold with Markdown in it; the blank lines make it Markdown. Obsidian leaves such a fold open. */
export function writeFoldStart(title: string): string {
  return `<details><summary>${makeSummary(title)}</summary>\n\n`;
}

export const FOLD_END = "</details>\n\n";

function* leftHere({ branches }: ExportPage, { branchesHere }: PageEntry): Generator<string> {
  if (branchesHere.length === 0) return;
  yield "Another way was taken here, too:\n\n";
  for (const number of branchesHere) yield `- ${branchLink(branches[number - 1])}\n`;
  yield "\n";
}

function branchLink({ number, preview: said, length }: PageBranch): string {
  return `[${escapeTextLine(said() || `Branch ${number}`)}](#branch.${number}), ${formatCount(length, "entry", "entries")}`;
}

function entryMarkdown(
  page: ExportPage,
  entry: PageEntry,
  results: ReadonlyMap<ToolCall, PageEntry>,
  written: Written,
): string {
  const { body } = entry;
  switch (body.type) {
    case "message":
      return messageMarkdown(entry, toMembers(body.message), results, written);
    case "custom_message":
      return customMarkdown(entry);
    case "compaction": {
      const tokens = toAmount(body.tokensBefore);
      const detail = tokens === 0 ? "" : `of ${formatAmount(tokens)} tokens`;
      return named(entry, "Compaction", detail) + writeProse(toShownText(body.summary));
    }
    case "branch_summary": {
      const left = page.find(toStored(body.fromId));
      const link = left < 0 ? "" : `[go to the left branch](#${page.anchorOf(left)})`;
      return named(entry, "Summary of a branch", link) + writeProse(toShownText(body.summary));
    }
    default:
      return noteMarkdown(page, entry, written);
  }
}

/** Returns the line that begins an entry; `detail` is Markdown. */
function named(entry: PageEntry, title: string, detail = ""): string {
  const facts = [`**${escapeTextLine(title)}**`, detail, ...aboutOf(entry)].filter((fact) => fact !== "");
  return `${makeAnchor(entry.anchor)}${facts.join(" · ")}\n\n`;
}

/** Returns the label of an entry, and its time. */
function aboutOf({ label, body }: PageEntry): string[] {
  const mark = label === undefined ? [] : [`label **${escapeTextLine(label)}**`];
  const found = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)/.exec(toStored(body.timestamp));
  const time = found ? `${found[1]} ${found[2]}` : escapeTextLine(toStored(body.timestamp).slice(0, 40));
  return [...mark, ...(time === "" ? [] : [time])];
}

function customMarkdown(entry: PageEntry): string {
  const { customType, content, display, details } = entry.body;
  const head = named(entry, toShownText(customType) || "Extension");
  const more = details === undefined ? "" : foldCode("Details", toIndentedJson(details), "json");
  // The agent's screen leaves these out; the model reads them.
  if (display === false)
    return `${head}${writeFoldStart("A message to the model that is not shown")}${blocksMarkdown(content)}${more}${FOLD_END}`;
  return head + blocksMarkdown(content) + more;
}

function messageMarkdown(
  entry: PageEntry,
  message: LooseMembers,
  results: ReadonlyMap<ToolCall, PageEntry>,
  written: Written,
): string {
  const { role, content } = message;
  if (role === "user") {
    const facts = aboutOf(entry).join(" · ");
    const heading = `${makeAnchor(entry.anchor)}\n\n### You ${++written.turns}\n\n`;
    return `${heading}${facts === "" ? "" : `${facts}\n\n`}${blocksMarkdown(content)}`;
  }
  if (role === "assistant") {
    const model = toStored(message.model);
    const isNew = model !== "" && model !== written.model;
    if (isNew) written.model = model;
    const usage = describeUsage(message.usage).join(", ").replace("$", "\\$&");
    const detail = [isNew ? escapeTextLine(model) : "", usage].filter(Boolean).join(" · ");
    return named(entry, "Assistant", detail) + blocksMarkdown(content, results) + stopOf(message);
  }
  if (role === "toolResult") return writeLoneResult({ message, anchor: entry.anchor, label: entry.label });
  if (role === "bashExecution") return `${makeAnchor(entry.anchor)}${writeCommandRun(message)}`;
  return named(entry, toShownText(role) || "Message") + blocksMarkdown(content);
}

function stopOf({ stopReason, errorMessage }: LooseMembers): string {
  if (stopReason !== "error" && stopReason !== "aborted") return "";
  return `**${stopReason === "error" ? "Failed" : "Aborted"}** ${escapeTextLine(toShownText(errorMessage))}\n\n`;
}

function blocksMarkdown(content: unknown, results: ReadonlyMap<ToolCall, PageEntry> = new Map()): string {
  let text = "";
  const calls = results.size > 0 ? results.keys() : getToolCalls(content).values();
  for (const part of toBlocks(content)) {
    if (part.type === "text") text += writeProse(toStored(part.text));
    else if (part.type === "thinking") text += thinkingMarkdown(toStored(part.thinking));
    else if (part.type === "image") text += writeImage(part);
    else if (part.type === "toolCall") {
      const call = calls.next().value as ToolCall;
      text += writeCall(call, toCallResult(results.get(call)));
    }
  }
  return text;
}

function thinkingMarkdown(text: string): string {
  return text.trim() === "" ? "" : foldText("Thinking", text);
}

/** Returns an entry that is no message as one line. */
function noteMarkdown(page: ExportPage, entry: PageEntry, written: Written): string {
  const { type, id: _id, parentId: _parent, timestamp: _time, ...rest } = entry.body;
  const line = (name: string, value: string): string =>
    `${makeAnchor(entry.anchor)}${name} **${escapeTextLine(value)}**\n\n`;
  switch (type) {
    case "model_change":
      written.model = toStored(rest.modelId);
      return line("Model:", [toShownText(rest.provider), written.model].filter(Boolean).join("/"));
    case "thinking_level_change":
      return line("Thinking:", toShownText(rest.thinkingLevel));
    case "session_info":
      return line("Named", toShownText(rest.name));
    case "label": {
      const position = page.find(toStored(rest.targetId));
      const target = position < 0 ? "an entry" : `[an entry](#${page.anchorOf(position)})`;
      const label = toShownText(rest.label);
      const said = label === "" ? `Label taken from ${target}` : `Label **${escapeTextLine(label)}** on ${target}`;
      return `${makeAnchor(entry.anchor)}${said}\n\n`;
    }
    default: {
      const title = toPreview([toShownText(type), toShownText(rest.customType)].filter(Boolean).join(": "));
      const json = toIndentedJson(rest);
      return named(entry, title || "Entry") + (json.length <= 2 ? "" : writeBlock("Data", json, "json"));
    }
  }
}
