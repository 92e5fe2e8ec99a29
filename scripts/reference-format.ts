/** The session format in protocol.md: entries, messages, content blocks. */

import type { Declarations } from "../src/handlers/shared/declarations.ts";
import type { SchemaOf } from "../src/server/openrpc.ts";
import { formatTable } from "./markdown.ts";
import { formatMembersTable, getMembers, isWithin } from "./reference-tables.ts";

export function formatText({ header, entryTypes, messageRoles }: Declarations, schemaOf: SchemaOf): string {
  const types = Object.entries(entryTypes);
  const [[, first]] = types;
  const base = Object.keys(first.shape).filter((member) => types.every(([, schema]) => member in schema.shape));
  const sections = types.map(([type, schema]) => {
    const { description, ...json } = schemaOf(schema);
    const own = getMembers(json).filter(({ name }) => !isWithin(name, base));
    return [`### Entry: ${type}`, "", description ?? "", "", formatMembersTable(own)].join("\n");
  });
  const intro = [
    "## Session format",
    "",
    "A session file is UTF-8 text, one JSON object a line. The first line is the header:",
    "",
    formatMembersTable(getMembers(schemaOf(header))),
    "",
    "Where something else stands before it, the first header counts, and what stands before it is damage (`bad_line`), which",
    "`repair_session` takes out. Every other line is an entry. Entries refer to the one before them by `parentId` and so form a tree; lines are",
    "added and never changed. Entries that the server writes have all of these members, `type` first:",
    "",
    formatMembersTable([
      { name: "type", optional: false, schema: { type: "string", description: "one of the types below, or another" } },
      ...getMembers(schemaOf(first)).filter(({ name }) => name !== "type" && isWithin(name, base)),
    ]),
    "",
    "An entry that was appended together with others, or with an idempotency key, also has `_batch` with `session`,",
    "`key` if there was one, `index` and `count`; it counts only in the file of that session. `head` in it names the head",
    "through which the entry was written ([A leaf of one's own](#a-leaf-of-ones-own)); every such entry has a `_batch`,",
    "and `retired` in the last one that head has had ended. Types and members that are not listed here are kept as they",
    "are.",
  ].join("\n");
  const roles = [
    "### Messages",
    "",
    "The checked members of a message that is appended, by its role; other roles are not checked, and other members are",
    "kept. A `timestamp` in a message is a number, in milliseconds since 1970; that of an entry is a string, ISO 8601 in",
    "UTC.",
    "",
    ...Object.entries(messageRoles).flatMap(([role, schema]) => [
      `\`${role}\`:`,
      "",
      formatMembersTable(getMembers(schemaOf(schema))),
      "",
    ]),
    "What Pi writes in messages of each role, and its readers need. Other programs may leave members out.",
    "[Writing safely](#writing-safely) says which of these `append` adds where they are missing:",
    "",
    formatTable(
      ["role", "members"],
      MESSAGES.map(([role, members]) => [`\`${role}\``, members]),
    ),
    "",
    "An assistant message says in `stopReason` why it ends:",
    "",
    formatTable(
      ["`stopReason`", "meaning"],
      STOP_REASONS.map(([reason, meaning]) => [`\`${reason}\``, meaning]),
    ),
    "",
    "`get_messages` and `get_context` also return messages that stand for other entries, with `timestamp` in",
    "milliseconds: `compactionSummary` with `summary` and `tokensBefore`, `branchSummary` with `summary` and `fromId`,",
    "`custom` for a `custom_message` with its members.",
  ].join("\n");
  const blocks = [
    "### Content blocks",
    "",
    "`content` is a list of blocks; for a user message and a `custom` one it may also be a string. Blocks of other types",
    "are stored and returned as they are.",
    "",
    formatTable(
      ["`type`", "members", "in messages of"],
      BLOCKS.map(([type, members, roles]) => [`\`${type}\``, members, roles]),
    ),
    "",
    "A complete turn with a call of a tool is in the example of [`append`](#append) and in [A turn](#a-turn).",
  ].join("\n");
  return [intro, ...sections, roles, blocks].join("\n\n");
}

/** The content blocks that Pi knows. */
const BLOCKS: readonly (readonly [type: string, members: string, roles: string])[] = [
  ["text", "`text`: string; `textSignature`?: string, of the provider", "every role"],
  [
    "thinking",
    "`thinking`: string, what the model thought; `thinkingSignature`?: string, which some providers want back",
    "assistant",
  ],
  ["image", "`data`: string, the bytes in base64; `mimeType`: string, such as `image/png`", "user, toolResult, custom"],
  [
    "toolCall",
    "`id`: string, which the result repeats; `name`: string, of the tool; `arguments`: object (never a text of JSON); `thoughtSignature`?: string",
    "assistant",
  ],
];

const MESSAGES: readonly (readonly [role: string, members: string])[] = [
  ["user", "`content`: string or blocks; `timestamp`: number"],
  [
    "assistant",
    "`content`: blocks; `api`, `provider`, `model`: strings; `usage`: `{ input, output, cacheRead, cacheWrite, totalTokens, cost: { input, output, cacheRead, cacheWrite, total } }`, numbers of tokens and their cost; `stopReason`; `errorMessage`?: string; `timestamp`: number",
  ],
  [
    "toolResult",
    "`toolCallId`, `toolName`: strings; `content`: blocks; `details`?: anything, for display; `isError`: boolean; `timestamp`: number",
  ],
  [
    "custom",
    "`customType`: string, which extension it is of; `content`: string or blocks; `display`: boolean; `details`?: anything; `timestamp`: number",
  ],
  [
    "bashExecution",
    "a command that the user ran: `command`, `output`: strings; `exitCode`?: number; `cancelled`, `truncated`: booleans; `fullOutputPath`?: string; `excludeFromContext`?: boolean; `timestamp`: number",
  ],
  [
    "system",
    "from Pi 1.5 on, a change to the system prompt and the tools: `content`: string; `sections`?: texts by name, null removes one; `toolsAdded`?, `toolsRemoved`?: lists of tools with `name`; `timestamp`: number",
  ],
];

const STOP_REASONS: readonly (readonly [reason: string, meaning: string])[] = [
  ["stop", "the model has said what it had to say"],
  ["toolUse", "it calls tools, and goes on when it has their results"],
  ["length", "the limit of tokens was reached"],
  ["error", "the request failed; `errorMessage` says why"],
  ["aborted", "the user stopped it"],
];
