/** Previews of entries, for trees and lists: the beginning of their text, the calls, and failures. */

import * as z from "zod";
import { findMainArgument, getContentText, getToolCalls, toPreview } from "../../core/format/message.ts";
import { limitMembers } from "../../core/json/few-members.ts";
import { findKnownValueEnd, parseAbridged } from "../../core/json/json.ts";

export const previewCalls = z
  .array(z.object({ name: z.string(), argument: z.string() }))
  .describe("the tools it calls, each with its main argument, such as the command or the path");

export const previewMembers = {
  role: z.string().optional(),
  calls: previewCalls.optional(),
  toolName: z.string().optional().describe("of a tool's result"),
  isError: z.literal(true).optional().describe("the tool, the command or the model failed"),
};

type PreviewCall = z.output<typeof previewCalls>[number];

type EntryPreview = z.output<z.ZodObject<typeof previewMembers>>;

type Body = Readonly<Record<string, unknown>>;

/** Bytes of an entry beyond which its texts are cut before parsing. */
export const LONG_ENTRY = 1 << 14;

/** Parses an entry, known to be JSON, for a preview; of a long one, only the first `seen` bytes of each text. */
export function parsePreviewBody(line: Uint8Array, seen: number): Body {
  return parseAbridged(limitMembers(line), seen, Math.max(LONG_ENTRY, seen), findKnownValueEnd) as Body;
}

function messageIn({ message }: Body): Body {
  return typeof message === "object" && message !== null ? (message as Body) : {};
}

export function getPreviewCalls(content: unknown): PreviewCall[] {
  return getToolCalls(content).map(({ name, arguments: args }) => ({
    name,
    argument: toPreview(findMainArgument(args)),
  }));
}

/** Returns the facts of an entry that its text does not contain. */
export function getPreview(body: Body): EntryPreview {
  const message = messageIn(body);
  const { role, content, toolName, isError, exitCode, cancelled, stopReason } = message;
  const calls = getPreviewCalls(content);
  const hasFailed =
    isError === true ||
    (typeof exitCode === "number" && exitCode !== 0) ||
    cancelled === true ||
    stopReason === "error";
  return {
    role: typeof role === "string" ? role : undefined,
    calls: calls.length === 0 ? undefined : calls,
    toolName: typeof toolName === "string" ? toolName : undefined,
    isError: hasFailed ? true : undefined,
  };
}

/** Returns the first text that an entry has: that of its message, its summary, name, label or model. */
export function getPreviewText(body: Body): string {
  const { content, command } = messageIn(body);
  const { summary, name, label, modelId, thinkingLevel, customType } = body;
  const texts = [command, summary, name, label, modelId, thinkingLevel, customType];
  return (
    getContentText(content) ||
    getContentText(body.content) ||
    String(texts.find((text) => typeof text === "string") ?? "")
  );
}

/** Returns calls as one line, `[bash: npm test, read: a.ts]`; nothing for none. */
export function formatCalls(calls: readonly PreviewCall[] = []): string {
  if (calls.length === 0) return "";
  return `[${calls.map(({ name, argument }) => (argument === "" ? name : `${name}: ${argument}`)).join(", ")}]`;
}
