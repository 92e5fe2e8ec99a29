/** Finds our sessions that a person names: by an id, by the beginning of one, or by name. */

import { Failure } from "../failure.ts";
import type { Catalog, Listed, Progress } from "../ports/catalog.ts";
import { formatTime } from "./listing.ts";

/** Characters of an id that name a session which is moved or deleted; with fewer, a slip of the hand names another. */
export const LEAST_OF_ID = 4;
/** Sessions that are listed at most when several fit. */
const MOST_LISTED = 10;

/** The sessions that are looked at first; the others count when none of these fits. */
export type Preferred = "listed" | "archived" | "both";

/** Kinds of names: whole ids; these and their beginnings; these and session names. */
export type Naming = "whole" | "id" | "name";

/** Returns whether a word names a session by its path. */
export function isPath(word: string): boolean {
  return /[/\\]|\.(jsonl?|v2|sqlite)$/.test(word);
}

/** Returns our sessions that a word names, archived or not. */
export async function findOurSessions(
  catalog: Pick<Catalog, "list">,
  word: string,
  preferred: Preferred,
  progress?: Progress,
): Promise<readonly Listed[]> {
  const listed = await catalog.list({ headerOnly: true }, progress);
  const archived = await catalog.list({ headerOnly: true, archived: true }, progress);
  return filterByName([...listed.found, ...archived.found], word, preferred, "name");
}

/** Returns the sessions with an id, else those with an id that begins so, else those with this name. */
export function filterByName(
  sessions: readonly Listed[],
  word: string,
  preferred: Preferred,
  by: Naming,
): readonly Listed[] {
  const text = word.trim();
  if (text === "") return [];
  const ways: readonly [Naming, (listed: Listed) => boolean][] = [
    ["whole", ({ id }) => id === word],
    ["id", ({ id }) => id.startsWith(word)],
    ["name", ({ name }) => name?.trim() === text],
  ];
  for (const [naming, way] of ways) {
    const found = sessions.filter(way);
    const first = found.filter(({ archived }) => preferred === "both" || archived === (preferred === "archived"));
    if (found.length > 0) return first.length > 0 ? first : found;
    if (naming === by) break;
  }
  return [];
}

/** Returns the session that all of these are. Throws ambiguous_id, with the sessions as candidates. */
export function requireOneSession(found: readonly Listed[], word: string): Listed {
  if (found.every(({ id }) => id === found[0].id)) return found[0];
  const isId = found[0].id.startsWith(word);
  const sentence = isId
    ? `${found.length} sessions have an id that begins with ${word}. Give more of it.`
    : `${found.length} sessions have the name ${word}. Use the beginning of the id.`;
  const candidates = found.slice(0, MOST_LISTED).map(({ id, path, name, firstMessage, cwd, modified }) => ({
    sessionId: id,
    sessionPath: path,
    name,
    firstMessage,
    cwd,
    modified: formatTime(modified),
  }));
  throw new Failure("ambiguous_id", sentence, { sessionId: word, matches: found.length, candidates });
}
