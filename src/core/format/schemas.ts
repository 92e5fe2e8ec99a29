/**
 * The schemas of the session format (seeds 000 to 004; session-format reference, sections 1 and 2). Unknown types and
 * members pass through. Only commands that accept entries and the generated documents need the schemas: making them
 * takes 6 of the 100 ms of a start, so no module that every start runs imports them.
 */

import * as z from "zod";
import { check } from "./issues.ts";

const block = z.looseObject({ type: z.string() });
const content = z.union([z.string(), z.array(block)], {
  error: ({ input }) =>
    `${input === undefined ? "is missing; it is" : "must be"} text or a list of blocks such as {"type":"text","text":"..."}`,
});
const usage = z.looseObject({});

/**
 * A message of any role. Known roles are checked where a wrong shape would mislead a reader; what older and other
 * writers leave out (an assistant's `api`, all of `usage` but a total: seed 001) may be missing.
 */
export const message = z.looseObject({ role: z.string().min(1) }).superRefine((value, context) => {
  checkBy(messageRoles, value.role, context);
});

/** Adds the issues that the schema of that name, if there is one, has with the value. */
function checkBy(schemas: Readonly<Record<string, z.ZodType>>, name: string, context: z.RefinementCtx): void {
  const result = Object.hasOwn(schemas, name) ? check(schemas[name], context.value) : undefined;
  for (const { path, message } of result?.error?.issues ?? []) context.addIssue({ code: "custom", path, message });
}

/** Checks of the known roles. */
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

/** The first line of a session file. A header without a version is of version 1. */
export const header = z.looseObject({
  type: z.literal("session"),
  id: z.string().min(1),
  timestamp: z.string().optional().describe("when the session was created, ISO 8601 in UTC"),
  cwd: z.string().nullish().describe("working directory of the conversation"),
  version: z.number().int().optional().describe("of the format: 1 (or missing), 2 or 3; 3 is written"),
  parentSession: z.string().optional().describe("file of the session this one was forked from"),
  branchedFrom: z.string().optional().describe("the same, under the name that the Rust implementation uses"),
  provider: z.string().optional().describe("first model, where the header names it"),
  modelId: z.string().optional(),
  thinkingLevel: z.string().optional(),
  leafId: z.string().optional().describe("leaf position that the Rust implementation keeps here; empty: before all"),
  idempotencyKey: z.string().optional().describe("of the request that created the session; identifies a repeat"),
});

/** Members that every entry has. `parentId` may be missing (Rust) or null (TypeScript) for a root. */
const base = {
  id: z.string().optional(),
  parentId: z.string().nullish().describe("the entry before it; null or missing for the first of a branch"),
  timestamp: z.string().optional().describe("ISO 8601 in UTC"),
};

const details = z.unknown().optional().describe("kept unchanged");

const fromHook = z.boolean().optional().describe("whether an extension wrote the summary");

function entryOf<Type extends string, Members extends z.ZodRawShape>(type: Type, members: Members, sentence: string) {
  return z.looseObject({ type: z.literal(type), ...base, ...members }).describe(sentence);
}

export const entryTypes = {
  message: entryOf("message", { message }, "A message of the conversation."),
  model_change: entryOf("model_change", { provider: z.string(), modelId: z.string() }, "A change of model."),
  thinking_level_change: entryOf("thinking_level_change", { thinkingLevel: z.string() }, "A change of thinking level."),
  compaction: entryOf(
    "compaction",
    {
      summary: z.string(),
      firstKeptEntryId: z.string().describe("first entry that the model still sees; its own id: keep none"),
      tokensBefore: z.number().describe("tokens of the context before the compaction"),
      details,
      fromHook,
    },
    "A summary in place of everything before the first kept entry.",
  ),
  branch_summary: entryOf(
    "branch_summary",
    {
      fromId: z.string().describe("the end of that branch: the leaf that was left"),
      summary: z.string(),
      details,
      fromHook,
    },
    "A summary of another branch, where the conversation continues.",
  ),
  custom: entryOf(
    "custom",
    { customType: z.string(), data: z.unknown().optional() },
    "State of an extension; never shown to the model.",
  ),
  custom_message: entryOf(
    "custom_message",
    { customType: z.string(), content, display: z.boolean().optional().describe("whether a person sees it"), details },
    "A message of an extension, shown to the model.",
  ),
  label: entryOf(
    "label",
    { targetId: z.string(), label: z.string().nullish().describe("missing, null or empty clears it") },
    "A label of an entry.",
  ),
  session_info: entryOf(
    "session_info",
    { name: z.string().nullish().describe("missing, null or empty clears it") },
    "The session's display name; the last one in the file counts.",
  ),
  usage: entryOf(
    "usage",
    { kind: z.string(), provider: z.string(), model: z.string(), usage, note: z.string().optional() },
    "Tokens and cost that belong to no message.",
  ),
  context_edit: entryOf(
    "context_edit",
    {
      targetId: z.string(),
      replacement: z.looseObject({ content: z.unknown() }).nullable().describe("null leaves the target out"),
    },
    "Replaces the content of an entry in what the model sees; the entry itself stays.",
  ),
} as const;

const MESSAGE = '{"type":"message","message":{"role":"user","content":"..."}}';

/** Gives the expected form to a host that sends a message as the APIs of models have it. */
const draftType = z.string({
  error: ({ input }) => (input === undefined ? `is missing; a message is ${MESSAGE}` : undefined),
});

/** An entry that `append` accepts, of any type but `session`. The server can add its id, parentId and timestamp. */
export const draft = z.looseObject({ type: draftType.min(1), ...base }).superRefine((value, context) => {
  if (value.type === "session") {
    context.addIssue({ code: "custom", path: ["type"], message: "a header is not an entry; use new_session" });
  } else if (value.type === "message" && value.message === undefined && typeof value.role === "string") {
    const message = `is missing; put role and content into it: ${MESSAGE}`;
    context.addIssue({ code: "custom", path: ["message"], message });
  } else checkBy(entryTypes, value.type, context);
});
