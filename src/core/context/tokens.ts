/** Counts the tokens of messages: as the model reports them, else by Pi's estimate of four characters to a token. */

import { toStored } from "../format/message.ts";
import { toJsonText } from "../json/json.ts";

const CHARACTERS_PER_TOKEN = 4;
/** Characters that an image counts for. */
const IMAGE = 4800;

/** Returns the estimate for one message of the context, whatever shape it has. `unread`: bytes of it that were not read. */
export function estimateTokens(message: unknown, unread = 0): number {
  if (typeof message !== "object" || message === null) return 0;
  return Math.ceil((charactersOf(message as Readonly<Record<string, unknown>>) + unread) / CHARACTERS_PER_TOKEN);
}

function charactersOf(message: Readonly<Record<string, unknown>>): number {
  switch (message.role) {
    case "user":
    case "custom":
    case "toolResult":
    case "assistant":
      return contentLength(message.content);
    case "bashExecution":
      return toStored(message.command).length + toStored(message.output).length;
    case "branchSummary":
    case "compactionSummary":
      return toStored(message.summary).length;
    case "system":
      return contentLength(message.content) + sectionsLength(message.sections) + jsonLength(message.toolsAdded);
    default:
      return 0;
  }
}

function contentLength(content: unknown): number {
  if (typeof content === "string") return content.length;
  if (!Array.isArray(content)) return 0;
  let length = 0;
  for (const block of content) {
    if (typeof block !== "object" || block === null) continue;
    if (block.type === "text") length += toStored(block.text).length;
    else if (block.type === "thinking") length += toStored(block.thinking).length;
    else if (block.type === "image") length += IMAGE;
    else if (block.type === "toolCall") length += toStored(block.name).length + jsonLength(block.arguments);
  }
  return length;
}

function sectionsLength(sections: unknown): number {
  if (typeof sections !== "object" || sections === null) return 0;
  return Object.values(sections).reduce((sum: number, section) => sum + toStored(section).length, 0);
}

function jsonLength(value: unknown): number {
  return value === undefined ? 0 : toJsonText(value).length;
}

/** Returns the context's tokens as an answer reports them; 0 when it reports none, or was aborted or failed. */
export function getReportedTokens(message: unknown): number {
  const { role, stopReason, usage } = (message ?? {}) as Readonly<Record<string, unknown>>;
  if (role !== "assistant" || stopReason === "aborted" || stopReason === "error") return 0;
  if (typeof usage !== "object" || usage === null) return 0;
  const { totalTokens, input, output, cacheRead, cacheWrite } = usage as Readonly<Record<string, unknown>>;
  return (
    numberOf(totalTokens) || [input, output, cacheRead, cacheWrite].reduce<number>((sum, n) => sum + numberOf(n), 0)
  );
}

function numberOf(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) && value > 0 ? value : 0;
}
