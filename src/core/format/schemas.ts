/**
 * The schemas of the session format (seeds 000 to 004; session-format reference, sections 1 and 2). Unknown types and
 * members pass through. Only commands that accept entries and the generated documents need the schemas: making them
 * takes 6 of the 100 ms of a start, so no module that every start runs imports them.
 */

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

const headerBase = {
  type: z.literal("session"),
  id: z.string().min(1),
  timestamp: z.string().optional().describe("when the session was created, ISO 8601 in UTC"),
  cwd: z.string().nullish().describe("working directory of the conversation"),
};

/** The first line of a session file. A header without a version is of version 1. */
export const header = z.looseObject({
  ...headerBase,
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

export const entryTypes = {
  message: z.looseObject({ type: z.literal("message"), ...base, message }).describe("A message of the conversation."),
  model_change: z
    .looseObject({ type: z.literal("model_change"), ...base, provider: z.string(), modelId: z.string() })
    .describe("A change of model."),
  thinking_level_change: z
    .looseObject({ type: z.literal("thinking_level_change"), ...base, thinkingLevel: z.string() })
    .describe("A change of thinking level."),
  compaction: z
    .looseObject({
      type: z.literal("compaction"),
      ...base,
      summary: z.string(),
      firstKeptEntryId: z.string().describe("first entry that the model still sees; its own id: keep none"),
      tokensBefore: z.number().describe("tokens of the context before the compaction"),
      details,
      fromHook,
    })
    .describe("A summary in place of everything before the first kept entry."),
  branch_summary: z
    .looseObject({
      type: z.literal("branch_summary"),
      ...base,
      fromId: z.string().describe("the leaf that was left"),
      summary: z.string(),
      details,
      fromHook,
    })
    .describe("A summary of another branch, where the conversation continues."),
  custom: z
    .looseObject({ type: z.literal("custom"), ...base, customType: z.string(), data: z.unknown().optional() })
    .describe("State of an extension; never shown to the model."),
  custom_message: z
    .looseObject({
      type: z.literal("custom_message"),
      ...base,
      customType: z.string(),
      content: z.union([z.string(), z.array(z.looseObject({ type: z.string() }))]),
      display: z.boolean().optional().describe("whether a person sees it"),
      details,
    })
    .describe("A message of an extension, shown to the model."),
  label: z
    .looseObject({
      type: z.literal("label"),
      ...base,
      targetId: z.string(),
      label: z.string().nullish().describe("missing, null or empty clears it"),
    })
    .describe("A label of an entry."),
  session_info: z
    .looseObject({
      type: z.literal("session_info"),
      ...base,
      name: z.string().nullish().describe("missing, null or empty clears it"),
    })
    .describe("The session's display name; the last one in the file counts."),
  usage: z
    .looseObject({
      type: z.literal("usage"),
      ...base,
      kind: z.string(),
      provider: z.string(),
      model: z.string(),
      usage: z.looseObject({}),
      note: z.string().optional(),
    })
    .describe("Tokens and cost that belong to no message."),
  context_edit: z
    .looseObject({
      type: z.literal("context_edit"),
      ...base,
      targetId: z.string(),
      replacement: z.looseObject({ content: z.unknown() }).nullable().describe("null leaves the target out"),
    })
    .describe("Replaces the content of an entry in what the model sees; the entry itself stays."),
} as const;

/**
 * An entry that `append` accepts: its id, parentId and timestamp may be left to the server. Any type but `session` is
 * allowed.
 */
export const draft = z.looseObject({ type: z.string().min(1), ...base }).superRefine((value, context) => {
  if (value.type === "session") {
    context.addIssue({ code: "custom", path: ["type"], message: "a header is not an entry; use new_session" });
    return;
  }
  if (!Object.hasOwn(entryTypes, value.type)) return;
  const result = entryTypes[value.type as keyof typeof entryTypes].safeParse(value);
  if (!result.success)
    for (const issue of result.error.issues)
      context.addIssue({ code: "custom", path: issue.path, message: issue.message });
});
