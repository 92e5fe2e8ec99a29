/** Sentences of failures in the words of the command line. */

import { joinClause } from "../core/failure.ts";

/** Words of the sentences about commands and params, where a verb or an option in their place would not make a sentence. */
const PHRASES: Readonly<Record<string, string>> = {
  "get_entries and get_tree show": "tree shows",
  get_tree: "tree",
  compare_branches: "compare",
  get_session_family: "list",
  "clone or fork": "fork",
  "fork, clone or": "fork or",
  "Use switch_session or new_session first": "Name one",
  "close_session closes it, switch_session leaves it for another": "Leave it there first",
  "switch_session or new_session makes another one current; migrate_session": "migrate --apply",
  "switch_session opens that one, new_session begins another": "show prints that one",
  "switch_session opens it": "show prints it",
  "open_session opens one": "list shows those that exist",
  "get_state and verify_session": "show and verify",
  "by migrate_session or rollback_migration": "by migrate --apply or rollback",
  "delete_session with permanent": "delete --permanent",
  "permanent deletes it": "delete --permanent deletes it",
  "opposite: branch, set_label, set_session_name": "opposite: goto, label or rename",
  "branch moves the leaf": "goto moves the leaf",
  "get_fork_messages lists those; position at accepts": "tree shows those; --at accepts",
  "set allowUnjudged": "use --allow-unjudged",
  "Set overwrite": "Use --overwrite",
  "set overwrite": "use --overwrite",
  "a file as outputPath": "a file",
  "an outputPath": "a file",
  "a cursor": "--cursor",
  "limit and cursor": "--limit and --cursor",
  "Leave newSessionId out": "Leave --session-id out",
  "Start the server with --allow-path": "Use --allow-path",
  "This server was started with --read-only. Start one without it": "--read-only was given. Leave it out",
  "Run the server with Node": "Use Node",
  "The server is ending. Start a new one and try": "It is ending. Try",
};

/**
 * The verb that does the work of a command, or shows its result. Of the names that are also English words, our
 * sentences never use `clone`; `branch` and `append` mostly are commands, and have phrases where they are not.
 */
const COMMANDS: Readonly<Record<string, string>> = {
  archive_session: "archive",
  clone: "fork",
  close_session: "browse",
  compare_branches: "compare",
  delete_session: "delete",
  export_html: "export",
  export_session: "export",
  get_context: "show",
  get_entries: "tree",
  get_entry: "show --entry",
  get_fork_messages: "tree",
  get_last_assistant_text: "show",
  get_messages: "show",
  get_path: "show --path",
  get_session_family: "list",
  get_session_stats: "stats",
  get_state: "show",
  get_tree: "tree",
  get_usage: "stats",
  import_session: "import",
  list_open_sessions: "list",
  list_operations: "operations",
  list_sessions: "list",
  list_trash: "list --trash",
  merge_branch: "merge",
  migrate_session: "migrate --apply",
  migration_status: "status",
  open_session: "show",
  relocate_session: "relocate",
  repair_session: "repair",
  restore_session: "restore",
  rollback_migration: "rollback",
  search_sessions: "search",
  preview_session: "show",
  set_label: "label",
  set_session_name: "rename",
  switch_session: "show",
  unarchive_session: "unarchive",
  verify_session: "verify",
  verify_sessions: "verify --all",
  list_leftovers: "prune",
  prune_leftovers: "prune --apply",
  list_kept: "recover",
  recover_kept: "recover",
  empty_trash: "trash empty",
  get_health: "doctor",
  fix_health: "doctor --fix",
};

/** The option or operand of a verb that a param is. */
const PARAMS: Readonly<Record<string, string>> = {
  allowMissing: "--allow-missing",
  dryRun: "--dry-run",
  entryId: "<entry>",
  fromId: "<entry>",
  keptAt: "<file>",
  headerOnly: "--all",
  includeToolResults: "--tools",
  newSessionId: "--session-id",
  operationId: "<operation>",
  outputPath: "<file>",
  sessionId: "<session>",
  sessionPath: "<session>",
};

/** The operands that a param can come from. */
const OPERANDS: Readonly<Record<string, readonly string[]>> = {
  cwd: ["<dir>"],
  name: ["<name...>"],
  query: ["<words...>"],
  path: ["<file>"],
  outputPath: ["[file]"],
  entryId: ["[entry]"],
  operationId: ["[id]", "[operation]"],
  sessionPath: ["<session...>", "[session]"],
  sessionId: ["<session...>", "[session]"],
};

/** Words of a table, but not as a part of a path or an id. Of two, the longer one comes first. */
function pattern(table: Readonly<Record<string, string>>): RegExp {
  const words = Object.keys(table).sort((a, b) => b.length - a.length);
  return new RegExp(`(?<=^|[\\s(])(?:${words.join("|")})(?=[\\s.,;:)]|$)`, "g");
}

const WORDS = { ...COMMANDS, ...PARAMS };
const [PHRASE, WORD] = [pattern(PHRASES), pattern(WORDS)];

/** Returns a sentence with verbs and options in place of commands and params. `kept` are parts that stay as they are. */
export function rewordAsVerbs(sentence: string, kept: readonly string[] = []): string {
  const places = kept.filter((text) => sentence.includes(text)).sort((a, b) => b.length - a.length);
  // Marks the place of a removed part with private-use characters, which no sentence of ours has.
  const mark = (i: number): string => `\ue000${i}\ue001`;
  let marked = sentence;
  for (const [i, text] of places.entries()) marked = marked.replace(text, () => mark(i));
  return (
    marked
      // A command with its verb, and not a process with its version.
      .replace(/\b[a-z]+_\w+ \(pi-session-server ([^)]+)\)/g, "$1")
      .replace(PHRASE, (phrase) => PHRASES[phrase])
      .replace(WORD, (word) => WORDS[word as keyof typeof WORDS])
      .replace(/\ue000(\d+)\ue001/g, (all, i) => places[i] ?? all)
  );
}

/** Returns the texts in the details of a failure: paths, ids and words of a person, which its sentence repeats. */
export function collectTexts(details: unknown): string[] {
  if (typeof details !== "object" || details === null) return [];
  return Object.values(details).filter((text): text is string => typeof text === "string" && text.length > 2);
}

/** Returns the sentence about params that were refused, which names the options or operands that they came from. */
export function rewordParamIssues(
  issues: readonly { readonly path: string; readonly message: string }[],
  flags: readonly string[],
  operands: readonly string[],
): string {
  const clauses = issues.map(({ path, message }) =>
    joinClause(sourceOf(path, flags, operands), rewordAsVerbs(message)),
  );
  return `${clauses.join("; ")}.`.replace(/\.\.$/, ".");
}

/** Returns the option or operand that a param came from. */
function sourceOf(path: string, flags: readonly string[], operands: readonly string[]): string {
  const [param] = path.split(".");
  const option = `--${param.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
  if (flags.includes(option)) return option;
  const known = PARAMS[param];
  if (known !== undefined && (flags.includes(known) || operands.includes(known))) return known;
  const near = OPERANDS[param]?.find((operand) => operands.includes(operand));
  return near ?? (param === "" ? "The command line" : option.slice(2).replaceAll("-", " "));
}
