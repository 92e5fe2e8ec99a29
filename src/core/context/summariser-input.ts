/** Input for a summariser: the text of a conversation, and the files that its tool calls read and changed. */

import { getContentText, getToolCalls, toStored } from "../format/message.ts";
import { toJsonText } from "../json/json.ts";

/** Characters of a tool's output that a summariser gets: the first ones, which name its subject. */
const RESULT_LIMIT = 2000;

/** Collects the files of one or more stretches of a conversation. */
export class Files {
  private readonly read = new Set<string>();
  private readonly modified = new Set<string>();
  private readonly most: number;
  /** True if there were more files than it may know. */
  areMore = false;

  /** `most`: paths of each kind that are kept; all by default. */
  constructor(most = Number.POSITIVE_INFINITY) {
    this.most = most;
  }

  /** Adds the files of an earlier summary. Only the extension that wrote one knows the meaning of its details. */
  addSummary(entry: Readonly<Record<string, unknown>>): void {
    if (entry.fromHook) return;
    const { readFiles, modifiedFiles } = (entry.details ?? {}) as { readFiles?: unknown; modifiedFiles?: unknown };
    for (const path of texts(readFiles)) this.note(this.read, path);
    for (const path of texts(modifiedFiles)) this.note(this.modified, path);
  }

  private note(known: Set<string>, path: string): void {
    if (known.size < this.most || known.has(path)) known.add(path);
    else this.areMore = true;
  }

  addMessage(message: SummaryMessage): void {
    if (message.role === "assistant")
      for (const { name, arguments: args } of getToolCalls(message.content)) this.addCall(name, args);
    // The result of a script that called tools lists those calls.
    const nested = (message.nestedCalls as { calls?: unknown } | null | undefined)?.calls;
    if (message.role === "toolResult" && Array.isArray(nested))
      for (const call of nested) this.addCall(call?.name, call?.arguments);
  }

  private addCall(name: unknown, args: unknown): void {
    const { path } = (args ?? {}) as { path?: unknown };
    if (typeof path !== "string" || path === "") return;
    if (name === "read") this.note(this.read, path);
    else if (name === "write" || name === "edit") this.note(this.modified, path);
  }

  /** Returns the files that were read and not changed, and those that were changed. */
  lists() {
    return {
      readFiles: [...this.read].filter((path) => !this.modified.has(path)).sort(),
      modifiedFiles: [...this.modified].sort(),
    };
  }
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((item) => typeof item === "string") : [];
}

export type SummaryMessage = Readonly<Record<string, unknown>>;

/** Returns a message of the context as paragraphs for a summariser; an empty list without countable content. */
export function toParagraphs(message: SummaryMessage): string[] {
  return said(message).flatMap(([who, text]) => (text === "" ? [] : [`${who}: ${text}`]));
}

function said(message: SummaryMessage): (readonly [who: string, text: string])[] {
  const { content } = message;
  switch (message.role) {
    case "user":
      return [["User", textAndImages(content)]];
    case "custom":
      return [["Note", textAndImages(content)]];
    case "assistant": {
      const calls = getToolCalls(content).map(
        (call) => ["Tool call", `${call.name} ${toJsonText(call.arguments)}`] as const,
      );
      // Thoughts are left out: they are long, and their outcome is in the texts and calls.
      return [["Assistant", getContentText(content)], ...calls];
    }
    case "toolResult": {
      const who = message.isError === true ? "Tool error" : "Tool result";
      const name = toStored(message.toolName);
      return [[name === "" ? who : `${who} (${name})`, shortened(textAndImages(content))]];
    }
    case "bashExecution":
      if (message.excludeFromContext === true) return [];
      return [["Command of the user", `${toStored(message.command)}\n${shortened(toStored(message.output))}`]];
    case "branchSummary":
      return [["Summary of another branch", toStored(message.summary)]];
    case "compactionSummary":
      return [["Summary of what came before", toStored(message.summary)]];
    default:
      return [];
  }
}

function textAndImages(content: unknown): string {
  const text = getContentText(content);
  const images = Array.isArray(content) ? content.filter((block) => block?.type === "image").length : 0;
  if (images === 0) return text;
  return `${text}${text === "" ? "" : "\n"}(${images === 1 ? "an image" : `${images} images`})`;
}

/** Returns the beginning of a long output, and how many characters are not shown. */
function shortened(text: string): string {
  if (text.length <= RESULT_LIMIT) return text;
  // A surrogate pair is not cut in two.
  const end = /[\ud800-\udbff]/.test(text[RESULT_LIMIT - 1]) ? RESULT_LIMIT - 1 : RESULT_LIMIT;
  return `${text.slice(0, end)}\n(${text.length - end} more characters are left out here)`;
}
