/** The generated part of protocol.md: commands, events, hooks, failures and the session format. */

import type * as z from "zod";
import type { Command, CommandContext, Effect } from "../src/handlers/shared/command.ts";
import type { Declarations } from "../src/handlers/shared/declarations.ts";
import { type Repetition, repetitionOf } from "../src/handlers/shared/repetition.ts";
import { componentName, referringSchemas, type Schema, type SchemaOf } from "../src/server/openrpc.ts";

/** Returns the whole of protocol.md: the preface, which is written by hand, and everything that is declared. */
export function protocolText(declared: Declarations, preface: string): string {
  const schemaOf = referringSchemas(declared);
  const parts = [
    preface.trim(),
    "<!-- Everything below is generated from the declarations in src/ by `npm run docs`. -->",
    commandsText(declared, schemaOf),
    eventsText(declared, schemaOf),
    hooksText(declared, schemaOf),
    failuresText(declared),
    formatText(declared, schemaOf),
  ];
  return `${parts.join("\n\n")}\n`;
}

// --- commands ----------------------------------------------------------------------------------------------------

const EFFECTS: Readonly<Record<Effect, string>> = {
  read: "reads the session",
  write: "changes the session",
  replace: "makes another session the current one",
  close: "closes or moves a session",
  control: "is about the connection, in the order of the session's commands",
  server: "touches no session and waits for none",
};

/** The commands by what they are for, in the order of the document. A test holds that each has one place. */
export const GROUPS: Readonly<Record<string, readonly string[]>> = {
  "The connection": ["initialize", "shutdown", "exit", "rpc.discover"],
  "Opening and replacing": [
    "new_session",
    "switch_session",
    "open_session",
    "close_session",
    "list_open_sessions",
    "fork",
    "clone",
  ],
  Reading: [
    "get_state",
    "get_messages",
    "get_entries",
    "get_entry",
    "get_path",
    "get_tree",
    "get_context",
    "get_fork_messages",
    "get_last_assistant_text",
    "get_session_stats",
  ],
  Writing: [
    "append",
    "set_session_name",
    "set_label",
    "set_model",
    "set_thinking_level",
    "edit_context",
    "prepare_compaction",
    "compact_append",
    "compact",
  ],
  Branching: ["branch", "prepare_branch_summary"],
  Finding: ["list_sessions", "search_sessions", "get_session_family"],
  "Whole sessions": [
    "delete_session",
    "restore_session",
    "archive_session",
    "unarchive_session",
    "relocate_session",
    "import_session",
    "export_session",
    "export_html",
  ],
  "Soundness and stores": [
    "verify_session",
    "repair_session",
    "migrate_session",
    "rollback_migration",
    "migration_status",
    "create_checkpoint",
  ],
  "For clients of Pi": [
    "get_commands",
    "get_available_models",
    "get_available_thinking_levels",
    "cycle_model",
    "cycle_thinking_level",
    "set_steering_mode",
    "set_follow_up_mode",
    "set_auto_compaction",
    "set_auto_retry",
    "abort",
    "abort_bash",
    "abort_retry",
    "clear_queue",
    "prompt",
    "steer",
    "follow_up",
    "bash",
  ],
};

/** What a repeat of a command may count on when the server that had the first one died. */
const REPETITIONS: Readonly<Record<Repetition, readonly [when: string, meaning: string]>> = {
  repeatable: ["send it again", "It changes no session, or a second time nothing that the first did not."],
  entries: ["send it again with its key", "The key is in the entries that it wrote, and outlasts a restart."],
  session: [
    "send it again with its key",
    "The key is in the header of the session that it made, which is found again.",
  ],
  process: ["read, then decide", "It takes a key, but only the process that died remembered it."],
  none: ["read, then decide", "It takes no key. Whether it was done shows in the files, not in the reply to a repeat."],
};

