/** Finds the sessions that a person names: by path, by id, by the beginning of an id, or by name. */

import { resolve } from "node:path";
import { Failure } from "../core/failure.ts";
import { AGENTS } from "../core/foreign/translators.ts";
import type { Listed } from "../core/ports/catalog.ts";
import { momentText } from "../core/search/listing.ts";
import { exists } from "../storage/fs/disk.ts";
import { type Asking, CommandFailed, type Result } from "./asking.ts";
import { isPath, UsageError } from "./options.ts";

/** Characters of an id that name a session which is moved or deleted; with fewer, a slip of the hand names another. */
export const LEAST_OF_ID = 4;
/** Sessions that are listed at most when several fit. */
const MOST_LISTED = 10;

/** A session as a command is told of it. */
export type SessionParams = { readonly sessionPath: string } | { readonly sessionId: string };

/** A session that was found by what a person typed. */
export interface NamedSession {
  readonly operand: string;
  readonly params: SessionParams;
  /** Its facts; undefined for one that was named by its path. */
  readonly listed?: Listed;
  /** Whether it was found by its name, which several can have and anybody can give. */
  readonly byName: boolean;
}

/** The sessions that are looked at first; the others count when none of these fits. */
export type Preferred = "listed" | "archived" | "both";

/** Treats operands with a separator or a session suffix as paths, others as ids or the beginnings of ids. */
export function named(operand: string): SessionParams {
  return isPath(operand) ? { sessionPath: operand } : { sessionId: operand };
}

/** Opens the session that an operand names, archived or not, and makes it the current one. */
export async function open(asking: Asking, operand: string): Promise<Result> {
  try {
    return await asking.ask("switch_session", named(operand));
  } catch (error) {
    if (!isUnknown(error)) throw error;
    const ours = fitting(await allSessions(asking), operand, "listed");
    const found = ours.length > 0 ? ours : fittingAgents(await sessionsOfAgents(asking), operand);
    if (found.length === 0) throw isNoId(error) ? unknownSession(operand) : error;
    return asking.ask("switch_session", { sessionPath: onlyOne(found, operand).path });
  }
}

/** Returns the session that an operand names. Throws session_not_found, ambiguous_id, UsageError. */
export async function sessionNamed(asking: Asking, operand: string, preferred: Preferred): Promise<NamedSession> {
  const params = named(operand);
  if ("sessionPath" in params) return { operand, params, byName: false };
  const found = fitting(await allSessions(asking), operand, preferred);
  if (found.length === 0) {
    const [other] = fittingAgents(await sessionsOfAgents(asking), operand);
    throw other ? notOurs(other) : unknownSession(operand);
  }
  const listed = onlyOne(found, operand);
  const byName = !listed.id.startsWith(operand);
  if (!byName && listed.id !== operand && operand.length < LEAST_OF_ID)
    throw new UsageError(`${operand} is too little of an id. Give at least ${LEAST_OF_ID} characters of it.`);
  // By its whole id, a session is also found after an interrupted move, which leaves two names of it.
  return { operand, params: { sessionId: listed.id }, listed, byName };
}

function isUnknown(error: unknown): boolean {
  return isNoId(error) || (error instanceof CommandFailed && error.error.data?.name === "session_not_found");
}

/** Whether an operand was refused because no id looks like it, as most names do not. */
function isNoId(error: unknown): boolean {
  return error instanceof CommandFailed && error.error.data?.name === "invalid_id";
}

function unknownSession(operand: string): Failure {
  const sentence = `No session has the id or the name ${operand}. list shows those that exist.`;
  return new Failure("session_not_found", sentence, { sessionId: operand });
}

/** Returns the failure of a change to a session that only another agent has. */
function notOurs({ id, agent, path }: Listed): Failure {
  const sentence = `The session ${id} is another agent's own file, which is only read. import ${id.slice(0, 8)} makes a session of yours of it.`;
  return new Failure("read_only", sentence, { agent, sessionPath: path });
}

/** Returns the path of another agent's session that an operand names; the operand itself where none has that name. */
export async function fileOf(asking: Asking, operand: string): Promise<string> {
  if (isPath(operand) || exists(asking.disk, resolve(asking.cwd, operand))) return operand;
  const found = fittingAgents(await sessionsOfAgents(asking), operand);
  return found.length === 0 ? operand : onlyOne(found, operand).path;
}

/** Returns every session that the catalog knows, the latest first. */
async function allSessions({ service, progress }: Asking): Promise<Listed[]> {
  const { catalog } = service;
  const report = (done: number, total: number): void => progress(done, total, "list_sessions");
  const listed = await catalog.list({ headerOnly: true }, report);
  const archived = await catalog.list({ headerOnly: true, archived: true }, report);
  return [...listed.found, ...archived.found];
}

/** Returns the sessions of other agents with an id or a name, or with an id of the agent's own in their file's name. */
function fittingAgents(sessions: readonly Listed[], operand: string): Listed[] {
  const found = fitting(sessions, operand, "listed");
  if (found.length > 0 || operand.length < LEAST_OF_ID) return found;
  return sessions.filter(({ path }) => (path.split(/[/\\]/).pop() ?? "").includes(operand));
}

/** Returns every session of other agents, the latest first. */
async function sessionsOfAgents({ service, progress }: Asking): Promise<readonly Listed[]> {
  const report = (done: number, total: number): void => progress(done, total, "list_sessions");
  const { found } = await service.catalog.list({ headerOnly: true, agents: AGENTS }, report);
  return found;
}

/** Returns the sessions with an id, else those with an id that begins so, else those with this name. */
function fitting(sessions: readonly Listed[], operand: string, preferred: Preferred): Listed[] {
  const isNamed = ({ name }: Listed): boolean => name?.trim() === operand.trim() && operand.trim() !== "";
  const ways: ((listed: Listed) => boolean)[] = [
    ({ id }) => id === operand,
    ({ id }) => operand !== "" && id.startsWith(operand),
    isNamed,
  ];
  for (const way of ways) {
    const found = sessions.filter(way);
    const first = found.filter(({ archived }) => preferred === "both" || archived === (preferred === "archived"));
    if (found.length > 0) return first.length > 0 ? first : found;
  }
  return [];
}

/** Returns the session that all of these are. Throws ambiguous_id, with the sessions as candidates. */
function onlyOne(found: readonly Listed[], operand: string): Listed {
  if (found.every(({ id }) => id === found[0].id)) return found[0];
  const isId = found[0].id.startsWith(operand);
  const sentence = isId
    ? `${found.length} sessions have an id that begins with ${operand}. Give more of it.`
    : `${found.length} sessions have the name ${operand}. Use the beginning of the id.`;
  const candidates = found.slice(0, MOST_LISTED).map(({ id, path, name, firstMessage, cwd, modified }) => ({
    sessionId: id,
    sessionPath: path,
    name,
    firstMessage,
    cwd,
    modified: momentText(modified),
  }));
  throw new Failure("ambiguous_id", sentence, { sessionId: operand, matches: found.length, candidates });
}
