/** Verbs that move sessions which are not open. */

import { filterByName, type Preferred, requireOneSession } from "../../core/search/named.ts";
import {
  CHOOSING_FLAGS,
  doEach,
  doEachListed,
  type EachResult,
  findChosenSessions,
  findNamedSessions,
  formatEachListed,
  getEachStatus,
  printEach,
  type WouldChange,
} from "../bulk.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { group, shortenId, shortenPath } from "../terminal/text.ts";
import { CommandFailed, defineVerb, type ResultOf, toSessionParams, type Verb, type VerbContext } from "../verb.ts";

function backLines({ sessionId, movedTo }: ResultOf<"restore_session">, { home }: OutputStyle): string[] {
  return [`${shortenId(sessionId)} is back at ${shortenPath(movedTo, home)}.`];
}

function archivedLine({ sessionId }: { readonly sessionId: string }): string[] {
  return [`${shortenId(sessionId)} is in the archive now; undo brings it back, and so does unarchive.`];
}

type Moved = ResultOf<"archive_session" | "unarchive_session">;

/** Returns a verb that moves sessions by the command of its name. `preferred` are those that it is about. */
function moving(
  preferred: Preferred,
  verb: Pick<Verb, "meaning" | "more" | "onInterrupt"> & { readonly name: "archive" | "unarchive" },
) {
  return defineVerb<EachResult<Moved>>({
    ...verb,
    operands: ["<session...>"],
    run: async (asking, given) =>
      doEach(asking, await findNamedSessions(asking, given, preferred), ({ params }, group) =>
        asking.ask(`${verb.name}_session`, { ...params, group }),
      ),
    ...printEach<Moved>(verb.name === "archive" ? archivedLine : backLines),
  });
}

const archiving = moving("listed", {
  name: "archive",
  meaning: "move sessions to the archive, so that they are not listed",
  more: "list --archived lists them; unarchive brings them back, and so does undo. Without a session, --until and --cwd choose them, and it asks.",
  onInterrupt: "Each session is either in the archive or where it was; list --archived shows which.",
});

export const archive = defineVerb({
  ...archiving,
  replacesOperands: ["--until", "--cwd"],
  flags: { ...CHOOSING_FLAGS, "--yes": { meaning: "do not ask; required without a terminal" } },
  async run(asking, given) {
    const sessions = await findChosenSessions(asking, given);
    if (sessions === undefined) return archiving.run(asking, given);
    const question = { ask: (what: string) => `Archive ${what}?`, refused: "Nothing was archived." };
    return doEachListed(asking, given, sessions, question, ({ params }, group) =>
      asking.ask("archive_session", { ...params, group }),
    );
  },
  print(result: EachResult<Moved> | WouldChange, given, page) {
    if (given.operands.length > 0 && !("sessions" in result)) return archiving.print(result, given, page);
    return formatEachListed(result, { would: "be archived", did: archivedSentence }, page);
  },
  status: getEachStatus,
});

function archivedSentence(done: readonly unknown[]): string {
  const [what, them] = done.length === 1 ? ["session is", "it"] : ["sessions are", "them"];
  return `${group(done.length)} ${what} in the archive now; undo brings ${them} back.`;
}

export const unarchive = moving("archived", {
  name: "unarchive",
  meaning: "bring back archived sessions",
  more: "Nothing is overwritten.",
  onInterrupt: "Each session is either back or in the archive; list --archived shows which.",
});

export const restore = defineVerb({
  name: "restore",
  meaning: "bring back a deleted session",
  operands: ["<session>"],
  more: "Name it by its id or 4 characters of it, a part of its name, the path it had, or its path in the trash. It overwrites nothing.",
  run: (asking, { operands }) => restored(asking, operands[0]),
  print: (result, _given, page) => backLines(result, page),
});

/** Restores the session that an operand names, also by a part of its name. */
async function restored({ ask }: VerbContext, operand: string): Promise<ResultOf<"restore_session">> {
  const params = toSessionParams(operand);
  try {
    return await ask("restore_session", params);
  } catch (error) {
    const isUnknown = error instanceof CommandFailed && error.error.data?.name === "session_not_found";
    if (!isUnknown || "sessionPath" in params) throw error;
    const { items } = await ask("list_trash");
    const deleted = items.flatMap(({ sessionId: id, itemPath: path, name, firstMessage, deletedAt }) =>
      id === null
        ? []
        : [{ id, path, name, firstMessage, cwd: null, modified: Date.parse(deletedAt), archived: false }],
    );
    const found = filterByName(deleted, operand, "both", "name");
    if (found.length === 0) throw error;
    return ask("restore_session", { sessionId: requireOneSession(found, operand).id });
  }
}