function commandsText(declared: Declarations, schemaOf: SchemaOf): string {
  const { commands, commonParams } = declared;
  const byName = new Map(commands.map((command) => [command.name, command]));
  const grouped = Object.entries(GROUPS).map(
    ([title, names]) => [title, names.map((name) => byName.get(name) as Command)] as const,
  );
  const lines = [
    "## Commands",
    "",
    ...grouped.flatMap(([title, members]) => [
      `**${title}**`,
      "",
      table(
        ["command", "effect", ""],
        members.map((command) => [linkTo(command), command.effect, command.summary]),
      ),
      "",
    ]),
    "The effect says when a command runs:",
    "",
    ...Object.entries(EFFECTS).map(([effect, meaning]) => `- \`${effect}\` ${meaning}.`),
    "",
    "Params that are the same everywhere. Every command takes `_meta`; commands on a session take `sessionId`;",
    "those that change or replace one take the other two.",
    "",
    membersTable(shapeMembers(commonParams, schemaOf)),
  ];
  const ordered = grouped.flatMap(([, members]) => members);
  return [
    lines.join("\n"),
    repetitionText(commands),
    ...ordered.map((command) => commandText(command, declared, schemaOf)),
  ].join("\n\n");
}

/** Returns what an idempotency key survives, command by command. */
function repetitionText(commands: readonly Command[]): string {
  const rows = Object.entries(REPETITIONS).map(([repetition, [when, meaning]]) => {
    const names = commands.filter((command) => repetitionOf(command) === repetition).map(linkTo);
    return [when, meaning, names.join(", ")];
  });
  return [
    "### Sending again",
    "",
    "A host whose server died before it answered starts another one and asks it again, in the same order. Whether that",
    "is safe differs by command. The client of this package does it; where it must not, it fails with",
    "`outcome_unknown`.",
    "",
    table(["when the server died", "because", "commands"], rows),
    "",
    "A [`branch`](#branch) without a summary and a label writes no entry: send nothing after it before its reply, or",
    "send it again only if nothing was sent after it. Keys are looked for among the last 10,000 entries.",
  ].join("\n");
}

function linkTo(command: Command): string {
  return `[\`${command.name}\`](#${anchorOf(command)})`;
}

/** Returns GitHub's anchor for a command's heading. */
function anchorOf(command: Command): string {
  return command.name.toLowerCase().replace(/[^a-z0-9_-]/g, "");
}

function commandText(command: Command, { commonParams, failures }: Declarations, schemaOf: SchemaOf): string {
  const { name, alias, summary, effect, example } = command;
  const common = Object.keys(command.params.shape).filter((member) => isCommon(command, member, commonParams));
  const own = membersOf(schemaOf(command.params)).filter(({ name: member }) => !common.includes(rootOf(member)));
  const request = {
    jsonrpc: "2.0",
    id: 1,
    method: name,
    ...(isEmpty(example.params) ? {} : { params: example.params }),
  };
  const also = common.map((member) => `\`${member}\``).join(", ");
  return [
    `### ${name}`,
    "",
    `${summary} Effect: \`${effect}\`.${alias === undefined ? "" : ` Also known as \`${alias}\`.`}`,
    "",
    ...(own.length === 0
      ? [`Params: none of its own; ${also}.`]
      : ["Params:", "", membersTable(own), "", `And ${also}.`]),
    "",
    ...(example.result === undefined ? ["Result: none; it always fails."] : resultText(schemaOf(command.result))),
    ...(command.pi ? ["", "In Pi's dialect the result has Pi's shape."] : []),
    "",
    `Failures: ${command.failures.length === 0 ? "none" : listOfFailures(command.failures, failures)}.`,
    "",
    "```json",
    JSON.stringify(request),
    JSON.stringify({ jsonrpc: "2.0", id: 1, ...exampleOutcome(command, failures) }),
    "```",
    "",
    "```json",
    JSON.stringify({ id: "1", type: name, ...(example.params as object) }),
    JSON.stringify(piReply(command, failures)),
    "```",
  ].join("\n");
}

function exampleOutcome({ example, failures: [first] }: Command, failures: Declarations["failures"]): object {
  if (example.result !== undefined) return { result: example.result };
  const { code, retryable, meaning } = failures[first];
  return { error: { code, message: meaning, data: { name: first, retryable } } };
}

/** Returns the reply to the example in Pi's dialect. */
export function piReply(command: Command, declared: Declarations["failures"]): object {
  const { name, example, failures, pi } = command;
  const head = { id: "1", type: "response", command: name };
  if (example.result === undefined)
    return { ...head, success: false, error: declared[failures[0]].meaning, code: failures[0] };
  // The shapes of Pi depend on the result alone; what else they do is for the session's folder.
  const nowhere = { workspace: { prepareFolder() {} } } as unknown as CommandContext;
  const data = pi === undefined ? example.result : pi(nowhere, example.result as never);
  return data === null ? { ...head, success: true } : { ...head, success: true, data };
}

