import { OPTIONS, type Option, UsageError } from "../options.ts";
import { JSON_FLAG, type Verb } from "../verb.ts";

/** An option or flag as the scripts describe it to a shell. */
interface Word {
  readonly names: readonly string[];
  readonly meaning: string;
  readonly takesValue: boolean;
  readonly oneOf: readonly string[];
  /** Whether the value is a path. */
  readonly isPath: boolean;
}

interface CompletionWords {
  readonly name: string;
  readonly meaning: string;
  readonly flags: readonly Word[];
  /** Possible values of an operand; if there are none, paths are offered. */
  readonly operands: readonly string[];
  /** Whether it takes the option for the folder of sessions. */
  readonly takesFolder: boolean;
}

/** Returns the verb that prints the scripts, which are made from the other verbs. */
export function completionOf(verbs: () => readonly Verb[]): Verb {
  return {
    name: "completion",
    meaning: "print the script for a shell's completion",
    operands: ["<bash|zsh|fish>"],
    more: `bash:  source <(pi-session-server completion bash)
zsh:   source <(pi-session-server completion zsh)
fish:  pi-session-server completion fish | source`,
    async run(_asking, { operands: [shell] }) {
      const scripts = { bash, zsh, fish };
      if (!Object.hasOwn(scripts, shell))
        throw new UsageError(`completion takes ${Object.keys(scripts).join(", ")}; it got ${shell}.`);
      return { script: scripts[shell as keyof typeof scripts](verbs().map(wordsOf), OPTIONS.map(wordOf)) };
    },
    print: ({ script }) => script,
  };
}

/** Flags that every verb has. */
const SHARED: readonly Option[] = [
  { names: ["--json"], ...JSON_FLAG },
  { names: ["--help"], meaning: "print its help" },
];

function wordsOf({ name, meaning, flags = {}, operands, takesCommand }: Verb): CompletionWords {
  const own = Object.entries(flags).map(([flag, facts]): Option => ({ names: [flag], ...facts }));
  const shared = SHARED.filter(({ names: [flag] }) => !(flag in flags));
  const values = operands.length === 1 && operands[0].includes("|") ? operands[0].slice(1, -1).split("|") : [];
  const all = [...own, ...shared].map(wordOf);
  return { name, meaning, flags: all, operands: values, takesFolder: !takesCommand };
}

function wordOf({ names, value = "", meaning, oneOf }: Option): Word {
  const listed = value.includes("|") ? value.split("|").filter((word) => /^[a-z0-9]+$/.test(word)) : [];
  return { names, meaning, takesValue: value !== "", oneOf: oneOf ?? listed, isPath: /dir|path|file/.test(value) };
}

function bash(verbs: readonly CompletionWords[], options: readonly Word[]): string[] {
  const values = (words: readonly Word[]): string[] =>
    words.flatMap(({ names, takesValue, oneOf, isPath }) => {
      if (!takesValue) return [];
      const then = oneOf.length > 0 ? `words="${oneOf.join(" ")}"` : isPath ? ":" : "return";
      return [`      ${names.join("|")}) ${then} ;;`];
    });
  const cases = verbs.flatMap(({ name, flags, operands, takesFolder }) => [
    `    ${name})`,
    `      case $before in`,
    ...values(flags).map((line) => `  ${line}`),
    `        --session-dir) : ;;`,
    `        *) words="${[...flags.flatMap(({ names }) => names), ...(takesFolder ? ["--session-dir"] : []), ...operands].join(" ")}" ;;`,
    "      esac ;;",
  ]);
  return [
    "_pi_session_server() {",
    `  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" verb="\${COMP_WORDS[1]}" words=""`,
    "  COMPREPLY=()",
    // The shell splits --flag=value.
    `  if [ "$word" = "=" ]; then word=""; elif [ "$before" = "=" ]; then before="\${COMP_WORDS[COMP_CWORD-2]}"; fi`,
    `  [ "$COMP_CWORD" -eq 1 ] && verb=""`,
    "  case $verb in",
    ...cases,
    "    *)",
    "      case $before in",
    ...values(options).map((line) => `  ${line}`),
    `        *) words="${options.flatMap(({ names }) => names).join(" ")}"`,
    `          [ "$COMP_CWORD" -eq 1 ] && words="${verbs.map(({ name }) => name).join(" ")} $words" ;;`,
    "      esac ;;",
    "  esac",
    `  [ -n "$words" ] && COMPREPLY=($(compgen -W "$words" -- "$word"))`,
    "}",
    // Where no word fits, paths are offered.
    "complete -o bashdefault -o default -F _pi_session_server pi-session-server",
  ];
}

