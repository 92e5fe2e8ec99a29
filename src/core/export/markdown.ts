/**
 * A session as Markdown. The conversation is in fenced blocks: it reads as it was written, and no renderer treats any
 * of it as HTML, a link or an image.
 */

import { contentText, shownText, toolCalls } from "../format/message.ts";
import { argumentsText, visibleText } from "./inert.ts";
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

function contentsLine({ number, active, preview, entryCount }: PageBranch): string {
  const entries = `${entryCount} ${entryCount === 1 ? "entry" : "entries"}`;
  return `${number}. ${inline(preview === "" ? "no text" : preview)} (${active ? "current, " : ""}${entries})\n`;
}

function headingOf({ number, active, from }: PageBranch): string {
  return `## Branch ${number}${active ? " (current)" : ""}${from === undefined ? "" : `, branches from entry ${from + 1}`}\n`;
}

function textOf(entry: PageEntry): string {
  const { body, label, goingOff } = entry;
  const { title, blocks } = contentOf(body);
  const isMarked = label !== undefined || goingOff.length > 0;
  if (blocks.length === 0 && !isMarked) return "";
  const facts = [
    inline(title),
    ...(typeof body.timestamp === "string" ? [inline(body.timestamp)] : []),
    `entry ${entry.number + 1}`,
    ...(label === undefined ? [] : [`label ${inline(label)}`]),
  ];
  const off = goingOff.length === 0 ? "" : `Branches here: branch ${goingOff.join(", ")}.\n\n`;
  return `\n### ${facts.join(" · ")}\n\n${blocks.map(({ kind, text }) => fenced(text, kind)).join("")}${off}`;
}

interface ContentBlock {
  /** The word after the fence. */
  readonly kind: "text" | "thinking" | "call" | "summary";
  readonly text: string;
}

function contentOf(entry: PageEntry["body"]): { title: string; blocks: ContentBlock[] } {
  const told = (
    title: string,
    kind: ContentBlock["kind"],
    text: string,
  ): { title: string; blocks: ContentBlock[] } => ({
    title,
    blocks: text === "" ? [] : [{ kind, text }],
  });
  switch (entry.type) {
    case "message":
      return messageContent(entry.message);
    case "custom_message":
      return told("extension", "text", contentText(entry.content));
    case "compaction":
    case "branch_summary":
      return told(shownText(entry.type).replace("_", " "), "summary", shownText(entry.summary));
    case "model_change":
      return told("model", "text", `${shownText(entry.provider)}/${shownText(entry.modelId)}`);
    case "thinking_level_change":
      return told("thinking level", "text", shownText(entry.thinkingLevel));
    default:
      return { title: shownText(entry.type), blocks: [] };
  }
}

function messageContent(message: unknown): { title: string; blocks: ContentBlock[] } {
  if (typeof message !== "object" || message === null) return { title: "message", blocks: [] };
  const { role, content, toolName, isError, command, output } = message as Record<string, unknown>;
  if (role === "bashExecution")
    return {
      title: "command",
      blocks: [
        { kind: "call", text: shownText(command) },
        { kind: "text", text: shownText(output) },
      ],
    };
  const blocks: ContentBlock[] = [];
  const parts = typeof content === "string" ? [{ type: "text", text: content }] : Array.isArray(content) ? content : [];
  for (const part of parts) {
    if (typeof part !== "object" || part === null) continue;
    const { type, text, thinking, mimeType } = part as Record<string, unknown>;
    if (type === "text" && typeof text === "string") blocks.push({ kind: "text", text });
    else if (type === "thinking" && typeof thinking === "string") blocks.push({ kind: "thinking", text: thinking });
    else if (type === "image") blocks.push({ kind: "text", text: `[image ${shownText(mimeType)}]` });
  }
  for (const call of toolCalls(content))
    blocks.push({ kind: "call", text: `${call.name}(${argumentsText(call.arguments)})` });
  const name = typeof role === "string" ? role : "message";
  const tool = name === "toolResult" && typeof toolName === "string" ? ` ${toolName}` : "";
  return { title: `${name}${tool}${isError === true ? ", error" : ""}`, blocks };
}

/** Returns a block whose fence is longer than any in the text. */
function fenced(text: string, kind: ContentBlock["kind"]): string {
  const shown = visibleText(text).replace(/\n$/, "");
  let longest = 2;
  for (const [run] of shown.matchAll(/`+/g)) longest = Math.max(longest, run.length);
  const fence = "`".repeat(longest + 1);
  return `${fence}${kind}\n${shown}\n${fence}\n\n`;
}

/** Returns text on one line in which every mark of Markdown is a plain character, and no address is a link. */
function inline(text: string): string {
  return visibleText(text)
    .replace(/\s+/g, " ")
    .trim()
    .replace(/[\\`*_{}[\]<>#+!|~&$@^=]|:(?=\/)|(?<=www)\./gi, "\\$&");
}
