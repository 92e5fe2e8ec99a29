/** Finds the header line of a session file, which a byte order mark and blank lines may come before. */

import { bytesOf, holdsAt, parse, sameBytes, skipSpace } from "../../core/json/json.ts";
import { KNOWN_TYPES } from "../../core/tree/nodes.ts";
import { headerFile, isContainerName } from "./container-paths.ts";
import type { Disk } from "./disk.ts";
import { beginningOf } from "./files.ts";

/** Bytes of a file that are read to find its header, which has a few hundred. */
const USUAL_BYTES = 1 << 11;
/** Bytes that are read where it is not among these. A thousand headers take a third of the time for it. */
const HEADER_BYTES = 1 << 16;
/** Bytes of a file without a header line that are searched for entries. */
const HEADERLESS_SEARCH_BYTES = 1 << 18;

/** The beginning of a session file of ours, as all of us write it. */
const OUR_BEGINNING = bytesOf('{"type":"session",');

/** Whether a path is in a folder of oh-my-pi's, which writes Pi's format with entries of its own. */
export function isInOmp(file: string): boolean {
  return /[\\/](?:\.omp|omp[\\/]sessions)[\\/]/.test(file);
}

/** Whether a file begins as nearly all do that are opened. */
export function beginsAsOurs(disk: Disk, file: string): boolean {
  if (isInOmp(file)) return false;
  try {
    const begun = beginningOf(disk, file, OUR_BEGINNING.length);
    return begun !== null && sameBytes(begun, OUR_BEGINNING);
  } catch {
    // Those who open it say why it cannot be read.
    return false;
  }
}

/** The members of a stored header, unchecked but for its type. */
export type StoredHeader = Readonly<Record<string, unknown>>;

/** Returns the length of the byte order mark with which `b[at, ...)` begins, or 0. */
export function markLength(b: Uint8Array, at = 0): number {
  return b[at] === 0xef && b[at + 1] === 0xbb && b[at + 2] === 0xbf ? 3 : 0;
}

/** The beginning of the line with the title that oh-my-pi has before the header. It has 256 bytes, as oh-my-pi writes it. */
const TITLE = bytesOf('{"type":"title","v":');
const LONGEST_TITLE = 1 << 10;

/** Whether a line is the title that oh-my-pi writes before the header. */
export function isTitleSlot(line: Uint8Array): boolean {
  return line.length <= LONGEST_TITLE && holdsAt(line, 0, TITLE);
}

/** Returns where the line after a title begins; `start` where none is. */
function afterTitle(b: Uint8Array, start: number): number {
  const feed = b.indexOf(0x0a, start);
  return feed >= 0 && isTitleSlot(b.subarray(start, feed)) ? skipSpace(b, feed + 1, b.length) : start;
}

/**
 * Returns the first line that is not blank in the first bytes of a file, without its line end, and its offset; undefined
 * when its line feed is not among these bytes. `isWhole`: the bytes are the whole file, whose last line may have none.
 */
export function firstLineIn(b: Uint8Array, isWhole: boolean): { start: number; line: Uint8Array } | undefined {
  const start = afterTitle(b, skipSpace(b, markLength(b), b.length));
  const feed = b.indexOf(0x0a, start);
  if (feed < 0 && !isWhole) return undefined;
  const end = feed < 0 ? b.length : feed;
  return { start, line: b.subarray(start, b[end - 1] === 0x0d ? end - 1 : end) };
}

/** Returns the header that a line is; undefined when it is none. */
export function headerOfLine(line: Uint8Array): StoredHeader | undefined {
  try {
    const header = parse(line) as StoredHeader | null;
    return header?.type === "session" ? header : undefined;
  } catch {
    return undefined;
  }
}

/** Returns the header in the first bytes of a session file. */
export function headerOfBytes(bytes: Uint8Array): StoredHeader | undefined {
  return headerOfLine((firstLineIn(bytes, true) as { line: Uint8Array }).line);
}

/** Returns the first bytes of a session file, which hold its header; null when no file is there. Throws errno errors. */
export function headerBytes(disk: Disk, file: string): Uint8Array | null {
  const bytes = beginningOf(disk, file, USUAL_BYTES);
  const isEnough = bytes === null || bytes.length < USUAL_BYTES || firstLineIn(bytes, false) !== undefined;
  return isEnough ? bytes : beginningOf(disk, file, HEADER_BYTES);
}

/** Returns the header of a session, or undefined when there is none, or when the disk refuses. */
export function readHeader(disk: Disk, session: string): StoredHeader | undefined {
  try {
    const bytes = headerBytes(disk, isContainerName(session) ? headerFile(session) : session);
    return bytes ? headerOfBytes(bytes) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Whether a file without a header is a session all the same: its beginning has an entry that only sessions have, and it
 * does not begin with a whole record of another kind, as the files of other agents do.
 */
export function hasEntriesNearby(disk: Disk, fd: number): boolean {
  const bytes = Buffer.alloc(HEADERLESS_SEARCH_BYTES);
  const count = disk.read(fd, bytes, 0, bytes.length, 0);
  const records = bytes.toString("latin1", 0, count).split("\n").map(recordIn);
  if (records.some((record) => record?.type === "session" && typeof record.id === "string" && record.id !== ""))
    return true;
  const [first] = records;
  if (first && isOfAnother(first)) return false;
  return records.some(
    (record) =>
      KNOWN_TYPES.includes(record?.type as never) &&
      typeof record?.id === "string" &&
      typeof record.timestamp === "string",
  );
}

/** Whether a record is neither an entry of ours nor a damaged header. */
function isOfAnother({ type, timestamp, cwd }: StoredHeader): boolean {
  if (typeof type !== "string" || type === "session" || KNOWN_TYPES.includes(type as never)) return false;
  // A header with a changed letter is no other record.
  return type.length !== "session".length || typeof timestamp !== "string" || typeof cwd !== "string";
}

function recordIn(line: string): StoredHeader | undefined {
  try {
    return (JSON.parse(line) as StoredHeader | null) ?? undefined;
  } catch {
    return undefined;
  }
}

/** Returns the session id that the name of a session file ends with; undefined when it has none. */
export function idInName(file: string): string | undefined {
  return /_([^_]+)\.jsonl$/.exec(file)?.[1];
}
