/** Finds entries by the names that people give them. */

import { Failure } from "../failure.ts";
import type { Session } from "./session.ts";

/** The name of the entry that the next one continues. */
const LEAF = "leaf";
/** Least characters of the beginning of an id. */
const LEAST = 4;
/** Entries that a failure lists at most. */
const MOST_LISTED = 5;

/**
 * Returns the position of the entry that is called so: by its id, by `leaf`, by its label, or by an unambiguous
 * beginning of its id; ROOT for the leaf before the first entry. Throws entry_not_found and ambiguous_id.
 */
export function findEntryNamed(session: Session, name: string): number {
  const exact = session.find(name);
  if (exact >= 0) return exact;
  if (name === LEAF) return session.tree.leaf;
  const labelled = labelledSo(session, name);
  const found = labelled.length > 0 ? labelled : beginningWith(session, name);
  if (found.length === 1) return found[0];
  if (found.length === 0) {
    const sentence = `There is no entry ${name}. get_tree shows ids and labels; an id can be given by its first ${LEAST} characters or more.`;
    throw new Failure("entry_not_found", sentence, { entryId: name });
  }
  const ids = found.slice(0, MOST_LISTED).map((position) => session.log.nodes.id(position));
  const more = found.length > MOST_LISTED ? " and more" : "";
  const what = labelled.length > 0 ? "have the label" : "have an id that begins with";
  const sentence = `Several entries ${what} ${name}: ${ids.join(", ")}${more}. Name one of them.`;
  throw new Failure("ambiguous_id", sentence, { entryId: name, matches: ids });
}

function labelledSo({ tree }: Session, name: string): number[] {
  return Array.from(tree.labels).flatMap(([position, { label }]) =>
    label === name && tree.isVisible(position) ? [position] : [],
  );
}

function beginningWith(session: Session, name: string): number[] {
  const found: number[] = [];
  if (name.length < LEAST) return found;
  for (const position of session.visible()) {
    if (session.log.nodes.id(position).startsWith(name)) found.push(position);
    if (found.length > MOST_LISTED) break;
  }
  return found;
}
