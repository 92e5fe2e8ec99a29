/**
 * Finds the header of a session file: the first header record, whatever stands before it. All readers use this, so that
 * they agree.
 */

import { parseSessionHeader } from "../../core/format/entry.ts";
import { splitDamagedLine } from "../../core/format/salvage.ts";
import { areSameBytes, holdsAt, skipSpace, toBytes, tryParseText } from "../../core/json/json.ts";
import { KNOWN_TYPES } from "../../core/tree/nodes.ts";
import { headerFile, isContainerName } from "./container-paths.ts";
import type { Disk } from "./disk.ts";
import { readBeginning } from "./files.ts";

/** Bytes of a file that are read to find its header, which has a few hundred. */
const USUAL_BYTES = 1 << 11;
/** Bytes searched next. */
const MORE_BYTES = 1 << 18;
/** Bytes searched last, for a header behind the lines of a log or of another program. */
export const SEARCHED_BYTES = 1 << 24;
/** Bytes at the beginning of a file without a header that are searched for entries. */
const ENTRIES_WITHIN = 1 << 18;

/** The first bytes of an SQLite database. */
const DATABASE = toBytes("SQLite format 3\0");

export function beginsDatabase(bytes: Uint8Array): boolean {
  return bytes.length >= DATABASE.length && holdsAt(bytes, 0, DATABASE);
}

/** The beginning of a session file of ours, as all of us write it. */
const OUR_BEGINNING = toBytes('{"type":"session",');

/** Returns whether a path is in a folder of oh-my-pi's, which writes Pi's format with entries of its own. */
export function isInOmp(file: string): boolean {
  return /[\\/](?:\.omp|omp[\\/]sessions)[\\/]/.test(file);
}

/** Returns whether a file begins as nearly all opened files do. */
export function beginsAsOurs(disk: Disk, file: string): boolean {
  if (isInOmp(file)) return false;
  try {
    const begun = readBeginning(disk, file, OUR_BEGINNING.length);
    return begun !== null && areSameBytes(begun, OUR_BEGINNING);
  } catch {
    // Opening it reports why it cannot be read.
    return false;
  }
}

/** A text that each header has, but for one with escapes in it. */
const NAMED = toBytes('"session"');
const LINE_FEED = 0x0a;
const CR = 0x0d;

/** The members of a stored header, unchecked but for its type. */
export type StoredHeader = Readonly<Record<string, unknown>>;

/** Returns the length of the byte order mark with which `b[at, ...)` begins, or 0. */
export function getMarkLength(b: Uint8Array, at = 0): number {
  return b[at] === 0xef && b[at + 1] === 0xbb && b[at + 2] === 0xbf ? 3 : 0;
}

/** The beginning of the line with the title that oh-my-pi has before the header. It has 256 bytes, as oh-my-pi writes it. */
const TITLE = toBytes('{"type":"title","v":');
const LONGEST_TITLE = 1 << 10;

/** Returns whether a line is the title that oh-my-pi writes before the header. */
export function isTitleSlot(line: Uint8Array): boolean {
  return line.length <= LONGEST_TITLE && holdsAt(line, 0, TITLE);
}

/** Returns the start of the line after a title; `start` if there is no title. */
function afterTitle(b: Uint8Array, start: number): number {
  const feed = b.indexOf(LINE_FEED, start);
  return feed >= 0 && isTitleSlot(b.subarray(start, feed)) ? skipSpace(b, feed + 1, b.length) : start;
}

/** The record of a header, without its line end, its offset in the file, and its value. */
export interface HeaderPlace {
  readonly start: number;
  readonly line: Uint8Array;
  readonly header: StoredHeader;
}

/**
 * Returns the first header in the first bytes of a file: a line, or a record within a damaged one. Undefined if no line
 * that ends among these bytes has one. `isWhole`: the bytes are the whole file, whose last line may have no line feed.
 */
export function findHeaderIn(b: Uint8Array, isWhole: boolean): HeaderPlace | undefined {
  // Rows of a database may contain texts that look like one.
  if (beginsDatabase(b)) return undefined;
  const bytes = Buffer.from(b.buffer, b.byteOffset, b.byteLength);
  for (let at = skipSpace(b, getMarkLength(b), b.length); at < b.length; ) {
    const feed = b.indexOf(LINE_FEED, at);
    if (feed < 0 && !isWhole) return undefined;
    const end = feed < 0 ? b.length : feed;
    const place = headerPlaceInLine(b.subarray(at, b[end - 1] === CR ? end - 1 : end), at);
    if (place) return place;
    const next = bytes.indexOf(NAMED, end);
    if (next < 0) return undefined;
    at = Math.max(end, bytes.lastIndexOf(LINE_FEED, next)) + 1;
  }
  return undefined;
}

