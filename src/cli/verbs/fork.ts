import { runWithEntry } from "../entries.ts";
import { toRawPath } from "../terminal/text.ts";
import { defineVerb, openNamedSession } from "../verb.ts";

export default defineVerb({
  name: "fork",
  meaning: "copy a path into a new session",
  operands: ["<session>", "[entry]"],
  onInterrupt: "The session is as it was; list shows whether its copy was finished.",
  flags: { "--at": { meaning: "end the copy with the entry, whatever its type" } },
  more: "It prints the path of the new session. Without an entry, it copies the path to the leaf. With a user message, the copy ends before that message, so that you can ask differently.",
  async run(asking, { operands, flags }) {
    const [session, entryId] = operands;
    await openNamedSession(asking, session);
    if (entryId === undefined) return asking.ask("clone");
    const position = flags.has("--at") ? "at" : undefined;
    return runWithEntry(asking, entryId, (id) => asking.ask("fork", { entryId: id, position }));
  },
  isExact: () => true,
  print: ({ sessionFile }, _given, { isTerminal }) =>
    sessionFile === null ? ["The copy was in memory only and is lost."] : [toRawPath(sessionFile, isTerminal)],
});
