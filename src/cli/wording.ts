/** Sentences of failures in the words of the command line. */

/** Verbs and options by the commands and params that sentences of failures name. */
const WORDS: Readonly<Record<string, string>> = {
  list_sessions: "list",
  verify_session: "verify",
  repair_session: "repair",
  restore_session: "restore",
  export_session: "export",
  migrate_session: "migrate --apply",
  rollback_migration: "rollback",
  "get_entries and get_tree show": "tree shows",
  get_tree: "tree",
  compare_branches: "compare",
  get_session_family: "list",
  "clone or fork": "fork",
  "clone copies": "fork copies",
  "clone writes": "fork writes",
  "clone it": "fork it",
  allowMissing: "--allow-missing",
  "Set overwrite": "Use --overwrite",
  "set overwrite": "use --overwrite",
  "a file as outputPath": "a file",
  "an outputPath": "a file",
  "a cursor": "--cursor",
  "limit and cursor": "--limit and --cursor",
};

/** A word of the table, but not as a part of a path or an id. */
const WORD = new RegExp(`(?<=^|\\s)(?:${Object.keys(WORDS).join("|")})(?=[\\s.,;]|$)`, "g");

/** Returns a sentence with verbs and options in place of commands and params. */
export function inVerbs(sentence: string): string {
  return sentence.replace(/\w+ \(pi-session-server ([^)]+)\)/g, "$1").replace(WORD, (word) => WORDS[word]);
}
