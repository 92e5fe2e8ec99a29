import { OPTIONS, type Option, UsageError } from "../options.ts";
import { COMMON_FLAGS, type Verb } from "../verb.ts";

/** An option or flag as the scripts describe it to a shell. */
interface Word {
  readonly names: readonly string[];
  readonly meaning: string;
  readonly takesValue: boolean;
  readonly oneOf: readonly string[];
  /** The kind of the value, for the shell or for the verb `complete`. */
  readonly kind: WordKind;
}

/** `asked`: the program knows the values, which are sessions, entries and the like. */
type WordKind = "directory" | "path" | "asked" | "other";

interface CompletionWords {
  readonly name: string;
  readonly meaning: string;
  readonly flags: readonly Word[];
  /** The names of the verb. */
  readonly names: readonly string[];
  /** Possible values of an operand. */
  readonly operands: readonly string[];
  /** True if the program is asked for the operands; else paths are offered, if there are no values. */
  readonly asks: boolean;
  /** True if it takes the option for the folder of sessions. */
  readonly takesFolder: boolean;
}

/** Returns the verb that prints the scripts, which are made from the other verbs. */
export function defineCompletion(verbs: () => readonly Verb[]): Verb {
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
      const words = verbs().map((verb) => wordsOf(verb, verbs()));
      return { script: scripts[shell as keyof typeof scripts](words, OPTIONS.map(wordOf)) };
    },
    print: ({ script }) => script,
  };
}

/** Flags that every verb has. */
const SHARED: readonly Option[] = [
  ...Object.entries(COMMON_FLAGS).map(([name, flag]) => ({ names: [name], ...flag })),
  { names: ["--help"], meaning: "print its help" },
];

