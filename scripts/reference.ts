/** The generated part of protocol.md: commands, events, hooks, failures and the session format. */

import type * as z from "zod";
import type { Command, Effect } from "../src/handlers/shared/command.ts";
import type { Declarations } from "../src/handlers/shared/declarations.ts";
import type { EventName } from "../src/handlers/shared/events.ts";
import type { HookName } from "../src/handlers/shared/hooks.ts";
import { getRepetition, type Repetition } from "../src/handlers/shared/repetition.ts";
import { makeReferringSchemas, type Schema, type SchemaOf } from "../src/server/openrpc.ts";
import { formatTable } from "./markdown.ts";
import {
  type Exchange,
  makeEventExample,
  makeExampleExchange,
  makeHookExample,
  makeRefusalExchange,
} from "./reference-examples.ts";
import { formatText } from "./reference-format.ts";
import { formatMembersTable, formatType, getMembers, getShapeMembers, isWithin } from "./reference-tables.ts";

/**
 * Returns the whole of protocol.md: the preface, which is written by hand, and everything that is declared. A line
 * `<!-- generated: <part> -->` in the preface stands for a part that is read best in that place.
 */
export function formatProtocol(declared: Declarations, preface: string): string {
  const schemaOf = makeReferringSchemas(declared);
  const parts: Readonly<Record<string, () => string>> = {
    "sending again": () => repetitionText(declared.commands),
    failures: () => failuresText(declared),
    events: () => eventsText(declared, schemaOf),
    hooks: () => hooksText(declared, schemaOf),
  };
  const text = [
    preface.trim().replace(/^<!-- generated: (.*) -->$/gm, (_line, part: string) => parts[part]()),
    "<!-- Everything below is generated from the declarations in src/ by `npm run docs`. -->",
    commandsText(declared, schemaOf),
    formatText(declared, schemaOf),
  ];
  return `${text.join("\n\n")}\n`;
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

/** The commands by purpose, in the order of the document. A test checks that each has one place. */
export const GROUPS: Readonly<Record<string, readonly string[]>> = Object.fromEntries(
  `
The connection: initialize shutdown exit rpc.discover
Opening and replacing: new_session switch_session open_session close_session list_open_sessions list_clients fork clone
Reading: get_state get_messages get_entries get_entry get_path get_tree get_context get_fork_messages get_last_assistant_text get_session_stats
Writing: append set_session_name set_label set_model set_thinking_level edit_context prepare_compaction compact_append compact
Branching: branch prepare_branch_summary compare_branches merge_branch list_heads delete_head
Finding: list_sessions preview_session search_sessions get_session_family get_usage
Whole sessions: delete_session restore_session archive_session unarchive_session relocate_session import_session export_session export_html
Operations and undo: list_operations undo redo list_trash empty_trash
Health and leftovers: get_health fix_health list_leftovers prune_leftovers list_kept recover_kept
Soundness and stores: verify_session verify_sessions repair_session migrate_session rollback_migration migration_status create_checkpoint
For clients of Pi: get_commands get_available_models get_available_thinking_levels cycle_model cycle_thinking_level set_steering_mode set_follow_up_mode set_auto_compaction set_auto_retry abort abort_bash abort_retry clear_queue prompt steer follow_up bash
`
    .trim()
    .split("\n")
    .map((row) => row.split(": "))
    .map(([title, names]) => [title, names.split(" ")]),
);

/** Guarantees for the repeat of a command when the server of the first one died. */
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
      formatTable(
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
    formatMembersTable(getShapeMembers(commonParams, schemaOf)),
  ];
  const ordered = grouped.flatMap(([, members]) => members);
  return [lines.join("\n"), ...ordered.map((command) => commandText(command, declared, schemaOf))].join("\n\n");
}

