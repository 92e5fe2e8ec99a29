/** Verbs that move sessions which are not open. */

import type { Preferred } from "../../core/search/named.ts";
import { toAbsolutePath } from "../../storage/fs/paths.ts";
import { doEach, type EachResult, findNamedSessions, isFailed, printEach } from "../bulk.ts";
import { requireYes } from "../confirmed.ts";
import { CWD_FLAG, UsageError } from "../options.ts";
import type { OutputStyle } from "../terminal/page.ts";
import { count, shortenId, shortenPath, show } from "../terminal/text.ts";
import { parseTimeFlag } from "../time-parser.ts";
import {
  defineVerb,
  type ResultOf,
  toSessionParams,
  type Verb,
  type VerbArguments,
  type VerbContext,
} from "../verb.ts";
import { formatSessionTable, type ListedSession } from "./list.ts";

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
      doEach(await findNamedSessions(asking, given, preferred), ({ params }, group) =>
        asking.ask(`${verb.name}_session`, { ...params, group }),
      ),
    ...printEach<Moved>(verb.name === "archive" ? archivedLine : backLines),
  });
}

/** Sessions that are listed before a question about them; of more, --dry-run lists all. */
const MOST_SHOWN = 20;

const archiving = moving("listed", {
  name: "archive",
  meaning: "move sessions to the archive, so that they are not listed",
  more: "list --archived lists them; unarchive brings them back, and so does undo. Without a session, --until shows the sessions without a message for long, and asks.",
  onInterrupt: "Each session is either in the archive or where it was; list --archived shows which.",
});

export const archive = defineVerb({
  ...archiving,
  replacesOperands: ["--until"],
  flags: {
    "--until": {
      value: "time",
      meaning: "archive the sessions without a message since this time, such as 90d or 3mo",
    },
    "--cwd": {
      ...CWD_FLAG,
      meaning: "with --until: only sessions of this working directory; alone, of the current one",
    },
    "--dry-run": { meaning: "with --until: show them and archive nothing" },
    "--yes": { meaning: "with --until: do not ask; required without a terminal" },
  },
  async run(asking, given) {
    const { operands, flags } = given;
    if (!flags.has("--until")) {
      const lone = ["--cwd", "--dry-run", "--yes"].find((flag) => flags.has(flag));
      if (lone) throw new UsageError(`${lone} goes with --until, such as --until 90d.`);
      return archiving.run(asking, given);
    }
    if (operands.length > 0) throw new UsageError("archive takes either sessions or --until, not both.");
    const { sessions } = await oldSessions(asking, given);
    if (flags.has("--dry-run") || sessions.length === 0) return { sessions };
    if (!flags.has("--yes")) await mayMove(asking, sessions);
    const chosen = sessions.map((session) => ({
      operand: session.shortId ?? session.sessionId,
      params: toMove(session),
    }));
    return doEach(chosen, ({ params }, group) => asking.ask("archive_session", { ...params, group }));
  },
  print(result, given, page) {
    if (!("sessions" in result)) return archivedLines(result, given, page);
    const { sessions } = result;
    return sessions.length === 0
      ? ["There are no such sessions."]
      : formatSessionTable(sessions, sessions.length, page);
  },
});

function oldSessions(asking: VerbContext, { flags }: VerbArguments) {
  const of = flags.get("--cwd");
  return asking.ask("list_sessions", {
    until: parseTimeFlag(flags, "--until", asking),
    cwd: of === undefined ? undefined : toAbsolutePath(of, asking.cwd),
    holders: true,
  });
}

/** Returns the params that move a session only if nothing was said in it since it was listed. */
function toMove({ sessionPath, modified, messageCount }: ListedSession) {
  return { sessionPath, expected: { modified, messageCount } };
}

/** Shows the sessions and asks. Throws cancelled, and UsageError if no person can be asked. */
async function mayMove(asking: VerbContext, sessions: readonly ListedSession[]): Promise<void> {
  const shown = [...formatSessionTable(sessions.slice(0, MOST_SHOWN), sessions.length, asking.page())];
  const what = sessions.length === 1 ? "this session" : `these ${sessions.length} sessions`;
  await requireYes(asking, `${shown.join("\n")}\nArchive ${what}?`, {
    alone: "archive --until asks first, and there is no terminal to ask on; use --yes.",
    refused: "Nothing was archived.",
  });
}

/** Returns the number of sessions if all were moved, else the outcome for each. */
function archivedLines(result: EachResult<ResultOf<"archive_session">>, given: VerbArguments, page: OutputStyle) {
  if (!given.flags.has("--until") || !("results" in result)) return archiving.print(result, given, page);
  const { results } = result;
  const failed = results.filter(isFailed);
  const moved = count(results.length - failed.length, "session is", "sessions are");
  return [
    ...failed.map(({ operand, sentence }) => show`${operand}: ${sentence}`),
    `${moved} in the archive now; undo brings ${results.length - failed.length === 1 ? "it" : "them"} back.`,
  ];
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
  more: "Name it by its id or 4 characters of it, by the path it had, or by its path in the trash. It overwrites nothing.",
  run: ({ ask }, { operands }) => ask("restore_session", toSessionParams(operands[0])),
  print: (result, _given, page) => backLines(result, page),
});
