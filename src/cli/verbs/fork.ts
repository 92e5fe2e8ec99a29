import { withEntry } from "../entries.ts";
import { exact } from "../terminal/text.ts";
import { defineVerb, open } from "../verb.ts";

export default defineVerb({
  name: "fork",
  meaning: "copy a path into a new session",
  operands: ["<session>", "[entry]"],
  onInterrupt: "The session is as it was; list shows whether its copy was finished.",
  flags: { "--at": { meaning: "end the copy with the entry, whatever its type" } },
  more:
    "Prints the path of the new session. Without an entry, the whole path to the leaf is copied. With a user message, " +
    "the copy ends before it, so that it can be asked differently. tree prints the ids of entries; a label or the first 4 or more characters of an id will do.",
  async run(asking, { operands, flags }) {
    const [session, entryId] = operands;
    await open(asking, session);
    if (entryId === undefined) return asking.ask("clone");
    const position = flags.has("--at") ? "at" : undefined;
    return withEntry(asking, entryId, (id) => asking.ask("fork", { entryId: id, position }));
  },
  isExact: () => true,
  print: ({ sessionFile }, _given, { isTerminal }) =>
    sessionFile === null ? ["The copy was in memory only and is lost."] : [exact(sessionFile, isTerminal)],
});
