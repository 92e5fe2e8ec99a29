/**
 * Counts the messages in the middle of a long file for lists, by the beginnings of its lines alone. The count may be
 * off by a few if an agent writes one message in several lines; opening the session counts them all.
 */

/** Returns the messages that a line adds; undefined for one that has to be read. */
export type Skim = (line: Uint8Array) => number | undefined;

/** Characters of a line that are looked at. */
const LOOKED_AT = 1024;

/** Returns the beginning of a line. Names and kinds have no other characters than those of Latin 1. */
export function readLineBeginning(line: Uint8Array): string {
  return Buffer.from(line.buffer, line.byteOffset, Math.min(line.length, LOOKED_AT)).toString("latin1");
}

/** The members of a line itself, as far as they begin among the characters that are looked at, in any order. */
interface BegunMembers {
  /** Texts, numbers and words, as they are written. */
  readonly values: ReadonlyMap<string, string>;
  /** Positions at which objects and lists begin. */
  readonly starts: ReadonlyMap<string, number>;
}

const MEMBER = /\s*[{,]\s*"([^"\\]*)"\s*:\s*(?:("(?:[^"\\]|\\.)*"|[^"{[\s,}]+)|(?=[{[]))/y;

/** Returns the members of an object whose beginning this is. Those of objects within it are passed over. */
export function parseBegunMembers(begun: string): BegunMembers {
  const values = new Map<string, string>();
  const starts = new Map<string, number>();
  MEMBER.lastIndex = 0;
  for (let found = MEMBER.exec(begun); found !== null; found = MEMBER.exec(begun)) {
    const [, name, value] = found;
    if (value !== undefined) values.set(name, value);
    else {
      const end = nestedEnd(begun, MEMBER.lastIndex);
      starts.set(name, MEMBER.lastIndex);
      if (end < 0) break;
      MEMBER.lastIndex = end;
    }
  }
  return { values, starts };
}

const MARKS = /"(?:[^"\\]|\\.)*"|[{}[\]]|"/g;

/** Returns the end of an object or list; -1 if it is cut off. */
function nestedEnd(begun: string, at: number): number {
  MARKS.lastIndex = at;
  let depth = 0;
  for (let found = MARKS.exec(begun); found !== null; found = MARKS.exec(begun)) {
    const [mark] = found;
    if (mark === '"') return -1;
    if (mark === "{" || mark === "[") depth++;
    else if ((mark === "}" || mark === "]") && --depth === 0) return MARKS.lastIndex;
  }
  return -1;
}
