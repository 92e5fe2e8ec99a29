/** Finds our sessions that a person names: by an id, by the beginning of one, or by name. */

import { Failure } from "../failure.ts";
import { toBytes } from "../json/json.ts";
import type { Catalog, Listed, Progress } from "../ports/catalog.ts";
import { formatTime } from "./listing.ts";
import { fold as foldCase } from "./query.ts";

/** Characters of the beginning of an id; with fewer, a word of a sentence or a slip of the hand names a session. */
export const LEAST_OF_ID = 4;
/** Bytes of a part of a name. */
const LEAST_OF_NAME = 3;
/** Characters of a first message that stand for the name of a session without one. */
const TITLE = 100;
/** Sessions that are listed at most when several fit. */
const MOST_LISTED = 10;

/** The sessions that are looked at first; the others count when none of these fits. */
export type Preferred = "listed" | "archived" | "both";

/**
 * Kinds of names: whole ids; these and their beginnings; these and whole session names; these and parts of them; these
 * and, of sessions without a name, parts of first messages.
 */
export type Naming = "whole" | "id" | "wholeName" | "name" | "message";

/** The ways to find a session for each kind of name, in their order. */
const WAYS: Readonly<Record<Naming, number>> = { whole: 1, id: 2, wholeName: 3, name: 5, message: 5 };

/** Returns whether a word names a session by its path. */
export function isPath(word: string): boolean {
  return /[/\\]|\.(jsonl?|v2|sqlite)$/.test(word);
}

/** Returns our sessions that a word names, archived or not. */
export async function findOurSessions(
  catalog: Pick<Catalog, "list">,
  word: string,
  preferred: Preferred,
  by: Naming,
  progress?: Progress,
): Promise<readonly Listed[]> {
  const listed = await catalog.list({ headerOnly: true }, progress);
  const archived = await catalog.list({ headerOnly: true, archived: true }, progress);
  return filterByName([...listed.found, ...archived.found], word, preferred, by);
}

/**
 * Returns the sessions with an id, else those with an id that begins so, else those with this name, also in another case,
 * else those with the word in their name or, by the message, without a name in their first message.
 */
export function filterByName<One extends Pick<Listed, "id" | "name" | "firstMessage" | "archived">>(
  sessions: readonly One[],
  word: string,
  preferred: Preferred,
  by: Naming,
): readonly One[] {
  const text = word.trim();
  if (text === "") return [];
  const folded = fold(text);
  const isLong = toBytes(folded).length >= LEAST_OF_NAME;
  const byMessage = by === "message";
  const ways: readonly ((listed: One) => boolean)[] = [
    ({ id }) => id === word,
    ({ id }) => isIdBeginning(id, word),
    (listed) => isNamed(listed, text),
    ({ name }) => fold(name?.trim() ?? "") === folded,
    ({ name, firstMessage }) =>
      isLong && fold(name ?? (byMessage ? firstMessage?.slice(0, TITLE) : "") ?? "").includes(folded),
  ];
  for (const way of ways.slice(0, WAYS[by])) {
    const found = sessions.filter(way);
    const first = found.filter(({ archived }) => preferred === "both" || archived === (preferred === "archived"));
    if (found.length > 0) return first.length > 0 ? first : found;
  }
  return [];
}

/** Returns a name as it is compared: in any case, and with one space between its words, as lists show it. */
function fold(name: string): string {
  return foldCase(joinWords(name));
}

function joinWords(name: string): string {
  return name.trim().replace(/\s+/g, " ");
}

/** Returns whether a word is an id or names it by its beginning, also in capitals. */
export function isIdBeginning(id: string, word: string): boolean {
  return id === word || (word.length >= LEAST_OF_ID && id.toLowerCase().startsWith(word.toLowerCase()));
}

/** Returns whether a word is the name of a session as it stands. */
export function isNamed({ name }: Pick<Listed, "name">, word: string): boolean {
  return name !== null && joinWords(name) === joinWords(word);
}

/** Returns what several sessions have in common that a word names, and what distinguishes them. */
export function describeShared(found: readonly Pick<Listed, "id" | "name">[], word: string): string {
  if (isIdBeginning(found[0].id, word)) return `an id that begins with ${word}. Give more of it.`;
  if (found.every((one) => isNamed(one, word))) return `the name ${word}. Use the beginning of the id.`;
  const unnamed = found.filter(({ name }) => name === null).length;
  const where =
    unnamed === 0
      ? "their name"
      : unnamed === found.length
        ? "the beginning of their first message, and no name"
        : "their name or, without one, the beginning of their first message";
  return `${word} in ${where}. Give more of it, or the beginning of the id.`;
}

/** The facts of a session that distinguish it from others which a word names, too. */
type NamedFacts = Pick<Listed, "id" | "path" | "name" | "firstMessage" | "cwd" | "modified">;

/** Returns the session that all of these are. Throws ambiguous_id, with the sessions as candidates. */
export function requireOneSession<One extends NamedFacts>(found: readonly One[], word: string): One {
  if (found.every(({ id }) => id === found[0].id)) return found[0];
  const sentence = `${found.length} sessions have ${describeShared(found, word)}`;
  throw new Failure("ambiguous_id", sentence, listCandidates(found, word));
}

/** Returns the details of a failure about sessions that a word may mean. */
export function listCandidates(found: readonly NamedFacts[], word: string) {
  const candidates = found.slice(0, MOST_LISTED).map(({ id, path, name, firstMessage, cwd, modified }) => ({
    sessionId: id,
    sessionPath: path,
    name,
    firstMessage,
    cwd,
    modified: formatTime(modified),
  }));
  return { sessionId: word, matches: found.length, candidates };
}
