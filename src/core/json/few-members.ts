/** JSON text without most members of its largest objects: a value of a million takes seconds to make, in one piece. */

import { concat, findKnownValueEnd, holdsAt, skipSpace, toBytes } from "./json.ts";

/** Members that an object keeps. */
export const MOST_MEMBERS = 20_000;
/** Bytes of the shortest member, with its comma. */
const SHORTEST = 5;

/** Members that are kept at any place: without these an entry or a message has no meaning. */
const KEPT = [
  ...["type", "id", "parentId", "timestamp", "message", "role", "content", "usage"],
  ...["toolCallId", "toolName", "isError", "provider", "model", "stopReason"],
].map((name) => toBytes(JSON.stringify(name)));

/** The name of the member that says how many more there are. */
export const REST = "…";
const QUOTE = 0x22;
const COMMA = 0x2c;

/** Returns text that is known to be JSON, with few members in each object; the same bytes if no object has more. */
export function limitMembers(b: Uint8Array, most = MOST_MEMBERS): Uint8Array {
  if (b.length <= SHORTEST * most) return b;
  const parts: Uint8Array[] = [];
  let copied = 0;
  /** The members so far of each object that is open, and nothing of each array. */
  const counts: number[] = [];
  for (let i = 0; i < b.length; ) {
    const c = b[i];
    if (c === QUOTE) {
      i = findKnownValueEnd(b, i, b.length);
      if (i < 0) return b;
      continue;
    }
    if (c === 0x7b || c === 0x5b) counts.push(c === 0x7b ? 1 : Number.NEGATIVE_INFINITY);
    else if (c === 0x7d || c === 0x5d) counts.pop();
    else if (c === COMMA && ++counts[counts.length - 1] > most) {
      const rest = restFrom(b, i);
      parts.push(b.subarray(copied, i), ...rest.kept, toBytes(`,"${REST}":"${makeOmissionNote(rest.left)}"`));
      copied = rest.end;
      i = rest.end;
      continue;
    }
    i++;
  }
  return copied === 0 ? b : concat([...parts, b.subarray(copied)]);
}

/** Returns the members of an object from a comma on: the kept ones, the number of the others, and its end. */
function restFrom(b: Uint8Array, comma: number): { kept: Uint8Array[]; left: number; end: number } {
  const kept: Uint8Array[] = [];
  let left = 0;
  let at = comma;
  while (b[at] === COMMA) {
    const name = skipSpace(b, at + 1, b.length);
    const nameEnd = findKnownValueEnd(b, name, b.length);
    const value = skipSpace(b, skipSpace(b, nameEnd, b.length) + 1, b.length);
    const past = findKnownValueEnd(b, value, b.length);
    if (KEPT.some((text) => text.length === nameEnd - name && holdsAt(b, name, text))) kept.push(b.subarray(at, past));
    else left++;
    at = skipSpace(b, past, b.length);
  }
  return { kept, left, end: at };
}

/** Returns the sentence that replaces members or elements. */
export function makeOmissionNote(left: number): string {
  return `${left} more are not shown here`;
}

/** Returns the number of elements that a sentence replaces; 1 for any other value. */
export function parseOmissionNote(note: unknown): number {
  return typeof note === "string" ? Number(/^(\d+) more are not shown here$/.exec(note)?.[1] ?? 1) : 1;
}
