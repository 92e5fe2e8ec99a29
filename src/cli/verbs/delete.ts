import { defineBulkVerb } from "../bulk.ts";
import { count, shortenId } from "../terminal/text.ts";
import type { ResultOf, VerbContext } from "../verb.ts";

type DeletedOne = ResultOf<"delete_session">;

export default defineBulkVerb<DeletedOne>(
  {
    name: "delete",
    aliases: ["rm"],
    meaning: "move sessions to the trash",
    flags: { "--permanent": { meaning: "delete for good; nothing brings it back" } },
    more: 'It asks first, with the name or first message of each session; with --yes, a name must be the whole one. Without a session, --query, --cwd, --since and --until choose them as list does; --query "(nothing said)" chooses those without a name and a message. The trash command of your desktop takes them, or else the server\'s own trash, from which restore brings them back; trash empty removes them for good.',
    onInterrupt: "Each session is either deleted or as it was; list shows those that are there.",
  },
  {
    preferred: "both",
    isCareful: true,
    ask: async (what, asking, { flags }) => `Delete ${what}${await describeDeletion(asking, flags.has("--permanent"))}`,
    refused: "Nothing was deleted.",
    act: ({ ask }, params, { flags }) =>
      ask("delete_session", { ...params, permanent: flags.has("--permanent") ? true : undefined }),
    one: ({ sessionId, trash }) => [`${shortenId(sessionId)} ${describeOutcome("is", trash)}`],
    would: "be deleted",
    did: ([{ trash }, ...others]) =>
      `${count(others.length + 1, "session", "sessions")} ${describeOutcome(others.length === 0 ? "is" : "are", trash)}`,
  },
);

/** Returns where deleted sessions are now, and their way back. */
function describeOutcome(is: "is" | "are", trash: DeletedOne["trash"]): string {
  if (trash === "none") return `${is} deleted for good.`;
  if (trash === "desktop") return `${is} in the desktop's trash.`;
  const them = is === "is" ? "it" : "them";
  return `${is} in the trash; undo brings ${them} back, trash empty removes ${them} for good.`;
}

/** Returns the end of the question, which says so where undo will not bring the sessions back. */
async function describeDeletion({ ask }: VerbContext, permanent: boolean): Promise<string> {
  if (permanent) return " for good? It cannot be restored.";
  const { desktopTrash } = await ask("list_trash", { limit: 1 });
  return desktopTrash ? "? The trash command takes it, and undo cannot bring it back from there." : "?";
}