function isCommon(command: Command, member: string, common: Readonly<Record<string, z.ZodType>>): boolean {
  return command.params.shape[member] === common[member];
}

function rootOf(member: string): string {
  return member.split(/[.[]/, 1)[0];
}

function isEmpty(params: unknown): boolean {
  return Object.keys(params as object).length === 0;
}

function listOfFailures(names: Command["failures"], declared: Declarations["failures"]): string {
  return names
    .toSorted((a, b) => declared[b].code - declared[a].code)
    .map((name) => `\`${name}\``)
    .join(", ");
}

function resultText(schema: Schema): string[] {
  if (schema.properties === undefined) return [`Result: ${typeText(schema)}.`];
  const description = schema.description === undefined ? "" : ` ${schema.description}`;
  return [`Result:${description}`, "", membersTable(membersOf(schema))];
}

// --- events, hooks and failures -----------------------------------------------------------------------------------------

function eventsText({ events, eventBase }: Declarations, schemaOf: SchemaOf): string {
  const sections = Object.entries(events).map(([name, { summary, payload }]) =>
    [`### ${name}`, "", summary, "", membersTable(shapeMembers(payload, schemaOf))].join("\n"),
  );
  const intro = [
    "## Events",
    "",
    "Notifications from the server. Every event carries these members in addition to its own:",
    "",
    membersTable(shapeMembers(eventBase, schemaOf)),
  ].join("\n");
  return [intro, ...sections].join("\n\n");
}

function hooksText({ hooks }: Declarations, schemaOf: SchemaOf): string {
  const sections = Object.entries(hooks).map(([name, { summary, payload, answer }]) =>
    [
      `### ${name}`,
      "",
      summary,
      "",
      membersTable(shapeMembers(payload, schemaOf)),
      "",
      "The answer may have:",
      "",
      membersTable(shapeMembers(answer, schemaOf)),
    ].join("\n"),
  );
  return ["## Hooks", "Requests from the server, to a host that named them in `initialize`.", ...sections].join("\n\n");
}

function failuresText({ failures }: Declarations): string {
  return [
    "## Failures",
    "",
    "`error.data.name` in JSON-RPC, `code` in Pi's dialect. Retryable: the same request may succeed later without",
    "the host changing it; `error.data.retryable` says so for the case at hand.",
    "",
    table(
      ["name", "code", "retryable", "meaning"],
      Object.entries(failures).map(([name, { code, retryable, meaning }]) => [
        `\`${name}\``,
        String(code),
        retryable ? "yes" : "no",
        meaning,
      ]),
    ),
  ].join("\n");
}

// --- the session format ------------------------------------------------------------------------------------------

function formatText({ header, entryTypes, messageRoles }: Declarations, schemaOf: SchemaOf): string {
  const types = Object.entries(entryTypes);
  const [[, first]] = types;
  const base = Object.keys(first.shape).filter((member) => types.every(([, schema]) => member in schema.shape));
  const sections = types.map(([type, schema]) => {
    const { description, ...json } = schemaOf(schema);
    const own = membersOf(json).filter(({ name }) => !base.includes(rootOf(name)));
    return [`### Entry: ${type}`, "", description ?? "", "", membersTable(own)].join("\n");
  });
  const intro = [
    "## Session format",
    "",
    "A session file is UTF-8 text, one JSON object a line. The first line is the header:",
    "",
    membersTable(membersOf(schemaOf(header))),
    "",
    "Every other line is an entry. Entries refer to the one before them by `parentId` and so form a tree; lines are",
    "added and never changed. Entries that the server writes have all of these members, `type` first:",
    "",
    membersTable([
      { name: "type", optional: false, schema: { type: "string", description: "one of the types below, or another" } },
      ...membersOf(schemaOf(first)).filter(({ name }) => name !== "type" && base.includes(rootOf(name))),
    ]),
    "",
    "An entry that was appended together with others, or with an idempotency key, also has `_batch` with `session`,",
    "`key` if there was one, `index` and `count`; it counts only in the file of that session. Types and members that",
    "are not listed here are kept as they are.",
  ].join("\n");
  const roles = [
    "### Messages",
    "",
    "The checked members of a message that is appended, by its role; other roles are not checked. `get_messages` and",
    "`get_context` also return messages that represent other entries: `compactionSummary` with `summary` and",
    "`tokensBefore`, `branchSummary` with `summary` and `fromId`, `custom` for a `custom_message` with its members.",
    "Their `timestamp` is in milliseconds.",
    "",
    ...Object.entries(messageRoles).flatMap(([role, schema]) => [
      `\`${role}\`:`,
      "",
      membersTable(membersOf(schemaOf(schema))),
      "",
    ]),
  ].join("\n");
  return [intro, ...sections, roles.trim()].join("\n\n");
}

// --- tables ------------------------------------------------------------------------------------------------------

interface TableMember {
  readonly name: string;
  readonly optional: boolean;
  readonly schema: Schema;
}

function shapeMembers(shape: Readonly<Record<string, z.ZodType>>, schemaOf: SchemaOf): TableMember[] {
  const members = Object.entries(shape);
  return membersOf({
    properties: Object.fromEntries(members.map(([name, schema]) => [name, schemaOf(schema)])),
    required: members.filter(([, schema]) => schema._zod.optin !== "optional").map(([name]) => name),
  });
}

/**
 * Returns the members of an object, each followed by those of the objects inside it, as `outer.inner` and
 * `list[].inner`.
 */
function membersOf({ properties = {}, required = [] }: Schema, before = ""): TableMember[] {
  return Object.entries(properties).flatMap(([name, schema]) => {
    const member = { name: `${before}${name}`, optional: !required.includes(name), schema };
    const isList = schema.type === "array";
    const inner = isList ? (schema.items as Schema) : schema;
    if (inner.properties === undefined || !isWorthRows(inner)) return [member];
    return [member, ...membersOf(inner, `${member.name}${isList ? "[]" : ""}.`)];
  });
}

/**
 * Returns whether an object's members get rows of their own; those of small objects without explanations share one
 * cell.
 */
function isWorthRows({ properties = {} }: Schema): boolean {
  const inner = Object.values(properties);
  return inner.length > 4 || inner.some((schema) => schema.description !== undefined || schema.properties);
}

function membersTable(members: readonly TableMember[]): string {
  return table(
    ["member", "type", ""],
    members.map(({ name, optional, schema }) => [
      `\`${name}\`${optional ? "?" : ""}`,
      typeText(schema),
      schema.description ?? "",
    ]),
  );
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}

/** Links that stand for the schemas of the components. */
const NAMES: Readonly<Record<string, string>> = {
  entry: "[entry](#session-format)",
  draft: "[entry](#session-format)",
  message: "[message](#messages)",
  contextMessage: "[message](#messages)",
};

/** Returns a type in words and quotes: `string or null`, `"at" or "before"`, `list of integer`. */
function typeText(schema: Schema): string {
  const component = componentName(schema);
  if (component !== undefined) return NAMES[component];
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return alternatives(schema.enum.map((value) => JSON.stringify(value)));
  if (schema.anyOf) return alternatives(schema.anyOf.map(typeText));
  if (Array.isArray(schema.type)) return alternatives(schema.type.map((type) => typeText({ ...schema, type })));
  if (schema.type === "array") return `list of ${typeText(schema.items ?? {})}`;
  if (schema.type === "object") return objectText(schema);
  return `${schema.type ?? "anything"}${limitsText(schema)}`;
}

function objectText(schema: Schema): string {
  const { properties, required = [], additionalProperties } = schema;
  const named = typeof additionalProperties === "object" && Object.keys(additionalProperties).length > 0;
  if (properties === undefined || Object.keys(properties).length === 0)
    return named ? `object of ${typeText(additionalProperties)} by name` : "object";
  if (isWorthRows(schema)) return "object";
  const members = Object.entries(properties).map(
    ([name, inner]) => `${name}${required.includes(name) ? "" : "?"}: ${typeText(inner)}`,
  );
  return `{ ${members.join(", ")} }`;
}

function alternatives(texts: readonly string[]): string {
  return [...new Set(texts)].join(" or ");
}

function limitsText({ minimum, maximum }: Schema): string {
  const limits = [
    ...(minimum !== undefined && minimum !== Number.MIN_SAFE_INTEGER ? [`from ${minimum}`] : []),
    ...(maximum !== undefined && maximum !== Number.MAX_SAFE_INTEGER ? [`to ${maximum}`] : []),
  ];
  return limits.length === 0 ? "" : ` ${limits.join(" ")}`;
}