/** Operands that the program completes. */
const ASKED = /^[<[](session|entry|operation|id|a|b)\b/;

function wordsOf(verb: Verb, verbs: readonly Verb[]): CompletionWords {
  const { name, aliases = [], meaning, operands, takesCommand, subverbs = [] } = verb;
  const flags = Object.fromEntries([verb, ...subverbs].flatMap((one) => Object.entries(one.flags ?? {})));
  const words = subverbs.map((one) => one.name.slice(name.length + 1));
  const own = Object.entries(flags).map(([flag, facts]): Option => ({ names: [flag], ...facts }));
  const shared = SHARED.filter(({ names: [flag] }) => !(flag in flags));
  const isOfVerbs = operands[0] === "[verb]";
  const values = operands.length === 1 && operands[0].includes("|") ? operands[0].slice(1, -1).split("|") : [];
  return {
    name,
    names: [name, ...aliases],
    meaning,
    flags: [...own, ...shared].map(wordOf),
    operands: isOfVerbs ? verbs.map((one) => one.name) : [...values, ...words],
    asks: operands.some((operand) => ASKED.test(operand)),
    takesFolder: !takesCommand,
  };
}

function wordOf({ names, value = "", meaning, oneOf }: Option): Word {
  const listed = value.includes("|") ? value.split("|").filter((word) => /^[a-z0-9]+$/.test(word)) : [];
  const isAsked = names.includes("--entry") || value === "session" || value === "entry";
  const kind = value === "dir" ? "directory" : /dir|path|file/.test(value) ? "path" : isAsked ? "asked" : "other";
  return { names, meaning, takesValue: value !== "", oneOf: oneOf ?? listed, kind };
}

/**
 * Asks the program, which prints a line for each offer: a word, a tab, a text. The lines are data: nothing in them is
 * expanded. Several offers are shown with their texts, unless the shell goes through them and would insert those, too.
 */
const BASH_ASK = `_pi_session_server_directories() {
  local line
  while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -d -- "$1")
  compopt -o filenames 2>/dev/null
}
_pi_session_server_ask() {
  local line quoted
  local -a values=() texts=()
  while IFS= read -r line; do
    case $line in
      :dirs) _pi_session_server_directories "$1"; return ;;
      :files) return ;;
    esac
    printf -v quoted %q "\${line%%$'\t'*}"
    values+=("$quoted")
    texts+=("$quoted  \${line#*$'\t'}")
  done < <(pi-session-server complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  case \${COMP_TYPE:-9} in 37|42) COMPREPLY=("\${values[@]}"); return ;; esac
  if [ \${#values[@]} -le 1 ]; then COMPREPLY=("\${values[@]}"); else COMPREPLY=("\${texts[@]}"); fi
}`;

function bash(verbs: readonly CompletionWords[], options: readonly Word[]): string[] {
  const values = (words: readonly Word[]): string[] =>
    words.flatMap(({ names, takesValue, oneOf, kind }) => {
      if (!takesValue) return [];
      const ways = {
        directory: `_pi_session_server_directories "$word"; return`,
        path: ":",
        asked: '_pi_session_server_ask "$word"; return',
        other: "return",
      };
      return [`      ${names.join("|")}) ${oneOf.length > 0 ? `words="${oneOf.join(" ")}"` : ways[kind]} ;;`];
    });
  const cases = verbs.flatMap(({ names, flags, operands, asks, takesFolder }) => [
    `    ${names.join("|")})`,
    `      case $before in`,
    ...values(flags).map((line) => `  ${line}`),
    `        --session-dir) _pi_session_server_directories "$word"; return ;;`,
    `        *) ${asks ? "asks=1 " : ""}words="${[...flags.flatMap(({ names }) => names), ...(takesFolder ? ["--session-dir"] : []), ...operands].join(" ")}" ;;`,
    "      esac ;;",
  ]);
  return [
    BASH_ASK,
    "_pi_session_server() {",
    `  local word="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" verb="\${COMP_WORDS[1]}" words="" asks=""`,
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
    `          [ "$COMP_CWORD" -eq 1 ] && words="${verbs.flatMap(({ names }) => names).join(" ")} $words" ;;`,
    "      esac ;;",
    "  esac",
    `  case $asks$word in 1-*) ;; 1*) _pi_session_server_ask "$word"; return ;; esac`,
    `  [ -n "$words" ] && COMPREPLY=($(compgen -W "$words" -- "$word"))`,
    "}",
    // If no word fits, paths are offered.
    "complete -o bashdefault -o default -F _pi_session_server pi-session-server",
  ];
}

/** Asks the program, as in bash; the shell quotes inserted words, and shows the texts as they are. */
const ZSH_ASK = `_pi_session_server_ask() {
  local line
  local -a values texts
  while IFS= read -r line; do
    case $line in
      :dirs) _files -/; return ;;
      :files) _files; return ;;
    esac
    values+=("\${line%%$'\\t'*}")
    texts+=("\${line%%$'\\t'*}  \${line#*$'\\t'}")
  done < <(pi-session-server complete -- "\${(@)words[1,CURRENT]}" 2>/dev/null)
  compadd -l -V sessions -d texts -a values
}`;

function zsh(verbs: readonly CompletionWords[], options: readonly Word[]): string[] {
  const quoted = (text: string): string => text.replaceAll("'", "'\\''");
  const described = (text: string): string => quoted(text.replace(/[\\[\]:]/g, "\\$&"));
  const specs = (words: readonly Word[]): string[] =>
    words.flatMap(({ names, meaning, takesValue, oneOf, kind }) => {
      const ways = {
        directory: ":directory:_files -/",
        path: ":path:_files",
        asked: ":value:_pi_session_server_ask",
        other: ":value:",
      };
      const value = oneOf.length > 0 ? `:value:(${oneOf.join(" ")})` : takesValue ? ways[kind] : "";
      return names.map((name) => `'${name}[${described(meaning)}]${value}'`);
    });
  const operand = ({ operands, asks }: CompletionWords): string => {
    if (asks) return "operand:_pi_session_server_ask";
    return operands.length > 0 ? `value:(${operands.join(" ")})` : "path:_files";
  };
  return [
    "#compdef pi-session-server",
    ZSH_ASK,
    "_pi-session-server() {",
    "  local -a verbs",
    "  verbs=(",
    ...verbs.flatMap(({ names, meaning }) => names.map((name) => `    '${name}:${described(meaning)}'`)),
    "  )",
    "  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then",
    "    _describe verb verbs",
    "    return",
    "  fi",
    "  case $words[2] in",
    ...verbs.flatMap((verb) => [
      `    ${verb.names.join("|")})`,
      "      shift words; (( CURRENT-- ))",
      `      _arguments ${specs(verb.flags).join(" ")} ${verb.takesFolder ? "'--session-dir[one flat folder of sessions]:directory:_files -/' " : ""}'*:${operand(verb)}' ;;`,
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

/** Asks the program, as in bash; the shell quotes inserted words. */
const FISH_ASK = `function __pi_session_server_ask
    set -l current (commandline -ct)
    string match -q -- '-*' "$current"; and return
    type -q pi-session-server; or return
    set -l before (commandline -opc)
    set -l answer (pi-session-server complete -- $before[2..-1] "$current" 2>/dev/null)
    switch "$answer[1]"
        case ':dirs'
            __fish_complete_directories "$current"
        case ':files'
            __fish_complete_path "$current"
        case '*'
            printf '%s\\n' $answer
    end
end`;

function fish(verbs: readonly CompletionWords[], options: readonly Word[]): string[] {
  const quoted = (text: string): string => `'${text.replace(/[\\']/g, "\\$&")}'`;
  const line = (condition: string, { names, meaning, takesValue, oneOf, kind }: Word): string => {
    const forms = names.map((name) => (name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`));
    const ways = {
      directory: ` -x -a '(__fish_complete_directories (commandline -ct))'`,
      path: " -r -F",
      asked: " -x -a '(__pi_session_server_ask)'",
      other: " -x",
    };
    const value = oneOf.length > 0 ? ` -x -a ${quoted(oneOf.join(" "))}` : takesValue ? ways[kind] : "";
    return `complete -c pi-session-server -n ${quoted(condition)} ${forms.join(" ")}${value} -d ${quoted(meaning)}`;
  };
  const offer = (condition: string, words: string): string =>
    `complete -c pi-session-server -f -n ${condition} -a ${words}`;
  const all = verbs.flatMap(({ names }) => names).join(" ");
  return [
    FISH_ASK,
    ...verbs.flatMap(({ names, meaning }) =>
      names.map((name) => offer("__fish_use_subcommand", `${name} -d ${quoted(meaning)}`)),
    ),
    ...verbs.flatMap(({ names, flags, operands, asks, takesFolder }) => {
      const seen = `__fish_seen_subcommand_from ${names.join(" ")}`;
      const folder: Word[] = takesFolder ? options.filter((word) => word.names.includes("--session-dir")) : [];
      return [
        ...[...flags, ...folder].map((word) => line(seen, word)),
        ...(operands.length === 0 ? [] : [offer(quoted(seen), quoted(operands.join(" ")))]),
        ...(asks ? [offer(quoted(seen), "'(__pi_session_server_ask)' -k")] : []),
      ];
    }),
    ...options.map((word) => line(`not __fish_seen_subcommand_from ${all}`, word)),
  ];
}
