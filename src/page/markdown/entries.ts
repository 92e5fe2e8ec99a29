/** The entries of a branch in Markdown: questions as headings, everything else below them. */

import type { ExportPage, PageBranch, PageEntry } from "../../core/export/page.ts";
import { type ToolCall, toStored } from "../../core/format/message.ts";
import { formatAmount, formatCount } from "../amounts.ts";
import {
  type BlockWriter,
  type DrawnBranch,
  type EntryView,
  startDrawing,
  TOO_LONG,
  viewEntry,
  walkBranch,
  writeBlocks,
} from "../entry-view.ts";
import { writeBlock, writeCall, writeCommandRun, writeImage, writeLoneResult } from "./calls.ts";
import { escapeTextLine, foldCode, foldText, makeAnchor, makeSummary } from "./escape.ts";
import { writeProse } from "./prose.ts";

const BLOCKS: BlockWriter = {
  text: writeProse,
  thinking: (text) => (text.trim() === "" ? "" : foldText("Thinking", text)),
  image: writeImage,
  call: writeCall,
};

/** Yields a branch; entries replaced by compactions are folded. */
export function* writeBranch(page: ExportPage, branch: DrawnBranch): Generator<string> {
  const written = startDrawing();
  for (const step of walkBranch(branch)) {
    if (step.is === "end") yield FOLD_END;
    else if (step.is === "fold") {
      const count = formatCount(step.fold.end - step.fold.start, "entry", "entries");
      yield `${TOO_LONG}: [read the summary](#${page.anchorOf(step.fold.by)}).\n\n`;
      yield writeFoldStart(`Read the ${count} that the summary replaced`);
    } else {
      const { entry, results } = step;
      yield entryMarkdown(page, entry, viewEntry(page, entry, written), results);
      for (const one of [entry, ...results.values()]) yield* leftHere(page, one);
    }
  }
}

/** The beginning of a fold with Markdown in it; the blank lines make it Markdown. Obsidian leaves such a fold open. */
export function writeFoldStart(title: string): string {
  return `<details><summary>${makeSummary(title)}</summary>\n\n`;
}

export const FOLD_END = "</details>\n\n";

function* leftHere({ branches }: ExportPage, { branchesHere }: PageEntry): Generator<string> {
  if (branchesHere.length === 0) return;
  yield "Other branches from here:\n\n";
  for (const number of branchesHere) yield `- ${branchLink(branches[number - 1])}\n`;
  yield "\n";
}

function branchLink({ number, preview: said, length }: PageBranch): string {
  return `[${escapeTextLine(said() || `Branch ${number}`)}](#branch.${number}), ${formatCount(length, "entry", "entries")}`;
}

function entryMarkdown(
  page: ExportPage,
  entry: PageEntry,
  view: EntryView,
  results: ReadonlyMap<ToolCall, PageEntry>,
): string {
  const { anchor, label } = entry;
  switch (view.is) {
    case "question": {
      const facts = aboutOf(entry).join(" · ");
      const heading = `${makeAnchor(anchor)}\n\n### You ${view.turn}\n\n`;
      return `${heading}${facts === "" ? "" : `${facts}\n\n`}${writeBlocks(view.content, BLOCKS)}`;
    }
    case "answer": {
      const { message, model, usage, stop } = view;
      const detail = [escapeTextLine(model), usage.join(", ").replace("$", "\\$&")].filter(Boolean).join(" · ");
      const end = stop ? `**${stop.word}** ${escapeTextLine(stop.said)}\n\n` : "";
      return named(entry, "Assistant", detail) + writeBlocks(message.content, BLOCKS, results) + end;
    }
    case "summary": {
      const { title, text, tokens, from } = view;
      const link = from < 0 ? "" : `[go to the left branch](#${page.anchorOf(from)})`;
      return named(entry, title, tokens === 0 ? link : `of ${formatAmount(tokens)} tokens`) + writeProse(text);
    }
    case "custom": {
      const { title, content, details, isHidden } = view;
      const inside = writeBlocks(content, BLOCKS) + (details === "" ? "" : foldCode("Details", details, "json"));
      const start = writeFoldStart("A message to the model that the agent hides");
      return named(entry, title) + (isHidden ? `${start}${inside}${FOLD_END}` : inside);
    }
    case "result":
      return writeLoneResult({ message: view.message, anchor, label });
    case "command":
      return `${makeAnchor(anchor)}${writeCommandRun(view.message)}`;
    case "fact":
      return `${makeAnchor(anchor)}${view.name} **${escapeTextLine(view.value)}**\n\n`;
    case "label": {
      const target = view.target < 0 ? "an entry" : `[an entry](#${page.anchorOf(view.target)})`;
      const set = `Label **${escapeTextLine(view.label)}** on ${target}`;
      return `${makeAnchor(anchor)}${view.label === "" ? `Label removed from ${target}` : set}\n\n`;
    }
    case "data":
      return named(entry, view.title || "Entry") + (view.json.length <= 2 ? "" : writeBlock("Data", view.json, "json"));
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
