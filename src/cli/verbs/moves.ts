/** Verbs that move sessions which are not open. */

import { allNamed, doEach, printingEach } from "../several.ts";
import { inert } from "../terminal/text.ts";
import { named, type Result, type Verb } from "../verb.ts";

function movedLines({ movedTo }: Result): string[] {
  return [`It is now at ${inert(movedTo)}.`];
}

export const archive = {
  name: "archive",
  meaning: "move sessions to the archive, so that they are not listed",
  operands: ["<session...>"],
  more: "list --archived lists them, and unarchive brings them back.",
  onInterrupt: "Each session is either in the archive or where it was; list --archived shows which.",
  run: async (asking, given) =>
    doEach(await allNamed(asking, given, "listed"), ({ params }) => asking.ask("archive_session", params)),
  ...printingEach(movedLines),
} satisfies Verb;

export const unarchive = {
  name: "unarchive",
  meaning: "bring back archived sessions",
  operands: ["<session...>"],
  more: "Nothing is overwritten.",
  onInterrupt: "Each session is either back or in the archive; list --archived shows which.",
  run: async (asking, given) =>
    doEach(await allNamed(asking, given, "archived"), ({ params }) => asking.ask("unarchive_session", params)),
  ...printingEach(movedLines),
} satisfies Verb;

export const restore = {
  name: "restore",
  meaning: "bring back a deleted session",
  operands: ["<session>"],
  more: "Name it by its full id, by the path it had, or by its path in the trash. Nothing is overwritten.",
  run: ({ ask }, { operands }) => ask("restore_session", named(operands[0])),
  print: movedLines,
} satisfies Verb;
