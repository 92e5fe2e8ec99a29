/** Verbs that move sessions which are not open. */

import type { Preferred } from "../sessions.ts";
import { allNamed, doEach, printingEach } from "../several.ts";
import { inert } from "../terminal/text.ts";
import { named, type Result, type Verb } from "../verb.ts";

function movedLines({ movedTo }: Result): string[] {
  return [`It is now at ${inert(movedTo)}.`];
}

/** Returns a verb that moves sessions by the command of its name. `preferred` are those that it is about. */
function moving(preferred: Preferred, verb: Pick<Verb, "name" | "meaning" | "more" | "onInterrupt">): Verb {
  return {
    ...verb,
    operands: ["<session...>"],
    run: async (asking, given) =>
      doEach(await allNamed(asking, given, preferred), ({ params }) => asking.ask(`${verb.name}_session`, params)),
    ...printingEach(movedLines),
  };
}

export const archive = moving("listed", {
  name: "archive",
  meaning: "move sessions to the archive, so that they are not listed",
  more: "list --archived lists them, and unarchive brings them back.",
  onInterrupt: "Each session is either in the archive or where it was; list --archived shows which.",
});

export const unarchive = moving("archived", {
  name: "unarchive",
  meaning: "bring back archived sessions",
  more: "Nothing is overwritten.",
  onInterrupt: "Each session is either back or in the archive; list --archived shows which.",
});

export const restore = {
  name: "restore",
  meaning: "bring back a deleted session",
  operands: ["<session>"],
  more: "Name it by its id or 4 characters of it, by the path it had, or by its path in the trash. Nothing is overwritten.",
  run: ({ ask }, { operands }) => ask("restore_session", named(operands[0])),
  print: movedLines,
} satisfies Verb;
