/** Verbs that move sessions which are not open. */

import { dirname } from "node:path";
import { filterByName, requireOneSession } from "../../core/search/named.ts";
import { defineBulkVerb } from "../bulk.ts";
import type { SessionParams } from "../sessions.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { count, formatAge, shortenId, shortenPath } from "../terminal/text.ts";
import { CommandFailed, defineVerb, type ResultOf, toSessionParams, type VerbContext } from "../verb.ts";

function backLines({ sessionId, movedTo }: ResultOf<"restore_session">, { home }: OutputStyle): string[] {
  return [`${shortenId(sessionId)} is back at ${shortenPath(movedTo, home)}.`];
}

export const archive = defineBulkVerb<ResultOf<"archive_session">>(
  {
    name: "archive",
    meaning: "move sessions to the archive, so that they are not listed",
    more: "list --archived lists them; unarchive brings them back, and so does undo. It asks before it moves several. Without a session, --query, --cwd, --since and --until choose them as list does.",
    onInterrupt: "Each session is either in the archive or where it was; list --archived shows which.",
  },
  {
    preferred: "listed",
    ask: (what) => `Archive ${what}?`,
    refused: "Nothing was archived.",
    act: ({ ask }, params) => ask("archive_session", params),
    one: ({ sessionId }) => [
      `${shortenId(sessionId)} is in the archive now; undo brings it back, and so does unarchive.`,
    ],
    would: "be archived",
    did: ({ length }) =>
      `${count(length, "session is", "sessions are")} in the archive now; undo brings ${length === 1 ? "it" : "them"} back.`,
  },
);

export const unarchive = defineBulkVerb<ResultOf<"unarchive_session">>(
  {
    name: "unarchive",
    meaning: "bring back archived sessions",
    more: "Nothing is overwritten. It asks before it moves several. Without a session, --query, --cwd, --since and --until choose them as list --archived does.",
    onInterrupt: "Each session is either back or in the archive; list --archived shows which.",
  },
  {
    preferred: "archived",
    ask: (what) => `Bring back ${what}?`,
    refused: "Nothing was brought back.",
    act: ({ ask }, params) => ask("unarchive_session", params),
    one: backLines,
    would: "be brought back",
    did: ({ length }) =>
      `${count(length, "session is", "sessions are")} back; undo puts ${length === 1 ? "it" : "them"} into the archive again.`,
  },
);

export const restore = defineVerb({
  name: "restore",
  meaning: "bring back a deleted session",
  operands: ["<session>"],
  more: "Name it by its id or 4 characters of it, a part of its name, the path it had, or its path in the trash. It overwrites nothing. Folders of a backup are copied back, as docs/operate.md says.",
  run: (asking, { operands }) => restored(asking, operands[0]),
  print: (result, _given, page) => backLines(result, page),
});

/** Restores the session that an operand names, also by a part of its name. */
async function restored(asking: VerbContext, operand: string): Promise<ResultOf<"restore_session">> {
  const { ask } = asking;
  const params = toSessionParams(operand);
  try {
    return await restoredCopy(asking, params);
  } catch (error) {
    const isUnknown = error instanceof CommandFailed && error.error.data?.name === "session_not_found";
    if (!isUnknown || "sessionPath" in params) throw error;
    const { items } = await ask("list_trash");
    const deleted = items.flatMap(({ sessionId: id, itemPath, sessionPath, name, firstMessage, deletedAt }) =>
      id === null
        ? []
        : [
            {
              id,
              path: itemPath ?? sessionPath,
              name,
              firstMessage,
              cwd: null,
              modified: Date.parse(deletedAt),
              archived: false,
            },
          ],
    );
    const found = filterByName(deleted, operand, "both", "name");
    if (found.length === 0) throw error;
    return restoredCopy(asking, { sessionId: requireOneSession(found, operand).id });
  }
}

/** Restores a session, and says which copy that is if the trash has several with its id. */
async function restoredCopy(
  { ask, say, page }: VerbContext,
  params: SessionParams,
): Promise<ResultOf<"restore_session">> {
  const items = "sessionId" in params ? (await ask("list_trash", params)).items : [];
  const result = await ask("restore_session", params);
  const copies = items.filter(({ sessionId, itemPath }) => sessionId === result.sessionId && itemPath !== null);
  const taken = copies.find(({ itemPath }) => itemPath === dirname(result.sessionPath));
  if (taken === undefined || copies.length < 2) return result;
  const age = formatAge(page().now - Date.parse(taken.deletedAt));
  say(
    `The trash had ${copies.length} copies of ${shortenId(result.sessionId)}; this is the one deleted last, ${age} ago. trash --json has the itemPath of each, which restore takes.`,
  );
  return result;
}
