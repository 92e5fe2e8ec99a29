import { inert } from "../terminal/text.ts";
import { named, type Result, type Verb } from "../verb.ts";

export default {
  name: "archive",
  meaning: "move a session to the archive, so that it is not listed",
  operands: ["<session>"],
  flags: {},
  more: "Name it by its path or its full id. list --archived lists it, and unarchive brings it back.",
  run: ({ ask }, { operands }) => ask("archive_session", named(operands[0])),
  print: movedLine,
} satisfies Verb;

/** Returns the line that says where a session is now. */
export function movedLine({ movedTo }: Result): string[] {
  return [`It is now at ${inert(movedTo)}.`];
}
