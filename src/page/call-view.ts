/** Calls of tools with their results as the tool's users know them, before they are HTML or Markdown. */

import type { PageEntry } from "../core/export/page.ts";
import { findEdits, findTextMember, type LooseMembers, PATHS, toBlocks, toMembers } from "../core/format/loose.ts";
import { findMainArgument, type ToolCall, toShownText } from "../core/format/message.ts";
import { toIndentedJson } from "./blocks.ts";
import { findLanguage } from "./code.ts";
import { computeDiff, type DiffLine, isDrawable, parseDiff } from "./diff.ts";

/** A text below the head of a call. */
export interface CallBlock {
  readonly title: "Arguments" | "Command" | "Diff" | "File";
  readonly text: string;
  readonly language: string;
  /** The lines of a diff. */
  readonly lines?: readonly DiffLine[];
}

export interface CallView {
  /** A path, a command of one line, or the main argument; empty where a block has it. */
  readonly subject: string;
  readonly isCommand?: boolean;
  /** The lines that it reads. */
  readonly range?: string;
  readonly changes?: { readonly added: number; readonly removed: number };
  readonly blocks: readonly CallBlock[];
  /** The file that the result shows. */
  readonly file?: string;
  /** True if the blocks already contain the text of a successful result. */
  readonly hidesShortResult?: boolean;
}

/** A result as the call's block needs it: the message, and the entry's own name on the page. */
export interface CallResult {
  readonly message: LooseMembers;
  readonly anchor: string;
  readonly label?: string;
}

/** A part of a result: a picture, a short text of a call that shows the rest itself, an output, or a diff. */
export type ResultPart =
  | { readonly image: LooseMembers }
  | { readonly said: string }
  | { readonly output: string; readonly file?: string }
  | { readonly diff: string };

/** A command that the person ran. */
export interface CommandRun {
  readonly call: CallView;
  readonly output: string;
  /** A word about its end, if it was not a success. */
  readonly state: string;
  /** True if the model does not read it. */
  readonly isApart: boolean;
}

/** Returns the result that an entry is, if the page has it. */
export function toCallResult(entry: PageEntry | undefined): CallResult | undefined {
  if (!entry || entry.anchor === "") return undefined;
  return { message: toMembers(entry.body.message), anchor: entry.anchor, label: entry.label };
}

export function viewCall({ name, arguments: args }: ToolCall, result: CallResult | undefined): CallView {
  const given = toMembers(args);
  const kind = name.toLowerCase();
  const path = findTextMember(given, ...PATHS);
  const command = findTextMember(given, "command", "cmd");
  if ((kind === "bash" || kind === "shell") && command !== undefined) return viewCommand(command);
  const edit = kind.includes("edit") || kind.includes("replace") ? viewEdit(given, path ?? "", result) : undefined;
  if (edit) return edit;
  const content = findTextMember(given, "content");
  if (kind === "write" && path !== undefined && content !== undefined) {
    const blocks = [{ title: "File", text: content, language: findLanguage(path) } as const];
    return { subject: path, blocks, hidesShortResult: true };
  }
  if (kind === "read" && path !== undefined) return { subject: path, range: rangeOf(given), blocks: [], file: path };
  // A call of an unknown tool: its main argument, and all of them as JSON.
  const subject = findMainArgument(args);
  const count = typeof args === "object" && args !== null ? Object.keys(args).length : 0;
  const isAll = args === undefined || args === null || (count <= 1 && subject.length <= 300 && !subject.includes("\n"));
  return { subject, blocks: isAll ? [] : [{ title: "Arguments", text: toIndentedJson(args), language: "json" }] };
}

/** Returns a command after the name of its tool if it is one line, else below it. */
function viewCommand(command: string): CallView {
  if (command.length > 200 || command.includes("\n"))
    return { subject: "", blocks: [{ title: "Command", text: command, language: "bash" }] };
  return { subject: command, isCommand: true, blocks: [] };
}

/** Returns the lines that a call reads, if it names some. */
function rangeOf({ offset, limit }: LooseMembers): string {
  if (typeof offset !== "number" && typeof limit !== "number") return "";
  const from = typeof offset === "number" ? offset : 1;
  return `lines ${from}–${typeof limit === "number" ? from + limit - 1 : ""}`;
}

function viewEdit(given: LooseMembers, subject: string, result: CallResult | undefined): CallView | undefined {
  const made = toMembers(result?.message.details).diff;
  const edits = findEdits(given);
  const isMade = typeof made === "string" && made.trim() !== "" && isDrawable(made);
  if (!isMade && (edits.length === 0 || !edits.every(({ before, after }) => isDrawable(before, after))))
    return undefined;
  const parts = isMade ? [parseDiff(made)] : edits.map(({ before, after }) => computeDiff(before, after));
  const blocks = parts.map((lines): CallBlock => {
    const text = isMade ? made : lines.map(({ sign, text }) => sign + text).join("\n");
    return { title: "Diff", text, language: "diff", lines };
  });
  const count = (sign: string): number => parts.flat().filter((line) => line.sign === sign).length;
  return { subject, changes: { added: count("+"), removed: count("-") }, blocks, hidesShortResult: true };
}

/** Returns the texts and pictures of a result, below its call or by itself. */
export function viewResult({ message }: CallResult, call?: CallView): ResultPart[] {
  const parts: ResultPart[] = [];
  const failed = message.isError === true;
  for (const { type, text, ...image } of toBlocks(message.content)) {
    if (type === "image") parts.push({ image });
    if (type !== "text" || typeof text !== "string" || text.trim() === "") continue;
    if (call?.hidesShortResult && !failed && text.length < 300) parts.push({ said: text });
    else parts.push({ output: text, file: failed ? undefined : call?.file });
  }
  const { diff } = toMembers(message.details);
  if (typeof diff === "string" && diff.trim() !== "" && !call?.hidesShortResult) parts.push({ diff });
  return parts;
}

export function viewCommandRun(message: LooseMembers): CommandRun {
  const { command, output, exitCode, cancelled, excludeFromContext } = message;
  const failed = typeof exitCode === "number" && exitCode !== 0 ? `failed, exit ${exitCode}` : "";
  return {
    call: viewCommand(toShownText(command)),
    output: toShownText(output),
    state: cancelled === true ? "cancelled" : failed,
    isApart: excludeFromContext === true,
  };
}
