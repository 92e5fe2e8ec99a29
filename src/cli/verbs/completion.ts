import { UsageError } from "../options.ts";
import type { Verb } from "../verb.ts";

/**
 * The scripts ask the verb `complete`, which prints a line for each offer: a word, a tab, a text. The lines are data:
 * nothing in them is expanded. Bash shows several offers with their texts, unless it goes through them and would insert
 * those, too; where none fits, it offers paths.
 */
const SCRIPTS: Readonly<Record<string, string>> = {
  bash: `_pi_session_server() {
  local line quoted
  local -a values=() texts=()
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :dirs)
        while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -d -- "\${COMP_WORDS[COMP_CWORD]}")
        compopt -o filenames 2>/dev/null
        return ;;
      :files) return ;;
    esac
    printf -v quoted %q "\${line%%$'\\t'*}"
    values+=("$quoted")
    texts+=("$quoted  \${line#*$'\\t'}")
  done < <(pi-session-server complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  case \${COMP_TYPE:-9} in 37|42) COMPREPLY=("\${values[@]}"); return ;; esac
  if [ \${#values[@]} -le 1 ]; then COMPREPLY=("\${values[@]}"); else COMPREPLY=("\${texts[@]}"); fi
}
complete -o bashdefault -o default -F _pi_session_server pi-session-server`,
  zsh: `#compdef pi-session-server
_pi-session-server() {
  local line
  local -a values texts
  while IFS= read -r line; do
    case $line in
      :dirs) _files -/; return ;;
      :files) _files; return ;;
    esac
    values+=("\${line%%$'\\t'*}")
    texts+=("\${line%%$'\\t'*}  \${line#*$'\\t'}")
  done < <(pi-session-server complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)
  compadd -l -V offers -d texts -a values
}
if [ "$funcstack[1]" = _pi-session-server ]; then
  _pi-session-server "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i; }
  compdef _pi-session-server pi-session-server
fi`,
  fish: `function __pi_session_server_offers
    type -q pi-session-server; or return
    set -l current (commandline -ct)
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
end
complete -c pi-session-server -f -k -a '(__pi_session_server_offers)'`,
};

export default {
  name: "completion",
  meaning: "print the script for a shell's completion",
  operands: ["<bash|zsh|fish>"],
  more: `bash:  source <(pi-session-server completion bash)
zsh:   source <(pi-session-server completion zsh)
fish:  pi-session-server completion fish | source`,
  async run(_asking, { operands: [shell] }) {
    if (!Object.hasOwn(SCRIPTS, shell))
      throw new UsageError(`completion takes ${Object.keys(SCRIPTS).join(", ")}; it got ${shell}.`);
    return { script: SCRIPTS[shell].split("\n") };
  },
  print: ({ script }) => script,
} satisfies Verb;
