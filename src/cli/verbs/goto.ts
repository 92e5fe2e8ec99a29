import { findPosition, runWithEntry } from "../entries.ts";
import { escapeLines, show } from "../terminal/text.ts";
import { defineVerb, openChangedSession } from "../verb.ts";

export default defineVerb({
  name: "goto",
  meaning: "let a conversation go on from another entry",
  operands: ["<session>", "<entry>"],
  onInterrupt: "The conversation goes on from where it did, or from the entry; tree shows where.",
  flags: { "--at": { meaning: "go on after the entry, also if it is a user message" } },
  more: `The entry is named by its id, 4 or more characters of it, or its label. The conversation goes on after it; with a user message, before it, and the message's text is printed, so that you can ask differently. Nothing is removed.`,
  async run(asking, { operands: [session, entry], flags }) {
    await openChangedSession(asking, session);
    return runWithEntry(asking, entry, async (entryId) =>
      asking.ask("branch", { entryId, position: await findPosition(asking, entryId, flags) }),
    );
  },
  *print({ leafId, text, durable, unchanged }, _given, { isTerminal }) {
    if (unchanged) yield show`The conversation goes on from ${leafId ?? "its beginning"} already; nothing was changed.`;
    else if (!durable)
      return yield "The move is not saved: another process is writing to the session, or it is read-only.";
    else yield show`The conversation goes on from ${leafId ?? "its beginning"}; undo takes that back.`;
    if (text !== undefined) yield* isTerminal ? escapeLines(text) : [text];
  },
  status: ({ durable, unchanged }) => (durable || unchanged ? 0 : 1),
});
