/**
 * Entries and headers of the session format (seeds 000 to 004; session-format reference, sections 1 and 2), and
 * the text of the lines that we write. Types and members we do not know pass through.
 */

import * as z from "zod";
import { bytesOf, concat, memberOf, members, oneLine, parse, type Range } from "./json.ts";
import { message } from "./message.ts";

export const CURRENT_VERSION = 3;

const headerBase = {
  type: z.literal("session"),
  id: z.string().min(1),
  timestamp: z.string().optional().describe("when the session was made, ISO 8601 in UTC"),
  cwd: z.string().nullish().describe("working directory of the conversation"),
};

/** The first line of a session file. A header without a version is of version 1. */
export const header = z.looseObject({
  ...headerBase,
  version: z.number().int().optional().describe("of the format: 1 (or missing), 2 or 3; 3 is written"),
  parentSession: z.string().optional().describe("file of the session this one was forked from"),
  branchedFrom: z.string().optional().describe("the same, as the Rust implementation calls it"),
  provider: z.string().optional().describe("first model, where the header names it"),
  modelId: z.string().optional(),
  thinkingLevel: z.string().optional(),
  leafId: z.string().optional().describe("leaf position that the Rust implementation keeps here; empty: before all"),
  idempotencyKey: z.string().optional().describe("of the request that made the session; a repeat finds it by this"),
});
export type SessionHeader = z.infer<typeof header>;

/** Members that every entry has. `parentId` may be missing (Rust) or null (TypeScript) for a root. */
const base = {
  id: z.string().optional(),
  parentId: z.string().nullish().describe("the entry before it; null or missing for the first of a branch"),
  timestamp: z.string().optional().describe("ISO 8601 in UTC"),
};

const details = z.unknown().optional().describe("kept as it is");

const fromHook = z.boolean().optional().describe("whether an extension wrote the summary");

export const entryTypes = {
  message: z.looseObject({ type: z.literal("message"), ...base, message }).describe("A message of the conversation."),
  model_change: z
    .looseObject({ type: z.literal("model_change"), ...base, provider: z.string(), modelId: z.string() })
    .describe("Another model from here on."),
  thinking_level_change: z
    .looseObject({ type: z.literal("thinking_level_change"), ...base, thinkingLevel: z.string() })
    .describe("Another thinking level from here on."),
  compaction: z
    .looseObject({
      type: z.literal("compaction"),
      ...base,
      summary: z.string(),
      firstKeptEntryId: z.string().describe("first entry of the path that is still shown; its own id keeps none"),
      tokensBefore: z.number().describe("tokens of the context before"),
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
    .describe("What another branch was about, told where the conversation goes on."),
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
    .describe("Names an entry."),
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
    .describe("Other content for an entry in what the model sees; the entry itself stays."),
} as const;

/** What `append` takes: an entry whose id, parentId and timestamp may be left to the server. Any type goes. */
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

/** An entry as a caller inside this process sees it. */
export interface Entry {
  type: string;
  id: string;
  parentId: string | null;
  timestamp: string;
  [member: string]: unknown;
}

/** Ids that a caller may choose for an entry. `~` is ours, for aliases of duplicate ids. */
export const ENTRY_ID = /^[A-Za-z0-9_-]{1,128}$/;
/** Session ids a caller may choose (session-format reference, section 6). */
export const SESSION_ID = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$/;

/** An entry to be: base members by value, the others as JSON text that is written as it stands. */
export interface Draft {
  readonly type: string;
  readonly id?: string;
  readonly parentId?: string | null;
  readonly timestamp?: string;
  /** The other members, each with a comma before it. */
  readonly rest: Uint8Array | string;
}

const BASE_MEMBERS = new Set(["type", "id", "parentId", "timestamp", "_batch"]);

/** The draft that stands as JSON text at a range; its members keep the host's bytes (rule: raw bytes are sacred). */
export function draftOfText(bytes: Uint8Array, range: Range): Draft {
  const found = members(bytes, range.start, range.end);
  if (!found) throw new TypeError("a draft is a JSON object");
  const value = (name: string): unknown => {
    const member = memberOf(found, name);
    return member ? parse(bytes, member.start, member.end) : undefined;
  };
  const rest: Uint8Array[] = [];
  for (const member of found)
    if (!BASE_MEMBERS.has(member.name)) rest.push(COMMA, bytes.subarray(member.nameStart, member.end));
  return {
    type: value("type") as string,
    id: value("id") as string | undefined,
    parentId: value("parentId") as string | null | undefined,
    timestamp: value("timestamp") as string | undefined,
    rest: rest.length === 0 ? NOTHING : oneLine(concat(rest)),
  };
}

const COMMA = bytesOf(",");
const NOTHING = new Uint8Array(0);

/** A draft of ours: members that are undefined are left out, a Uint8Array stands for its JSON text. */
export function draftOf(type: string, rest: Readonly<Record<string, unknown>>): Draft {
  const parts: Uint8Array[] = [];
  let text = "";
  for (const name in rest) {
    const value = rest[name];
    if (value instanceof Uint8Array) {
      parts.push(bytesOf(`${text},${JSON.stringify(name)}:`), oneLine(value));
      text = "";
      continue;
    }
    // What JSON does not know (undefined, functions) is left out, as JSON.stringify does.
    const json: string | undefined = JSON.stringify(value);
    if (json !== undefined) text += `,${JSON.stringify(name)}:${json}`;
  }
  return { type, rest: parts.length === 0 ? text : concat([...parts, bytesOf(text)]) };
}

/** Which append an entry belongs to (protocol, section 3, `append`). */
export interface Batch {
  readonly session: string;
  readonly key?: string;
  readonly index: number;
  readonly count: number;
}

/** The line of an entry, without its line feed: base members first, `type` the very first (clients look for that). */
export function entryLine(
  entry: { type: string; id: string; parentId: string | null; timestamp: string; rest: Uint8Array | string },
  batch?: Batch,
): Uint8Array {
  const head =
    `{"type":${JSON.stringify(entry.type)},"id":${JSON.stringify(entry.id)},"parentId":${JSON.stringify(entry.parentId)}` +
    `,"timestamp":${JSON.stringify(entry.timestamp)}${batch ? `,"_batch":${JSON.stringify(batch)}` : ""}`;
  const { rest } = entry;
  return typeof rest === "string" ? bytesOf(`${head}${rest}}`) : concat([bytesOf(head), rest, CLOSE]);
}

const CLOSE = bytesOf("}");

/** The line of a header, `type` first. */
export function headerLine(members: {
  id: string;
  timestamp: string;
  cwd: string;
  parentSession?: string;
  [member: string]: unknown;
}): Uint8Array {
  const { id, timestamp, cwd, ...more } = members;
  return bytesOf(JSON.stringify({ type: "session", version: CURRENT_VERSION, id, timestamp, cwd, ...more }));
}

/** The same line with other values in place of some members' bytes; every other byte stays. */
export function patchMembers(line: Uint8Array, values: Readonly<Record<string, Uint8Array>>): Uint8Array {
  const found = members(line);
  if (!found) return line;
  const parts: Uint8Array[] = [];
  let copied = 0;
  for (const member of found) {
    const value = Object.hasOwn(values, member.name) ? values[member.name] : undefined;
    if (!value) continue;
    parts.push(line.subarray(copied, member.start), value);
    copied = member.end;
  }
  parts.push(line.subarray(copied));
  return concat(parts);
}
