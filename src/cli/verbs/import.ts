import { count, inert } from "../terminal/text.ts";
import type { Verb } from "../verb.ts";
import { damageLine } from "./verify.ts";

export default {
  name: "import",
  meaning: "copy a session file into the session folders",
  operands: ["<file>"],
  more: "What is there already is found and not written again. Nothing is overwritten.",
  run: ({ ask }, { operands }) => ask("import_session", { path: operands[0] }),
  print({ sessionPath, outcome, conflictsWith, entryCount, damage }) {
    const path = inert(sessionPath);
    const said: Readonly<Record<string, string>> = {
      new: `It is now ${path}.`,
      known: `All of it is in ${path} already.`,
      continued: `${path} had its beginning and got the rest.`,
      conflict: `A session with this id went another way: ${inert(conflictsWith)}.\nThis one got an id of its own: ${path}.`,
    };
    return [
      ...said[outcome].split("\n"),
      `${count(entryCount, "entry", "entries")}.`,
      ...(damage.length === 0 ? [] : [`${count(damage.length, "damage", "damages")}, copied as they are:`]),
      ...damage.map(damageLine),
    ];
  },
} satisfies Verb;
