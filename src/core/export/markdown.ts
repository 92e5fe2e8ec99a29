/** A session as Markdown, the conversation in fenced blocks: no renderer takes any of it for HTML, links or images. */

import { type ContentPart, contentOf, visibleText } from "./content.ts";
import type { ExportPage, PageBranch, PageEntry } from "./page.ts";

export function* markdownPieces(page: ExportPage): Generator<string> {
  yield `# ${inline(page.title)}\n\n`;
  for (const [name, value] of page.facts) yield `- ${inline(name)}: ${inline(value)}\n`;
  const { branches } = page;
  if (branches.length > 1) yield `\n${branches.map(contentsLine).join("")}`;
  for (const branch of branches) {
    if (branches.length > 1) yield `\n${headingOf(branch)}\n`;
    for (const entry of branch.entries()) yield textOf(entry);
  }
}

function contentsLine({ number, facts, preview }: PageBranch): string {
  return `${number}. ${inline(preview === "" ? "no text" : preview)} (${facts})\n`;
}

function headingOf({ number, active, from }: PageBranch): string {
  return `## Branch ${number}${active ? " (current)" : ""}${from === undefined ? "" : `, branches from entry ${from + 1}`}\n`;
}

function textOf(entry: PageEntry): string {
  const { body, label, branchesHere } = entry;
  const { title, parts, isError } = contentOf(body);
  const isMarked = label !== undefined || branchesHere.length > 0;
  if (parts.length === 0 && !isMarked) return "";
  const facts = [
    inline(isError ? `${title}, error` : title),
    ...(typeof body.timestamp === "string" ? [inline(body.timestamp)] : []),
    `entry ${entry.number + 1}`,
    ...(label === undefined ? [] : [`label ${inline(label)}`]),
  ];
  const off = branchesHere.length === 0 ? "" : `Branches here: branch ${branchesHere.join(", ")}.\n\n`;
  return `\n### ${facts.join(" · ")}\n\n${parts.map(fenced).join("")}${off}`;
}

/** Returns a block whose fence is longer than any in the text. */
function fenced({ kind, text }: ContentPart): string {
  const shown = visibleText(kind === "image" ? `[image ${text}]` : text).replace(/\n$/, "");
  let longest = 2;
  for (const [run] of shown.matchAll(/`+/g)) longest = Math.max(longest, run.length);
  const fence = "`".repeat(longest + 1);
  return `${fence}${kind === "image" ? "text" : kind}\n${shown}\n${fence}\n\n`;
}

/** Returns text on one line in which every mark of Markdown is a plain character, and no address is a link. */
function inline(text: string): string {
  return visibleText(text)
    .replace(/\s+/g, " ")
    .trim()
    .replace(/[\\`*_{}[\]<>#+!|~&$@^=]|:(?=\/)|(?<=www)\./gi, "\\$&");
}
