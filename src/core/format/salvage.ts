/** Finds the whole records of a damaged line: a torn write can be glued to them, and NUL characters. */

import { findValueEnd, type Range } from "../json/json.ts";

const OBJECT_BEGINS = Buffer.from('{"');
/** Most bytes read in search of records in a damaged line: this many times its length, and `MIN_SEARCHED`. */
const PASSES = 16;
const MIN_SEARCHED = 1 << 22;

export interface LinePiece extends Range {
  readonly isRecord: boolean;
}

/**
 * Yields a damaged line in pieces, in order: the records in it, and the bytes between them. `isRecord` returns whether
 * an object was written on its own or is a part of a record.
 */
export function* splitDamagedLine(
  line: Uint8Array,
  isRecord: (piece: Uint8Array, start: number) => boolean,
): Generator<LinePiece> {
  const bytes = Buffer.from(line.buffer, line.byteOffset, line.byteLength);
  let past = 0;
  let budget = Math.max(MIN_SEARCHED, PASSES * bytes.length);
  for (let at = bytes.indexOf(OBJECT_BEGINS); at >= 0; at = bytes.indexOf(OBJECT_BEGINS, at)) {
    const end = findValueEnd(bytes, at, bytes.length);
    budget -= (end < 0 ? bytes.length : end) - at;
    if (budget < 0) break;
    if (end < 0 || !isRecord(bytes.subarray(at, end), at)) {
      // A whole object is skipped: no part of it was written on its own.
      at = Math.max(at + 1, end);
      continue;
    }
    if (at > past) yield { start: past, end: at, isRecord: false };
    yield { start: at, end, isRecord: true };
    past = end;
    at = end;
  }
  if (past < bytes.length) yield { start: past, end: bytes.length, isRecord: false };
}
