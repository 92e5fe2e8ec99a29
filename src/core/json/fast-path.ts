/**
 * Validates lines as they are usually written, 16 bytes at a time, finds members in them and reads their heads, by a
 * WebAssembly module (fast-path.wat): JavaScript has no instructions for that, and is slow until it is compiled. To return
 * 25 MB of entries takes a process that has just started 62 ms of processor time with it, and 105 ms without. Whatever is
 * unusual in a line is left to validate.ts, to head.ts, and to the parser.
 */

import { MODULE } from "./fast-path-module.ts";
import { ESCAPE, HEX } from "./json.ts";

/** The longest stretch of lines that is validated at once, in bytes. */
export const MAX_BYTES = 1 << 21;
// The places of the two tables in the module's memory, as fast-path.wat has them.
const ESCAPES = MAX_BYTES + 16;
const DIGITS = ESCAPES + 256;
const PLACES = 2 * MAX_BYTES + 528;
const LINES = PLACES + 624;
/** Lines whose heads are read at once. */
const MAX_LINES = 4000;
/** Numbers of the members of a message whose places are found, and of the other noted values. */
export const PLACE = {
  timestamp: 1,
  role: 2,
  toolName: 3,
  isError: 4,
  exitCode: 5,
  cancelled: 6,
  stopReason: 7,
  command: 8,
  /** The content if it is a string, else the last of its texts. */
  text: 9,
  /** Number of texts and tool calls in the content. */
  counts: 10,
  /** The first of the calls; the others follow. */
  call: 11,
} as const;
/** Calls of a message whose places are found; a line with more is unusual. */
const MAX_CALLS = 64;

export interface FastPath {
  /** Memory for the bytes to validate. It keeps nothing. */
  readonly bytes: Uint8Array;
  /**
   * Returns the start of the message in a line `bytes[start, end)`, counted from `start`, if it is the last member;
   * else 0. The line must be JSON without escapes of surrogates and references to media in files, and its head not
   * ambiguous. Returns -1 for any other line: it needs the full validation.
   */
  readonly read: (start: number, end: number) => number;
  /**
   * Finds the members of the line of a message `bytes[0, end)`, which is known to be JSON. Returns 0 if it is unusual:
   * has escapes in names, white space around them, or members that messages do not have.
   */
  readonly find: (end: number) => number;
  /** The start and end of each member that was found last, both 0 for missing ones, by {@link PLACE}. */
  readonly places: Int32Array;
  /** Finds the lines in `bytes[0, end)`, up to {@link MAX_LINES}, and reads the heads of usual messages. Returns their number. */
  readonly heads: (end: number) => number;
  /**
   * Four numbers for each line that was found last: the places of its line feed, its id and its parent's, and the role:
   * 1, 2 or 3 for user, assistant and toolResult, with 256 more if there is no parent; 0 for an unusual line.
   */
  readonly lines: Uint32Array;
}

type FastExports = { readonly memory: WebAssembly.Memory } & Pick<FastPath, "read" | "find" | "heads">;

let made: FastPath | null | undefined;

/** Returns the module, which is made at the first call, in 1 ms; null on a machine that does not have it. */
export function getFastPath(): FastPath | null {
  if (made !== undefined) return made;
  try {
    const { Module, Instance } = WebAssembly;
    const { exports } = new Instance(new Module(Buffer.from(MODULE, "base64")));
    const { memory, read, find, heads } = exports as FastExports;
    const bytes = new Uint8Array(memory.buffer);
    bytes.set(ESCAPE, ESCAPES);
    bytes.set(HEX, DIGITS);
    const places = new Int32Array(memory.buffer, PLACES, 2 * (PLACE.call + MAX_CALLS));
    const lines = new Uint32Array(memory.buffer, LINES, 4 * MAX_LINES);
    made = { bytes: bytes.subarray(0, MAX_BYTES), read, find, places, heads, lines };
  } catch {
    made = null;
  }
  return made;
}

/** Does the work of `read` for one line. Returns -1 also without the module, or if the line is too long for it. */
export function readLine(line: Uint8Array): number {
  const fast = line.length <= MAX_BYTES ? getFastPath() : null;
  if (!fast) return -1;
  fast.bytes.set(line);
  return fast.read(0, line.length);
}
