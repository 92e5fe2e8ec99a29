import { helpOf, helpWidth, verbsHelp } from "../help.ts";
import type { Verb, VerbGroup } from "../verb.ts";

/** Returns the verb that tells of all verbs, or of one. */
export function helpAbout(groups: () => readonly VerbGroup[], find: (name: string) => Verb): Verb {
  return {
    name: "help",
    meaning: "list the verbs, or tell how one of them is used",
    operands: ["[verb]"],
    async run({ page, isTerminal }, { operands: [about] }) {
      const width = helpWidth(isTerminal ? page().width : undefined);
      return { text: about === undefined ? verbsHelp(groups(), width) : helpOf(find(about), width) };
    },
    print: ({ text }) => text.trimEnd().split("\n"),
  };
}
