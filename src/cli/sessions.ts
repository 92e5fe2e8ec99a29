/** Finds the sessions that a person names: by path, by id, by the beginning of an id, or by name. */

import { basename, resolve } from "node:path";
import { Failure } from "../core/failure.ts";
import { findAgentSessions } from "../core/foreign/named.ts";
import type { Listed } from "../core/ports/catalog.ts";
import type { Candidate } from "../core/ports/stores.ts";
import {
  findOurSessions,
  isIdBeginning,
  isNamed,
  isPath,
  LEAST_OF_ID,
  listCandidates,
  type Naming,
  type Preferred,
  requireOneSession,
} from "../core/search/named.ts";
import { exists } from "../storage/fs/disk.ts";
import type { AmbiguousSession } from "./candidates.ts";
import { quoteTitle, shortenId } from "./terminal/text.ts";
import { CommandFailed, type VerbContext } from "./verb-context.ts";

/** Columns of a title in a sentence. */
const TITLE = 40;

/** Params that name a session in a command. */
export type SessionParams = { readonly sessionPath: string } | { readonly sessionId: string };

/** A session that was found by what a person typed. */
export interface NamedSession {
  readonly operand: string;
  readonly params: SessionParams;
  /** Its facts; undefined for one that was named by its path. */
  readonly listed?: Listed;
  /** True if it was found by its name, which is free to choose, so that several sessions can have it. */
  readonly byName: boolean;
}

/** Treats operands with a separator or a session suffix as paths, others as ids or the beginnings of ids. */
export function toSessionParams(operand: string): SessionParams {
  return isPath(operand) ? { sessionPath: operand } : { sessionId: operand };
}

/** Opens the session that an operand names for a change: a word of a first message names none. */
export function openChangedSession(asking: VerbContext, operand: string) {
  return openNamedSession(asking, operand, "name");
}

/** Opens the session that an operand names, archived or not, and makes it the current one. */
export async function openNamedSession(asking: VerbContext, operand: string, by: Naming = "message") {
  const isShort = operand.length < LEAST_OF_ID && !isPath(operand);
  try {
    // The server takes any beginning of an id.
    if (isShort) throw unknownSession(operand);
    return await asking.ask("switch_session", toSessionParams(operand));
  } catch (error) {
    const copies = getCopies(error);
    if (copies !== undefined && by === "message") return openLatestCopy(asking, copies);
    // A fleet that is away may know an id; names are found here.
    if (!isUnknown(error) && !isOfFleet(error)) throw error;
    const own = await ours(asking, operand, "listed", by);
    const found = own.length > 0 ? own : await theirs(asking, operand, by);
    if (found.length === 0) throw isUnknown(error) && !isPath(operand) ? await unknownTo(asking, operand, by) : error;
    const chosen = chosenOf(asking, found, operand);
    const { candidates, matches } = listCandidates(found, operand);
    if (found.every(({ path }) => path === chosen.path))
      return asking.ask("switch_session", { sessionPath: chosen.path });
    if (by === "message") return openLatestCopy(asking, candidates);
    const sentence = `${matches} sessions have the id ${chosen.id}. Name the one you mean by its path.`;
    throw new Failure("ambiguous_id", sentence, { sessionId: operand, matches, candidates });
  }
}

/** Returns the session that an operand names. Throws session_not_found, ambiguous_id. */
export async function findNamedSession(
  asking: VerbContext,
  operand: string,
  preferred: Preferred,
): Promise<NamedSession> {
  const params = toSessionParams(operand);
  if ("sessionPath" in params) return { operand, params, byName: false };
  const found = await ours(asking, operand, preferred, "name");
  if (found.length === 0) {
    const [other] = await theirs(asking, operand, "name");
    throw other ? notOurs(other) : await unknownTo(asking, operand, "name");
  }
  const listed = chosenOf(asking, found, operand);
  const byName = !isIdBeginning(listed.id, operand);
  // By its whole id, a session is also found after an interrupted move, which leaves two names of it. A file whose name has
  // another id is found by its path alone; of several files with one id, the server takes none.
  const isOne = found.every(({ id, path }) => id !== listed.id || path === listed.path);
  const byPath = isOne && !basename(listed.path).includes(listed.id);
  return { operand, params: byPath ? { sessionPath: listed.path } : { sessionId: listed.id }, listed, byName };
}

/**
 * Returns the params of a session that an operand names; also of one that is deleted, if that is named by its path or
 * the beginning of its id.
 */
export async function findRecordedSession(asking: VerbContext, operand: string): Promise<SessionParams> {
  const params = toSessionParams(operand);
  const found = "sessionPath" in params ? [] : await ours(asking, operand, "both", "name");
  return found.length === 0 ? params : { sessionId: chosenOf(asking, found, operand).id };
}

