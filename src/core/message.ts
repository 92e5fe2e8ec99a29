/** Messages inside entries: their schema, their text, their tool calls. */

import * as z from "zod";

const block = z.looseObject({ type: z.string() });
const content = z.union([z.string(), z.array(block)]);
const usage = z.looseObject({});

/**
 * A message of any role. Known roles are checked where a wrong shape would mislead a reader; what older and other
 * writers leave out (an assistant's `api`, all of `usage` but a total: seed 001) may be missing.
 */
export const message = z.looseObject({ role: z.string().min(1) }).superRefine((value, context) => {
  if (!Object.hasOwn(messageRoles, value.role)) return;
  const result = messageRoles[value.role as keyof typeof messageRoles].safeParse(value);
  if (!result.success)
    for (const issue of result.error.issues)
      context.addIssue({ code: "custom", path: issue.path, message: issue.message });
});

/** What is checked of the roles that are known. */
export const messageRoles = {
  user: z.looseObject({ content: content.optional(), timestamp: z.number().optional() }),
  assistant: z.looseObject({
    content: content.optional(),
    provider: z.string().optional(),
    model: z.string().optional(),
    usage: usage.optional(),
    stopReason: z.string().optional(),
  }),
  toolResult: z.looseObject({
    toolCallId: z.string().optional(),
    toolName: z.string().optional(),
    content: content.optional(),
    isError: z.boolean().optional(),
  }),
  custom: z.looseObject({ customType: z.string().optional(), content: content.optional() }),
  bashExecution: z.looseObject({ command: z.string(), output: z.string() }),
};

/** The text of a message's content: the string itself, or its text blocks joined. */
export function contentText(value: unknown): string {
  if (typeof value === "string") return value;
  if (!Array.isArray(value)) return "";
  let text = "";
  for (const part of value) {
    if (typeof part !== "object" || part === null) continue;
    const { type, text: own } = part as { type?: unknown; text?: unknown };
    if (type === "text" && typeof own === "string") text += own;
  }
  return text;
}

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: unknown;
}

/** The tool calls of an assistant message's content, in order. */
export function toolCalls(value: unknown): ToolCall[] {
  if (!Array.isArray(value)) return [];
  const calls: ToolCall[] = [];
  for (const part of value) {
    if (typeof part !== "object" || part === null || (part as { type?: unknown }).type !== "toolCall") continue;
    const { id, name, arguments: args } = part as { id?: unknown; name?: unknown; arguments?: unknown };
    calls.push({
      id: typeof id === "string" ? id : "",
      name: typeof name === "string" ? name : "",
      arguments: args,
    });
  }
  return calls;
}

/** One line of at most `limit` characters, for lists. */
export function preview(text: string, limit = 100): string {
  const line = text
    .slice(0, limit * 4)
    .replace(/\s+/g, " ")
    .trim();
  return line.length > limit ? `${line.slice(0, limit - 1)}…` : line;
}
