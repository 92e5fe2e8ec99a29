/** Verbs that do the same with each of several sessions. */

import type { Listed } from "../core/ports/catalog.ts";
import { formatTime } from "../core/search/listing.ts";
import type { Preferred } from "../core/search/named.ts";
import { toAbsolutePath } from "../storage/fs/paths.ts";
import { requireYes } from "./confirmed.ts";
import { hintAtDirectory } from "./directory-hint.ts";
import { INTERRUPTED } from "./interrupts.ts";
import { CWD_FLAG, type Flag, UsageError } from "./options.ts";
import { findNamedSession, type NamedSession } from "./sessions.ts";
import type { OutputStyle } from "./terminal/page.ts";
import { count, show } from "./terminal/text.ts";
import { parseAgeFlag } from "./time-parser.ts";
import { FAILURE, OK, type Verb } from "./verb.ts";
import { type CommandError, CommandFailed, type VerbArguments, type VerbContext } from "./verb-context.ts";
import { formatSessionTable, type ListedSession } from "./verbs/list.ts";

/** Finds the sessions of all operands, before anything is done with the first. Throws as `sessionNamed`. */
export async function findNamedSessions(
  asking: VerbContext,
  { operands }: VerbArguments,
  preferred: Preferred,
): Promise<NamedSession[]> {
  const all = new Map<string, NamedSession>();
  for (const operand of new Set(operands)) {
    const session = await findNamedSession(asking, operand, preferred);
    all.set(JSON.stringify(session.params), session);
  }
  return [...all.values()];
}

/** One of several sessions that failed unchanged, and why. */
export interface FailedOne {
  readonly operand: string;
  readonly error: CommandError;
  readonly sentence: string;
}

/** The result for a single session, or what became of each of several. `left`: how many Ctrl+C left as they were. */
export type EachResult<One> = One | { readonly results: readonly (One | FailedOne)[]; readonly left?: number };

/**
 * Returns the result for a single session. For several, each has its result or its error, and a failure does not stop
 * the others, but Ctrl+C does. The changes to all of them are one operation, whose id is that of the first.
 */
export async function doEach<Of extends { readonly operand: string }, One extends { readonly operationId?: string }>(
  asking: VerbContext,
  sessions: readonly Of[],
  act: (session: Of, group: string | undefined) => Promise<One>,
): Promise<EachResult<One>> {
  if (sessions.length === 1) return act(sessions[0], undefined);
  const results: (One | FailedOne)[] = [];
  let group: string | undefined;
  for (const session of sessions) {
    if (asking.isInterrupted) return { results, left: sessions.length - results.length };
    try {
      const result = await act(session, group);
      group ??= result.operationId;
      results.push(result);
    } catch (error) {
      if (!(error instanceof CommandFailed)) throw error;
      results.push({ operand: session.operand, error: error.error, sentence: error.message });
    }
  }
  return { results };
}

/** Returns the facts about a session that a person saw in a list, as conditions of the move. */
export function expectUnchangedSince({ modified, messageCount }: Pick<Listed, "modified" | "messageCount">) {
  return { modified: formatTime(modified), messageCount };
}

// --- the sessions of a list --------------------------------------------------------------------------------------------

/** Sessions that are shown before a question about them; of more, --dry-run shows all. */
const MOST_SHOWN = 20;

/** Options of a verb that takes the sessions of a list in place of named ones. */
export const CHOOSING_FLAGS: Readonly<Record<string, Flag>> = {
  "--until": { value: "time", meaning: "choose the sessions without a message since this time, such as 90d or 3mo" },
  "--cwd": { ...CWD_FLAG, meaning: "choose the sessions of this working directory; without one, of the current one" },
  "--dry-run": { meaning: "show the chosen sessions and change nothing" },
};

/** Returns the sessions that the options choose; undefined if none of them is given. Throws UsageError. */
export async function findChosenSessions(
  asking: VerbContext,
  { operands, flags }: VerbArguments,
): Promise<readonly ListedSession[] | undefined> {
  const of = flags.get("--cwd");
  if (!flags.has("--until") && of === undefined) {
    if (flags.has("--dry-run")) throw new UsageError("--dry-run goes with --until or --cwd.");
    return undefined;
  }
  if (operands.length > 0) throw new UsageError(`Name sessions, or choose them by --until and --cwd, not both.`);
  const cwd = of === undefined ? undefined : toAbsolutePath(of, asking.cwd);
  const until = parseAgeFlag(flags, "--until", asking);
  const { sessions } = await asking.ask("list_sessions", { until, cwd, holders: true });
  if (cwd !== undefined && sessions.length === 0) await hintAtDirectory(asking, cwd);
  return sessions;
}

