import { findPosition, runWithEntry } from "../entries.ts";
import { shortenId, toRawPath } from "../terminal/text.ts";
import { defineVerb, openChangedSession } from "../verb.ts";

export default defineVerb({
  name: "fork",
  meaning: "copy a path into a new session",
  operands: ["<session>", "[entry]"],
  onInterrupt: "The session is as it was; list shows whether its copy was finished.",
  flags: {
    "--at": { meaning: "end the copy with the entry, also if it is a user message" },
    "--name": { value: "name", meaning: "give the copy this display name" },
  },
  more: "It prints the path of the new session. Without an entry, it copies the path to the leaf. With a user message, the copy ends before that message, so that you can ask differently; with any other entry, after it.",
  async run(asking, { operands, flags }) {
    const [session, entryId] = operands;
    await openChangedSession(asking, session);
    const name = flags.get("--name");
    if (entryId === undefined) return asking.ask("clone", { name });
    return runWithEntry(asking, entryId, async (id) =>
      asking.ask("fork", { entryId: id, position: await findPosition(asking, id, flags), name }),
    );
  },
  isExact: () => true,
  print({ sessionFile, sessionId }, _given, { isTerminal }) {
    if (sessionFile === null) return ["The copy was in memory only and is lost."];
    // A person goes on by the id, a program by the path.
    const next = isTerminal ? [`resume ${shortenId(sessionId)} goes on with it; undo takes it back.`] : [];
    return [toRawPath(sessionFile, isTerminal), ...next];
  },
});
