/** Lines of a file as byte ranges, found in one pass over chunks; no line need fit into memory. */

import { toBytes } from "../../core/json/json.ts";
import type { Disk } from "../fs/disk.ts";

/** Bytes of a line that is visited as a whole, and of one read of many lines. Two of them fit the second-level cache. */
export const CHUNK = 1 << 20;
/** Bytes of one read of a scan: those after the first go into memory that is in use already. */
const PIECE = 1 << 18;

export interface LineVisitor {
  /** Visits the line `b[at, end)`, line feed excluded, which lies at `start` in the file. `number` counts from 1. */
  line(number: number, start: number, b: Uint8Array, at: number, end: number): void;
  /** Visits a line longer than a chunk: its beginning `head`, and its last byte that is not a carriage return. */
  long(number: number, start: number, length: number, head: Uint8Array, last: number): void;
  /** Called before the lines that end in `b[0, end)` are visited. */
  chunk?(b: Uint8Array, end: number): void;
}

export interface Scanned {
  /** Offset of the end of the file. */
  readonly size: number;
  /** Offset of its last, unterminated line; `size` when the last line has its line feed. */
  readonly tail: number;
  /** Number of lines visited. */
  readonly lines: number;
}

/** The line feed that ends each line. */
export const LF = toBytes("\n");
const CR = 0x0d;
const LINE_FEED = 0x0a;

/**
 * Visits every line that has its line feed, from the offset `from` up to `past`, which limits the scan of a file that
 * is still growing. Callers that scan many files pass one buffer of a chunk for all.
 */
export function scanLines(
  disk: Disk,
  fd: number,
  from: number,
  headBytes: number,
  visitor: LineVisitor,
  chunk = bufferFor(disk.infoOf(fd).size - from),
  past = Number.POSITIVE_INFINITY,
): Scanned {
  let number = 0;
  let lineStart = from;
  let offset = from;
  let held = 0;
  let long: { readonly head: Buffer; last: number } | undefined;
  for (;;) {
    const count = offset < past ? disk.read(fd, chunk, held, Math.min(chunk.length - held, past - offset), offset) : 0;
    if (count <= 0) break;
    const filled = held + count;
    const view = chunk.subarray(0, filled);
    visitor.chunk?.(chunk, filled);
    let at = 0;
    for (let end = view.indexOf(LINE_FEED, held); end >= 0; end = view.indexOf(LINE_FEED, at)) {
      number++;
      const length = offset - held + end - lineStart;
      if (long) visitor.long(number, lineStart, length, long.head, lastByte(view, end, long.last));
      else visitor.line(number, lineStart, chunk, at, end);
      long = undefined;
      lineStart += length + 1;
      at = end + 1;
    }
    offset += count;
    if (long) long.last = lastByte(view, filled, long.last);
    else if (at === 0 && filled === CHUNK)
      long = { head: Buffer.from(view.subarray(0, headBytes)), last: lastByte(view, filled, 0) };
    if (long) held = 0;
    else {
      // A file that has grown meanwhile may have a longer line than the buffer.
      const next = at === 0 && filled === chunk.length ? Buffer.allocUnsafe(CHUNK) : chunk;
      chunk.copy(next, 0, at, filled);
      chunk = next;
      held = filled - at;
    }
  }
  return { size: offset, tail: lineStart, lines: number };
}

/** Returns a buffer for the rest of a file by its size; some files have size 0 and bytes nevertheless. */
function bufferFor(left: number): Buffer {
  return Buffer.allocUnsafe(left > 0 ? Math.min(PIECE, left) : CHUNK);
}

/** Returns the last byte of `b[0, end)` that is not a carriage return, else `before`. */
function lastByte(b: Uint8Array, end: number, before: number): number {
  for (let i = end - 1; i >= 0; i--) if (b[i] !== CR) return b[i];
  return before;
}