/** Returns the session that an operand names; by a part of its name, the person is shown which. */
function chosenOf({ say }: VerbContext, found: readonly Listed[], operand: string): Listed {
  const listed = requireOneSession(found, operand);
  const { id } = listed;
  if (!isIdBeginning(id, operand) && !isNamed(listed, operand))
    say(`${operand} is ${quoteTitle(listed, TITLE)} (${shortenId(id)}).`);
  return listed;
}

/** Returns the files of a failure about files with one id; undefined for any other failure. */
function getCopies(error: unknown): readonly Candidate[] | undefined {
  if (!(error instanceof CommandFailed) || error.error.data?.name !== "ambiguous_id") return undefined;
  const { candidates = [], matches } = error.error.data as AmbiguousSession;
  const isOne =
    candidates.length === matches && candidates.every(({ sessionId: id }) => id === candidates[0].sessionId);
  return isOne ? candidates : undefined;
}

/** Opens the one of several files with one id that has the latest message; of equal ones, the one that is named by the id. */
function openLatestCopy({ ask, say }: VerbContext, copies: readonly Candidate[]) {
  const keyOf = ({ sessionId, sessionPath, modified }: Candidate): string =>
    `${modified ?? ""} ${basename(sessionPath).includes(sessionId) ? 1 : 0}`;
  const [{ sessionId, sessionPath }] = copies.toSorted((a, b) => (keyOf(a) < keyOf(b) ? 1 : -1));
  say(`${copies.length} files have the id ${sessionId}; this is the one with the latest message, ${sessionPath}.`);
  return ask("switch_session", { sessionPath });
}

function isUnknown(error: unknown): boolean {
  if (error instanceof Failure) return error.name === "session_not_found";
  return isNoId(error) || (error instanceof CommandFailed && error.error.data?.name === "session_not_found");
}

function isOfFleet(error: unknown): boolean {
  return error instanceof CommandFailed && error.error.data?.fleet === true;
}

/** Returns true if an operand was refused because no id has its form, as is the case for most names. */
function isNoId(error: unknown): boolean {
  return error instanceof CommandFailed && error.error.data?.name === "invalid_id";
}

function unknownSession(operand: string): Failure {
  if (operand.trim() === "")
    return new Failure(
      "session_not_found",
      "The name of the session is empty. list_sessions shows those that exist.",
      {},
    );
  const sentence = `No session has the id ${operand}, or that in its name. ${
    operand.length < LEAST_OF_ID ? `Give at least ${LEAST_OF_ID} characters of an id. ` : ""
  }list_sessions shows those that exist. search_sessions finds words in them.`;
  return new Failure("session_not_found", sentence, { sessionId: operand });
}

/** Returns the failure of a word that names no session so; a change is told which ones have it in their first message. */
async function unknownTo(asking: VerbContext, operand: string, by: Naming): Promise<Failure> {
  const found = by === "message" ? [] : await ours(asking, operand, "listed", "message");
  if (found.length === 0) return unknownSession(operand);
  const sentence = `No session has the id ${operand}, or that in its name. A change takes a session without a name by its id:`;
  return new Failure("session_not_found", sentence, listCandidates(found, operand));
}

/** Returns the failure of a change to a session that only another agent has. */
function notOurs({ id, agent, path }: Listed): Failure {
  const sentence = `The session ${id} is another agent's own file, which this program only reads. import ${id.slice(0, 8)} copies it into a session of yours.`;
  return new Failure("read_only", sentence, { agent, sessionPath: path });
}

/** Returns the path of another agent's session that an operand names; the operand itself where none has that name. */
export async function findAgentFile(asking: VerbContext, operand: string): Promise<string> {
  if (isPath(operand) || exists(asking.disk, resolve(asking.cwd, operand))) return operand;
  const found = await theirs(asking, operand, "message");
  return found.length === 0 ? operand : requireOneSession(found, operand).path;
}

/** Returns our sessions that an operand names. */
function ours(
  { service, progress }: VerbContext,
  operand: string,
  preferred: Preferred,
  by: Naming,
): Promise<readonly Listed[]> {
  return findOurSessions(service.catalog, operand, preferred, by, (done, total) =>
    progress(done, total, "list_sessions"),
  );
}

/** Returns the sessions of other agents that an operand names. */
function theirs({ service, progress }: VerbContext, operand: string, by: Naming): Promise<readonly Listed[]> {
  const report = (done: number, total: number): void => progress(done, total, "list_sessions");
  return findAgentSessions(service.catalog, operand, { by, progress: report, sha256: service.sha256 });
}