/** A listed session, and the words for it. */
interface ChosenSession {
  readonly operand: string;
  /** Params that change a session only if nothing was said in it since it was listed. */
  readonly params: {
    readonly sessionPath: string;
    readonly expected: Pick<ListedSession, "modified" | "messageCount">;
  };
  readonly session: ListedSession;
}

/** The sessions that would be changed, as --dry-run shows them. */
export interface WouldChange {
  readonly sessions: readonly ListedSession[];
}

/** Shows the sessions and asks, unless the options say otherwise; then acts on each of them. Throws cancelled, UsageError. */
export async function doEachListed<One extends { readonly operationId?: string }>(
  asking: VerbContext,
  { flags }: VerbArguments,
  sessions: readonly ListedSession[],
  { ask, refused }: { readonly ask: (what: string) => string; readonly refused: string },
  act: (chosen: ChosenSession, group: string | undefined) => Promise<One>,
): Promise<EachResult<One> | WouldChange> {
  if (flags.has("--dry-run") || sessions.length === 0) return { sessions };
  if (!flags.has("--yes")) {
    const shown = formatSessionTable(sessions.slice(0, MOST_SHOWN), sessions.length, asking.page());
    const what = sessions.length === 1 ? "this session" : `these ${sessions.length} sessions`;
    await requireYes(asking, `${[...shown].join("\n")}\n${ask(what)}`, {
      alone: "There is no terminal to ask on. Use --yes, or --dry-run to see the sessions.",
      refused,
    });
  }
  const chosen = sessions.map((session): ChosenSession => {
    const { sessionId, shortId = sessionId, sessionPath, modified, messageCount } = session;
    return { operand: shortId, params: { sessionPath, expected: { modified, messageCount } }, session };
  });
  return doEach(asking, chosen, act);
}

interface EachWords<One> {
  readonly none?: string;
  readonly would: string;
  readonly did: (done: readonly One[]) => string;
}

/** Returns the lines about the sessions of a list: what would be done with them, or the number that it was done with. */
export function formatEachListed<One extends object>(
  result: EachResult<One> | WouldChange,
  { none = "There are no such sessions.", would, did }: EachWords<One>,
  page: OutputStyle,
): string[] {
  if ("sessions" in result) {
    const { sessions } = result;
    if (sessions.length === 0) return [none];
    const end = `${count(sessions.length, "session", "sessions")} would ${would}.`;
    return [...formatSessionTable(sessions, sessions.length, page), end];
  }
  const results = toResults(result);
  const failed = results.filter(isFailed);
  const done = results.filter((one): one is One => !isFailed(one));
  return [
    ...failed.map(({ operand, sentence }) => show`${operand}: ${sentence}`),
    ...(failed.length > 0 ? [`${count(failed.length, "session is", "sessions are")} as before.`] : []),
    ...describeLeft(result),
    ...(done.length > 0 ? [did(done)] : []),
  ];
}

/** Returns the line about the sessions that Ctrl+C left as they were. */
function describeLeft(result: object): string[] {
  const { left = 0 } = result as { left?: number };
  return left === 0 ? [] : [`Ctrl+C ended it early: ${count(left, "session is", "sessions are")} as before.`];
}

/** Returns the printing and the status of such a verb, from the lines about one session. */
export function printEach<One extends object>(
  linesOf: (result: One, page: OutputStyle) => string[],
): Required<Pick<Verb<EachResult<One>>, "print" | "status">> {
  return {
    print: (result, _given, page) => [
      ...toResults(result).flatMap((one) =>
        isFailed(one) ? [show`${one.operand}: ${one.sentence}`] : linesOf(one, page),
      ),
      ...describeLeft(result),
    ],
    status: getEachStatus,
  };
}

/** Returns the exit status of a change to each of several sessions. */
export function getEachStatus(result: EachResult<object> | WouldChange): number {
  if ("sessions" in result) return OK;
  if ("left" in result) return INTERRUPTED;
  return toResults(result).some(isFailed) ? FAILURE : OK;
}

/** Returns the results of all sessions, where the result of a single one stands alone. */
function toResults<One extends object>(result: EachResult<One>): readonly (One | FailedOne)[] {
  return "results" in result ? result.results : [result];
}

/** Returns true if the session failed unchanged. */
export function isFailed(one: object): one is FailedOne {
  return "error" in one;
}
