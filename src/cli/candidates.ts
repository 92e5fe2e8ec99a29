/** The lines about sessions that an id or a name may mean. */

import type { Candidate } from "../core/ports/stores.ts";
import { findBeginningAmong, NOTHING_SAID } from "../core/search/listing.ts";
import { describeShared } from "../core/search/named.ts";
import { getDrawnWidth, type OutputStyle } from "./terminal/page.ts";
import { cutTo, escapeLine, formatAge, getWidth, group, pad, shortenPath, show } from "./terminal/text.ts";

/** Returns a line for each candidate, with the shortest distinct beginning of its id, or with its path. */
export function formatCandidates(candidates: readonly Candidate[], matches: number, page: OutputStyle): string[] {
  const ids = candidates.map(({ sessionId }) => show`${sessionId}`);
  // The lines belong to a sentence for a person.
  const width = getDrawnWidth(page);
  const isById = new Set(ids).size === ids.length;
  const sorted = ids.toSorted();
  const length = Math.max(...ids.map((id) => findBeginningAmong(id, sorted).length));
  const lines = candidates.map(({ name, firstMessage, cwd, modified, sessionPath }, i) => {
    const which = isById ? ids[i].slice(0, length) : shortenPath(sessionPath, page.home);
    const age = modified === null ? "" : formatAge(page.now - Date.parse(modified));
    const title = escapeLine(name ?? firstMessage ?? "") || NOTHING_SAID;
    const where = cwd === null || !isById ? "" : `  ${shortenPath(cwd, page.home)}`;
    const head = `  ${which}  ${pad(age, 4, "right")}  `;
    // The person needs the id: it is never cut.
    return `${head}${cutTo(`${title}${where}`, Math.max(10, width - getWidth(head)))}`;
  });
  const left = matches - lines.length;
  return left > 0 ? [...lines, `  and ${group(left)} more`] : lines;
}

/** The facts of a failure about several sessions. `sessionId`: the word that means each of them. */
export interface AmbiguousSession {
  readonly sessionId?: string;
  readonly matches?: number;
  readonly candidates?: readonly Candidate[];
}

/** Returns the sentence about several sessions; the lines that follow it name them. */
export function describeAmbiguity({ sessionId = "", matches, candidates = [] }: AmbiguousSession): string {
  const found = `${group(matches ?? candidates.length)} sessions have`;
  const [first] = candidates;
  if (first && candidates.every((one) => one.sessionId === first.sessionId))
    return `${found} the id ${first.sessionId}. Name the one you mean by its path.`;
  const named = candidates.map(({ sessionId: id, name }) => ({ id, name }));
  return `${found} ${describeShared(named, sessionId)}`;
}
