/** Parts of the answers of several tools: the first line, the line of a session, cursors, and the caller's own session. */

import type { RecallSession, ToolFace } from "../../server/recall-module.ts";
import { type Library, nameOf, type SessionList } from "./library.ts";
import { CallMistake, readTime, type ToolArguments } from "./params.ts";
import type { Redaction } from "./redaction.ts";
import { quote, toInline } from "./texts.ts";

/** A call of a tool, whose arguments were checked. */
export interface RecallCall {
  readonly library: Library;
  readonly args: ToolArguments;
  /** That of the answer: the same secret has the same number in it. */
  readonly redaction: Redaction;
}

export interface Tool extends ToolFace {
  run(call: RecallCall): Promise<string>;
}

/** Milliseconds without a change after which a session is not the caller's. */
const STILL_LIVE = 10 * 60_000;
const DAY = 86_400_000;
/** Sessions that may be the caller's. */
const LATEST = 30;

export function formatDay(time: string | number | null | undefined): string {
  if (time === null || time === undefined) return "no date";
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return "no date";
  const two = (value: number): string => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

export function countOf(n: number, one: string, many = `${one}s`): string {
  return `${String(n).replace(/\B(?=(\d{3})+$)/g, ",")} ${n === 1 ? one : many}`;
}

/** Returns a directory as people write it. */
export function formatFolder(cwd: string | null, home: string | undefined, redaction: Redaction): string {
  if (cwd === null || cwd === "") return "no directory";
  const near = home !== undefined && (cwd === home || cwd.startsWith(`${home}/`)) ? `~${cwd.slice(home.length)}` : cwd;
  return toInline(redaction.text(near), 80);
}

/** Returns the name of a session, or the beginning of what was said first in it. */
export function formatTitle(
  { name, firstMessage }: Pick<RecallSession, "name" | "firstMessage">,
  redaction: Redaction,
  most = 70,
): string {
  if (name) return quote(redaction.text(name), most);
  if (!firstMessage) return "untitled";
  return quote(redaction.text(firstMessage, firstMessage.length >= 100), most);
}

/** Returns a session on one line. */
export function formatSession(
  listed: RecallSession,
  library: Library,
  redaction: Redaction,
  marks: readonly string[] = [],
): string {
  const { shortId, agent = "pi", modified, messageCount, cost, cwd, lockedBy, archived } = listed;
  const parts = [
    shortId,
    agent,
    formatDay(modified),
    formatFolder(cwd, library.world.home, redaction),
    countOf(messageCount, "message"),
    ...(cost ? [`$${cost.toFixed(2)}`] : []),
    ...(lockedBy ? [`live, held by ${toInline(lockedBy.client, 40)}`] : []),
    ...(archived ? ["archived"] : []),
    ...marks,
    formatTitle(listed, redaction),
  ];
  return parts.join(" · ");
}

/** Facts of the first line of an answer. */
export interface Scope {
  readonly matching: number;
  readonly total?: number;
  readonly lists: readonly Pick<SessionList, "behind" | "notRead">[];
  readonly leftOut?: readonly string[];
  readonly perhapsOwn?: string;
}

/** Returns the first line of an answer: what was searched, how current it is, and what was left out and why. */
export function formatHead(library: Library, { matching, total, lists, leftOut = [], perhapsOwn }: Scope): string {
  const of = total !== undefined && total !== matching ? ` of ${total.toLocaleString("en-US")}` : "";
  const behind = Math.max(0, ...lists.map((list) => list.behind));
  const clock = new Date(library.world.now()).toTimeString().slice(0, 8);
  const notRead = [...new Set(lists.flatMap((list) => list.notRead))];
  const read =
    behind === 0
      ? `all read up to ${clock}`
      : `partial: ${countOf(behind, "session")} not yet read in full at ${clock}, so ask again before you conclude that something is missing`;
  return [
    matching === 1 && of === ""
      ? "1 session matches scope"
      : `${matching.toLocaleString("en-US")}${of} sessions match scope`,
    read,
    ...(notRead.length === 0 ? [] : [`not read: ${notRead.join(", ")}`]),
    ...(leftOut.length === 0 ? [] : [`left out: ${leftOut.join(", ")}`]),
    ...(perhapsOwn === undefined ? [] : [`${perhapsOwn} is perhaps this session`]),
    ...(library.world.excluded.length === 0 ? [] : ["folders that the person excluded are left out"]),
  ].join("; ");
}

/** The caller's own session: surely, because a process that started this one holds it, or perhaps. */
export interface OwnSession {
  readonly surely: readonly string[];
  readonly perhaps: readonly string[];
}

export async function findOwnSession(library: Library): Promise<OwnSession> {
  const { world } = library;
  const since = new Date(world.now() - DAY).toISOString();
  return chooseOwnSession(library, (await library.list({ since, limit: LATEST, holders: true })).sessions);
}

/** Returns the caller's own session with the count of all sessions, from one list. */
export async function findOwnAndCount(library: Library): Promise<{ own: OwnSession; all: SessionList }> {
  const all = await library.countLatest({ limit: LATEST, holders: true });
  const since = library.world.now() - DAY;
  const isLate = ({ modified }: RecallSession): boolean => modified !== null && Date.parse(modified) >= since;
  return { own: chooseOwnSession(library, all.sessions.filter(isLate)), all };
}

function chooseOwnSession({ world }: Library, sessions: readonly RecallSession[]): OwnSession {
  const ancestors = new Set(world.ancestors());
  const surely = sessions.filter(({ lockedBy }) => lockedBy && ancestors.has(lockedBy.pid));
  const isLive = ({ modified }: RecallSession): boolean =>
    modified !== null && world.now() - Date.parse(modified) < STILL_LIVE;
  const perhaps = surely.length > 0 ? [] : sessions.filter((one) => one.cwd === world.cwd && isLive(one)).slice(0, 1);
  return { surely: surely.map(({ sessionId }) => sessionId), perhaps: perhaps.map(({ sessionId }) => sessionId) };
}

/** Returns the params of lists and searches that the usual params of tools mean. */
export function readScope({ library, args }: RecallCall): Readonly<Record<string, unknown>> {
  const { world } = library;
  const { project, agents } = args as { project?: string; agents?: readonly string[] };
  const isAny = project === undefined || project === "all" || project === "";
  const home = world.home ?? "~";
  const named = (project ?? "").replace(/^~(?=$|[/\\])/, home);
  const cwd = isAny
    ? undefined
    : project === "here"
      ? world.cwd
      : /^(?:[/\\]|[A-Za-z]:)/.test(named)
        ? named
        : `${world.cwd}/${named}`;
  return {
    ...(agents === undefined ? {} : { agents }),
    ...(cwd === undefined ? {} : { cwd: cwd.length > 1 ? cwd.replace(/\/\.?$/, "") : cwd }),
    since: readTime("since", args.since, world.now()),
    until: readTime("until", args.until, world.now()),
  };
}

/** Returns the bytes that an answer may have for so many tokens. */
export function toBytesOf(tokens: unknown, usual: number): number {
  return (typeof tokens === "number" ? tokens : usual) * 4;
}

/** Returns a sentence about a failure, without paths or texts of sessions. */
export function explainFailure(error: unknown): string {
  if (error instanceof CallMistake) return error.message;
  const name = nameOf(error);
  if (name === "cursor_expired") return "The cursor has expired. Ask again without it.";
  if (name === "storage_failed" || name === "not_a_session" || name === "corrupt")
    return "The session cannot be read at this moment, or is damaged. The other sessions can be asked about.";
  if (name === "path_outside_root") return "The person who runs this server does not let it read there.";
  if (name === "session_not_found" || name === "entry_not_found")
    return "There is no such session or entry. Ask recent or find.";
  return `The call failed (${toInline(name, 40)}).`;
}
