/** Verbs that do the same with each of several sessions. */

import { basename } from "node:path";
import { Failure } from "../core/failure.ts";
import { formatTime } from "../core/search/listing.ts";
import { isNamed, type Preferred } from "../core/search/named.ts";
import { toAbsolutePath } from "../storage/fs/paths.ts";
import { requireYes } from "./confirmed.ts";
import { hintAtDirectory } from "./directory-hint.ts";
import { INTERRUPTED } from "./interrupts.ts";
import { CWD_FLAG, type Flag, UsageError } from "./options.ts";
import { findNamedSession, type NamedSession, type SessionParams } from "./sessions.ts";
import type { OutputStyle } from "./terminal/page.ts";
import { count, formatAge, quoteTitle, shortenPath, show } from "./terminal/text.ts";
import { parseAgeFlag } from "./time-parser.ts";
import { defineVerb, FAILURE, OK, type Verb } from "./verb.ts";
import { type CommandError, CommandFailed, type VerbArguments, type VerbContext } from "./verb-context.ts";
import { formatSessionTable, type ListedSession, parseChoice } from "./verbs/list.ts";

/** Finds the sessions of all operands, before anything is done with the first. Throws as `sessionNamed`. */
async function findNamedSessions(
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

// --- the sessions of a list --------------------------------------------------------------------------------------------

/** Sessions that are shown before a question about them; of more, --dry-run shows all. */
const MOST_SHOWN = 20;

/** Options of a verb that choose the sessions of a list in place of named ones. */
const CHOOSING_FLAGS: Readonly<Record<string, Flag>> = {
  "--query": { value: "words", meaning: "choose the sessions that list finds with these words" },
  "--cwd": { ...CWD_FLAG, meaning: "choose the sessions of this working directory; without one, of the current one" },
  "--since": { value: "time", meaning: "choose the sessions with a message since, such as 2d or yesterday" },
  "--until": { value: "time", meaning: "choose the sessions without a message since this time, such as 90d or 3mo" },
};

/** Returns the sessions that the options choose; undefined if none of them is given. Throws UsageError. */
async function findChosenSessions(
  asking: VerbContext,
  { operands, flags }: VerbArguments,
  archived: true | undefined,
): Promise<readonly ListedSession[] | undefined> {
  if (!Object.keys(CHOOSING_FLAGS).some((name) => flags.has(name))) return undefined;
  parseAgeFlag(flags, "--until", asking);
  if (operands.length > 0) throw new UsageError("Name sessions, or choose them by options, not both.");
  const choice = parseChoice(asking, flags);
  // Without words, it would be every session.
  if (choice.query?.trim() === "") throw new UsageError("--query needs words.");
  const { sessions } = await asking.ask("list_sessions", { ...choice, archived, holders: true });
  if (choice.cwd !== undefined && sessions.length === 0) await hintAtDirectory(asking, choice.cwd, archived);
  return sessions;
}

/** Returns named sessions as a list has them. Throws session_not_found, also for a file that no list has. */
async function listNamedSessions(
  { ask, cwd }: VerbContext,
  named: readonly NamedSession[],
): Promise<readonly ListedSession[]> {
  const list = async (archived?: true) => (await ask("list_sessions", { archived, headerOnly: true })).sessions;
  const sessions = [...(await list()), ...(await list(true))];
  return named.map(({ operand, params }) => {
    const path = "sessionPath" in params ? toAbsolutePath(params.sessionPath, cwd) : undefined;
    const found = sessions.find((one) =>
      "sessionPath" in params ? one.sessionPath === path : one.sessionId === params.sessionId,
    );
    if (found) return found;
    throw new Failure("session_not_found", `No session is listed at ${operand}. list --all shows those that exist.`);
  });
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
  { ask, refused }: { readonly ask: (what: string) => string | Promise<string>; readonly refused: string },
  act: (chosen: ChosenSession, group: string | undefined) => Promise<One>,
): Promise<EachResult<One> | WouldChange> {
  if (flags.has("--dry-run") || sessions.length === 0) return { sessions };
  if (!flags.has("--yes")) {
    const shown = formatSessionTable(sessions.slice(0, MOST_SHOWN), sessions.length, asking.page());
    const what = sessions.length === 1 ? "this session" : `these ${sessions.length} sessions`;
    await requireYes(asking, `${[...shown].join("\n")}\n${await ask(what)}`, {
      alone: "There is no terminal to ask on. Use --yes, or --dry-run to see the sessions.",
      refused,
    });
  }
  const chosen = sessions.map((session): ChosenSession => {
    const { sessionId, shortId = sessionId, sessionPath, modified, messageCount } = session;
    return { operand: shortId, params: { sessionPath, expected: { modified, messageCount } }, session };
  });
  return doEach(asking, chosen, (one, group) => changeSeen(act(one, group)));
}

/** Returns the result of a change to a session that the person has seen. Throws CommandFailed, also if it is gone since. */
async function changeSeen<One>(change: Promise<One>): Promise<One> {
  try {
    return await change;
  } catch (error) {
    if (!(error instanceof CommandFailed) || !isGone(error)) throw error;
    const message =
      "It is not in its place any more: another program moved or deleted it meanwhile. list_operations may say which.";
    throw new CommandFailed({ ...error.error, message });
  }
}

/** Returns true if there is no session where it was listed. */
function isGone({ error }: { readonly error: CommandError }): boolean {
  return error.data?.name === "session_not_found";
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
  const failed = results.filter(isFailed).filter((one) => !isGone(one));
  const done = results.filter((one): one is One => !isFailed(one));
  return [
    ...formatFailures(result),
    ...(failed.length > 0 ? [`${count(failed.length, "session is", "sessions are")} as before.`] : []),
    ...(done.length > 0 ? [did(done)] : []),
  ];
}

/** Returns the lines about the sessions that failed, and about those that Ctrl+C left as they were. */
export function formatFailures(result: EachResult<object>): string[] {
  const { left = 0 } = result as { left?: number };
  const failed = toResults(result).filter(isFailed);
  return [
    ...failed.map(({ operand, sentence }) =>
      // Of a file, most sentences have the path.
      sentence.includes(`/${basename(operand)}`) ? show`${sentence}` : show`${operand}: ${sentence}`,
    ),
    ...(left === 0 ? [] : [`Ctrl+C ended it early: ${count(left, "session is", "sessions are")} as before.`]),
  ];
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

// --- verbs that move sessions -------------------------------------------------------------------------------------------

/** Columns of a name in a question. */
const NAME = 40;

/** Params of a change to one of several sessions, which fails if the session was continued since the person saw it. */
type ChangeParams = SessionParams & {
  readonly group?: string;
  readonly expected?: Pick<ListedSession, "modified" | "messageCount">;
};

/** A change to named or chosen sessions. */
interface BulkChange<One> extends Pick<EachWords<One>, "would" | "did"> {
  readonly preferred: Preferred;
  /** True if it asks about a single named session, too, and a part of a name is not enough for --yes. */
  readonly isCareful?: true;
  /** Returns the question with the word for the sessions: "Archive these 2 sessions?". */
  ask(what: string, asking: VerbContext, given: VerbArguments): string | Promise<string>;
  readonly refused: string;
  act(asking: VerbContext, params: ChangeParams, given: VerbArguments): Promise<One>;
  /** Returns the lines about a single named session. */
  one(result: One, page: OutputStyle): string[];
}

/** Returns a verb that changes the sessions that a person names, or chooses as `list` does. */
export function defineBulkVerb<One extends { readonly operationId?: string }>(
  verb: Pick<Verb, "name" | "aliases" | "meaning" | "more" | "onInterrupt" | "flags">,
  { preferred, isCareful, ask, refused, act, one, would, did }: BulkChange<One>,
): Verb<EachResult<One> | WouldChange> {
  return defineVerb<EachResult<One> | WouldChange>({
    ...verb,
    operands: ["<session...>"],
    replacesOperands: Object.keys(CHOOSING_FLAGS),
    flags: {
      ...CHOOSING_FLAGS,
      "--dry-run": { meaning: "show the sessions and change nothing" },
      "--yes": { meaning: "do not ask; required without a terminal" },
      ...verb.flags,
    },
    async run(asking, given) {
      const chosen = await findChosenSessions(asking, given, preferred === "archived" ? true : undefined);
      if (chosen !== undefined) {
        const words = { ask: (what: string) => ask(what, asking, given), refused };
        return doEachListed(asking, given, chosen, words, ({ params }, group) =>
          act(asking, { ...params, group }, given),
        );
      }
      const sessions = await findNamedSessions(asking, given, preferred);
      if (given.flags.has("--dry-run")) return { sessions: await listNamedSessions(asking, sessions) };
      const isSure = given.flags.has("--yes");
      if (isSure && isCareful) requireWholeNames(verb.name, sessions);
      const isAsked = !isSure && (isCareful === true || sessions.length > 1);
      if (isAsked) {
        const shown = await describeNamed(asking, sessions);
        const isOne = sessions.length === 1;
        const question = await ask(isOne ? shown[0] : `these ${sessions.length} sessions`, asking, given);
        await requireYes(asking, isOne ? question : `${shown.map((line) => `  ${line}\n`).join("")}${question}`, {
          alone: `${verb.name} asks first, and there is no terminal to ask on. Use --yes.`,
          refused,
        });
      }
      return doEach(asking, sessions, ({ params, listed }, group) => {
        const seen = isAsked && listed;
        const expected = seen ? { modified: formatTime(seen.modified), messageCount: seen.messageCount } : undefined;
        const change = act(asking, { ...params, group, expected }, given);
        return seen ? changeSeen(change) : change;
      });
    },
    print(result, { operands }, page) {
      if (operands.length === 0 || "sessions" in result || "results" in result)
        return formatEachListed(result, { would, did }, page);
      return one(result, page);
    },
    status: getEachStatus,
  });
}

/** Throws UsageError if no person is asked and an operand is a part of a name, which may mean another session. */
function requireWholeNames(verb: string, sessions: readonly NamedSession[]): void {
  const inPart = sessions.find(({ byName, listed, operand }) => byName && listed && !isNamed(listed, operand));
  if (inPart === undefined) return;
  const { operand, listed } = inPart;
  throw new UsageError(
    `With --yes, ${verb} takes an id, a path or a whole name; ${operand} is a part of one, and the id is ${listed?.id}.`,
  );
}

/** Returns a line about each of the first named sessions, and one about the number of the others. */
async function describeNamed(asking: VerbContext, sessions: readonly NamedSession[]): Promise<string[]> {
  const page = asking.page();
  const lines: string[] = [];
  for (const session of sessions.slice(0, MOST_SHOWN)) lines.push(await describe(asking, session, page));
  const more = sessions.length - lines.length;
  return more > 0 ? [...lines, `and ${count(more, "more session", "more sessions")}`] : lines;
}

/** Returns the name of a session, how much was said in it, and where and when. */
async function describe(asking: VerbContext, session: NamedSession, page: OutputStyle): Promise<string> {
  const { operand, listed } = session;
  const said = listed ?? (await factsAt(asking, operand));
  if (said === undefined) return show`${operand}`;
  const { name, firstMessage, messageCount, cwd, modified } = said;
  return [
    name || firstMessage ? quoteTitle(said, NAME) : show`${operand}`,
    count(messageCount, "message", "messages"),
    ...(cwd ? [shortenPath(cwd, page.home)] : []),
    ...(modified === null ? [] : [formatAge(page.now - modified)]),
  ].join(", ");
}

type SaidFacts = Pick<
  NonNullable<NamedSession["listed"]>,
  "name" | "firstMessage" | "messageCount" | "cwd" | "modified"
>;

/** Returns the known facts about a session that was named by its path; undefined if it cannot be opened. */
async function factsAt({ ask }: VerbContext, sessionPath: string): Promise<SaidFacts | undefined> {
  try {
    const { sessionId } = await ask("open_session", { sessionPath, readOnly: true });
    const { sessionName: name, cwd } = await ask("get_state", { sessionId });
    const { totalMessages: messageCount } = await ask("get_session_stats", { sessionId });
    const { messages } = await ask("get_fork_messages", { sessionId, limit: 1 });
    await ask("close_session", { sessionId });
    return { name, firstMessage: messages[0]?.text ?? null, messageCount, cwd, modified: null };
  } catch (error) {
    if (!(error instanceof CommandFailed)) throw error;
    return undefined;
  }
}