function headerPlaceInLine(line: Uint8Array, start: number): HeaderPlace | undefined {
  const whole = parseHeaderLine(line);
  if (whole) return { start, line, header: whole };
  for (const piece of splitDamagedLine(line, (bytes) => parseSessionHeader(bytes) !== null)) {
    if (!piece.isRecord || !isTornText(line.subarray(0, piece.start))) continue;
    const record = line.subarray(piece.start, piece.end);
    return { start: start + piece.start, line: record, header: parseHeaderLine(record) as StoredHeader };
  }
  return undefined;
}

/** Returns whether bytes are text, or zeros from a power cut, and not those of a database or another binary file. */
function isTornText(bytes: Uint8Array): boolean {
  return bytes.every((c) => c >= 0x20 || c === 0x09 || c === 0);
}

/** Parses a line as a header; undefined if it is another record. */
export function parseHeaderLine(line: Uint8Array): StoredHeader | undefined {
  return (parseSessionHeader(line) as StoredHeader | null) ?? undefined;
}

/** Returns the position of the header of an open session file; undefined if it has none. */
export function findHeader(disk: Disk, fd: number): HeaderPlace | undefined {
  for (const searched of [MORE_BYTES, SEARCHED_BYTES]) {
    const bytes = Buffer.allocUnsafe(Math.min(searched, disk.infoOf(fd).size));
    const count = disk.read(fd, bytes, 0, bytes.length, 0);
    const isAll = count < searched;
    const place = findHeaderIn(bytes.subarray(0, count), isAll);
    if (place || isAll) return place;
  }
  return undefined;
}

/** The first bytes of a file, and the header among them. */
interface Begun {
  readonly bytes: Uint8Array;
  readonly header: StoredHeader | undefined;
  /** True if anything but a byte order mark, blank lines and a title stands before the header. */
  readonly isLate: boolean;
}

/** Returns the beginning of a session file; null if the file is missing. Throws errno errors. */
export function readBegun(disk: Disk, file: string): Begun | null {
  for (const searched of [USUAL_BYTES, MORE_BYTES, SEARCHED_BYTES]) {
    const bytes = readBeginning(disk, file, searched);
    if (bytes === null) return null;
    const isAll = bytes.length < searched;
    const place = findHeaderIn(bytes, isAll);
    if (!place && !isAll && searched < SEARCHED_BYTES) continue;
    const isLate =
      place !== undefined && place.start > afterTitle(bytes, skipSpace(bytes, getMarkLength(bytes), bytes.length));
    return { bytes, header: place?.header, isLate };
  }
  return null;
}

/** Returns the header of a session; undefined if it has none, or the disk refuses. */
export function readHeader(disk: Disk, session: string): StoredHeader | undefined {
  try {
    return readBegun(disk, isContainerName(session) ? headerFile(session) : session)?.header;
  } catch {
    return undefined;
  }
}

/**
 * Returns whether a file without a header is a session: its beginning has an entry that only sessions have, and it does
 * not begin with a whole record of another kind, as the files of other agents do.
 */
export function hasEntriesNearby(disk: Disk, fd: number): boolean {
  const bytes = Buffer.alloc(ENTRIES_WITHIN);
  const count = disk.read(fd, bytes, 0, bytes.length, 0);
  if (beginsDatabase(bytes)) return false;
  const lines = bytes.toString("latin1", 0, count).split("\n");
  const records = lines.map((line) => tryParseText(line) as StoredHeader | null | undefined);
  const [first] = records;
  if (first && isOfAnother(first)) return false;
  return records.some(
    (record) =>
      KNOWN_TYPES.includes(record?.type as never) &&
      typeof record?.id === "string" &&
      typeof record.timestamp === "string",
  );
}

/** Returns whether a record is neither an entry of ours nor a damaged header. */
function isOfAnother({ type, version, id, timestamp, cwd }: StoredHeader): boolean {
  if (typeof type !== "string" || type === "session" || KNOWN_TYPES.includes(type as never)) return false;
  if (typeof timestamp !== "string" || typeof cwd !== "string") return true;
  // A damaged type still counts as a header's; headers of version 1 have no version.
  return type.length !== "session".length && (typeof version !== "number" || typeof id !== "string");
}

/** Returns the session id that the name of a session file ends with; undefined when it has none. */
export function parseIdInName(file: string): string | undefined {
  return /_([^_]+)\.jsonl$/.exec(file)?.[1];
}
