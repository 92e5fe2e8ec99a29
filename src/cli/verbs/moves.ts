/** Verbs that move a session which is not open. */

import { inert } from "../terminal/text.ts";
import { named, type Verb } from "../verb.ts";

function moving(name: string, meaning: string, more: string): Verb {
  return {
    name,
    meaning,
    operands: ["<session>"],
    more,
    run: ({ ask }, { operands }) => ask(`${name}_session`, named(operands[0])),
    print: ({ movedTo }) => [`It is now at ${inert(movedTo)}.`],
  };
}

export const archive = moving(
  "archive",
  "move a session to the archive, so that it is not listed",
  "Name it by its path or its full id. list --archived lists it, and unarchive brings it back.",
);

export const unarchive = moving(
  "unarchive",
  "bring back an archived session",
  "Name it by its path or its full id. Nothing is overwritten.",
);

export const restore = moving(
  "restore",
  "bring back a deleted session",
  "Name it by its full id, by the path it had, or by its path in the trash. Nothing is overwritten.",
);