/** Returns what an idempotency key survives, command by command. */
function repetitionText(commands: readonly Command[]): string {
  const rows = Object.entries(REPETITIONS).map(([repetition, [when, meaning]]) => {
    const names = commands.filter((command) => getRepetition(command) === repetition).map(linkTo);
    return [when, meaning, names.join(", ")];
  });
  return [
    "### Sending again",
    "",
    "A host whose server died before it answered starts another one and asks it again, in the same order. Whether that",
    "is safe differs by command. The client of this package does it; where it must not, it fails with",
    "`outcome_unknown`.",
    "",
    formatTable(["when the server died", "because", "commands"], rows),
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
  const own = getMembers(schemaOf(command.params)).filter(({ name: member }) => !isWithin(member, common));
  const also = common.map((member) => `\`${member}\``).join(", ");
  return [
    `### ${name}`,
    "",
    `${summary} Effect: \`${effect}\`.${alias === undefined ? "" : ` Also known as \`${alias}\`.`}`,
    "",
    ...(own.length === 0
      ? [`Params: none of its own; ${also}.`]
      : ["Params:", "", formatMembersTable(own), "", `And ${also}.`]),
    "",
    ...(example.result === undefined ? ["Result: none; it always fails."] : resultText(schemaOf(command.result))),
    ...(command.pi
      ? ["", "In Pi's dialect the result has [Pi's shape](#results-in-pis-dialect); see the example."]
      : []),
    "",
    `Failures: ${command.failures.length === 0 ? "none" : listOfFailures(command.failures, failures)}.`,
    "",
    exchangeText(makeExampleExchange(command)),
    ...(HOOKED.has(name)
      ? ["", "Where no host has registered the hook:", "", exchangeText(makeRefusalExchange(command))]
      : []),
  ].join("\n");
}

/** Commands that a hook lets succeed, and that refuse without one. */
const HOOKED: ReadonlySet<string> = new Set(["compact"]);

/** Returns an example in JSON-RPC, and then in Pi's dialect. */
function exchangeText({ jsonrpc, pi }: Exchange): string {
  return ["```json", ...jsonrpc, "```", "", "```json", ...pi, "```"].join("\n");
}

function isCommon(command: Command, member: string, common: Readonly<Record<string, z.ZodType>>): boolean {
  return command.params.shape[member] === common[member];
}

function listOfFailures(names: Command["failures"], declared: Declarations["failures"]): string {
  return names
    .toSorted((a, b) => declared[b].code - declared[a].code)
    .map((name) => `\`${name}\``)
    .join(", ");
}

function resultText(schema: Schema): string[] {
  if (schema.properties === undefined) return [`Result: ${formatType(schema)}.`];
  const description = schema.description === undefined ? "" : ` ${schema.description}`;
  return [`Result:${description}`, "", formatMembersTable(getMembers(schema))];
}

// --- events, hooks and failures -----------------------------------------------------------------------------------------

function eventsText({ events, eventBase }: Declarations, schemaOf: SchemaOf): string {
  const sections = Object.entries(events).map(([name, { summary, payload }]) =>
    [
      `### ${name}`,
      "",
      summary,
      "",
      formatMembersTable(getShapeMembers(payload, schemaOf)),
      "",
      exchangeText(makeEventExample(name as EventName)),
    ].join("\n"),
  );
  const intro = [
    "## Events",
    "",
    "Notifications from the server. Every event carries these members in addition to its own:",
    "",
    formatMembersTable(getShapeMembers(eventBase, schemaOf)),
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
      formatMembersTable(getShapeMembers(payload, schemaOf)),
      "",
      "The answer may have:",
      "",
      formatMembersTable(getShapeMembers(answer, schemaOf)),
      "",
      exchangeText(makeHookExample(name as HookName)),
    ].join("\n"),
  );
  return ["## Hooks", "Requests from the server, to a host that named them in `initialize`.", ...sections].join("\n\n");
}

function failuresText({ failures }: Declarations): string {
  return [
    "### Failures",
    "",
    "`error.data.name` in JSON-RPC, `code` in Pi's dialect. Retryable: the same request may succeed later without",
    "the host changing it; `error.data.retryable` says so for the case at hand.",
    "",
    formatTable(
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
