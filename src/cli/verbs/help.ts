import { helpOf, helpWidth, verbsHelp } from "../help.ts";
import type { Verb, VerbGroup } from "../verb.ts";

function subverbOf(verb: Verb, word: string | undefined): Verb {
  return verb.subverbs?.find(({ name }) => name === `${verb.name} ${word}`) ?? verb;
}

/** Returns the verb that tells of all verbs, or of one. */
export function helpAbout(groups: () => readonly VerbGroup[], find: (name: string) => Verb): Verb {
  return {
    name: "help",
    meaning: "list the verbs, or tell how one of them is used",
    operands: ["[verb]", "[word]"],
    async run({ page, isTerminal }, { operands: [about, word] }) {
      const width = helpWidth(isTerminal ? page().width : undefined);
      return { text: about === undefined ? verbsHelp(groups(), width) : helpOf(subverbOf(find(about), word), width) };
    },
    print: ({ text }) => text.trimEnd().split("\n"),
  };
}
