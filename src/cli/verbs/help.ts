import { formatVerbHelp, formatVerbsHelp, getHelpWidth } from "../help.ts";
import { UsageError } from "../options.ts";
import type { Verb, VerbGroup } from "../verb.ts";

/** Returns the verb that a word makes of another one. Throws UsageError. */
function subverbOf(verb: Verb, word: string | undefined): Verb {
  const found = word === undefined ? verb : verb.subverbs?.find(({ name }) => name === `${verb.name} ${word}`);
  if (found) return found;
  throw new UsageError(`There is no verb ${verb.name} ${word}. ${verb.name} --help says what there is.`);
}

export function defineHelp(groups: () => readonly VerbGroup[], find: (name: string) => Verb): Verb {
  return {
    name: "help",
    meaning: "list the verbs, or show the help of one",
    operands: ["[verb]", "[word]"],
    async run({ page, isTerminal }, { operands: [about, word] }) {
      const width = getHelpWidth(isTerminal ? page().width : undefined);
      return {
        text:
          about === undefined ? formatVerbsHelp(groups(), width) : formatVerbHelp(subverbOf(find(about), word), width),
      };
    },
    print: ({ text }) => text.trimEnd().split("\n"),
  };
}