function zsh(verbs: readonly CompletionWords[], options: readonly Word[]): string[] {
  const quoted = (text: string): string => text.replaceAll("'", "'\\''");
  const described = (text: string): string => quoted(text.replace(/[\\[\]:]/g, "\\$&"));
  const specs = (words: readonly Word[]): string[] =>
    words.flatMap(({ names, meaning, takesValue, oneOf, isPath }) => {
      const value =
        oneOf.length > 0 ? `:value:(${oneOf.join(" ")})` : isPath ? ":path:_files" : takesValue ? ":value:" : "";
      return names.map((name) => `'${name}[${described(meaning)}]${value}'`);
    });
  return [
    "#compdef pi-session-server",
    "_pi-session-server() {",
    "  local -a verbs",
    "  verbs=(",
    ...verbs.map(({ name, meaning }) => `    '${name}:${described(meaning)}'`),
    "  )",
    "  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then",
    "    _describe verb verbs",
    "    return",
    "  fi",
    "  case $words[2] in",
    ...verbs.flatMap(({ name, flags, operands, takesFolder }) => [
      `    ${name})`,
      "      shift words; (( CURRENT-- ))",
      `      _arguments ${specs(flags).join(" ")} ${takesFolder ? "'--session-dir[one flat folder of sessions]:path:_files' " : ""}'*:${operands.length > 0 ? `value:(${operands.join(" ")})` : "path:_files"}' ;;`,
    ]),
    `    *) _arguments ${specs(options).join(" ")} ;;`,
    "  esac",
    "}",
    `if [ "$funcstack[1]" = _pi-session-server ]; then`,
    `  _pi-session-server "$@"`,
    "else",
    "  compdef _pi-session-server pi-session-server",
    "fi",
  ];
}

function fish(verbs: readonly CompletionWords[], options: readonly Word[]): string[] {
  const quoted = (text: string): string => `'${text.replace(/[\\']/g, "\\$&")}'`;
  const line = (condition: string, { names, meaning, takesValue, oneOf, isPath }: Word): string => {
    const forms = names.map((name) => (name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
    const value = oneOf.length > 0 ? ` -x -a ${quoted(oneOf.join(" "))}` : isPath ? " -r -F" : takesValue ? " -x" : "";
    return `complete -c pi-session-server -n ${quoted(condition)} ${forms.join(" ")}${value} -d ${quoted(meaning)}`;
  };
  const offer = (condition: string, words: string): string =>
    `complete -c pi-session-server -f -n ${condition} -a ${words}`;
  const names = verbs.map(({ name }) => name).join(" ");
  return [
    ...verbs.map(({ name, meaning }) => offer("__fish_use_subcommand", `${name} -d ${quoted(meaning)}`)),
    ...verbs.flatMap(({ name, flags, operands }) => [
      ...flags.map((word) => line(`__fish_seen_subcommand_from ${name}`, word)),
      ...(operands.length === 0
        ? []
        : [offer(quoted(`__fish_seen_subcommand_from ${name}`), quoted(operands.join(" ")))]),
    ]),
    ...options.map((word) => line(`not __fish_seen_subcommand_from ${names}`, word)),
  ];
}
