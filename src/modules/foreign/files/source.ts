/** Another agent's file: recognised by its beginning, and read as records. Nothing is ever written to it. */

import { basename } from "node:path";
import { Failure } from "../../../core/failure.ts";
import { CURRENT_VERSION } from "../../../core/format/entry.ts";
import { tryParse } from "../../../core/json/json.ts";
import type { Disk } from "../../../storage/fs/disk.ts";
import { readAt, readBeginning, readIfPresent } from "../../../storage/fs/files.ts";
import { beginsAsOurs, findHeaderIn, isInOmp } from "../../../storage/fs/header.ts";
import { recogniseTask } from "../read/cline/cline.ts";
import { omp } from "../read/omp/omp.ts";
import { BYTES_SEEN, type Translator } from "../read/translator.ts";
import { findTranslator } from "../read/translators.ts";

/** The file of a task of Cline's or a relative's that has its messages. */
export const TASK_MESSAGES = "api_conversation_history.json";

/** Bytes of one read. */
const CHUNK = 1 << 20;
/** Bytes of a line that are held until its end is found. A longer one is read again then, instead of being there twice. */
const HELD = 1 << 22;
/** Bytes of a line beyond which it counts as damaged: no text of Node's can be longer. */
const LONGEST_LINE = 1 << 28;
/** Bytes of a document beyond which it is not read. */
export const LARGEST_DOCUMENT = 1 << 29;

/** Throws not_a_session for a document that is too large to be read. */
export function requireDocumentSize(sessionPath: string, size: number, format: string): void {
  if (size <= LARGEST_DOCUMENT) return;
  const sentence = `${sessionPath} is one JSON document of more than ${LARGEST_DOCUMENT >> 20} MB, which this program does not read. It was left as it is.`;
  throw new Failure("not_a_session", sentence, { sessionPath, format });
}

/** Returns the translator that knows a file; undefined for a session of ours, and anything else. Throws errno errors. */
export function recogniseFile(disk: Disk, file: string): Translator | undefined {
  if (beginsAsOurs(disk, file)) return undefined;
  // One byte more shows whether this is all.
  const bytes = readIfPresent(() => readBeginning(disk, file, BYTES_SEEN + 1));
  if (!bytes || bytes.length === 0) return undefined;
  const found = findTranslator(bytes.subarray(0, BYTES_SEEN), bytes.length <= BYTES_SEEN);
  if (found) return found;
  // oh-my-pi wrote no title in older versions.
  const place = isInOmp(file) ? findHeaderIn(bytes, true) : undefined;
  if (place?.header.version === CURRENT_VERSION) return omp;
  return basename(file) === TASK_MESSAGES ? recogniseTask(bytes) : undefined;
}

/** Returns the value of the first line of a file; undefined if that is no JSON, or longer than the read part. */
export function readFirstRecord(disk: Disk, fd: number): unknown {
  const bytes = readAt(disk, fd, 0, Math.min(disk.infoOf(fd).size, CHUNK));
  const feed = bytes.indexOf(0x0a);
  return tryParse(bytes, 0, feed < 0 ? bytes.length : feed);
}

/** The read part of a file of lines. */
export interface Reach {
  /** Offset of the first byte that was not read. */
  offset: number;
  /** Number of lines that were read. */
  lines: number;
  /** True if the last one has no line feed yet. */
  isUnterminated: boolean;
  /** True if there are bytes after it that may be the beginning of a line. */
  isUnfinished: boolean;
}

type TakeRecord = (bytes: Uint8Array, number: number, offset: number) => void;

interface ReadingOptions {
  /** Offset at the end of the reading. */
  readonly past?: number | undefined;
  /** Returns whether a last line without a line feed has the end of a record, though it is no object. */
  readonly hasEnd?: (line: Buffer) => boolean;
}

/**
 * Reads the lines after `reach`, and moves it. A last line without a line feed counts if it is whole. The bytes of
 * a line may be overwritten when the next one is read.
 */
export function readLines(
  disk: Disk,
  fd: number,
  reach: Reach,
  take: TakeRecord,
  { past = Number.POSITIVE_INFINITY, hasEnd }: ReadingOptions = {},
): void {
  const size = Math.min(disk.infoOf(fd).size, past);
  let held: Buffer[] = [];
  let heldBytes = 0;
  let start = reach.offset;
  const line = (bytes: Uint8Array): void => {
    // After a line that was read without its line feed comes this line feed.
    if (reach.isUnterminated && bytes.length === 0) reach.isUnterminated = false;
    else {
      reach.isUnterminated = false;
      reach.lines++;
      take(bytes, reach.lines, start);
    }
  };
  /** Returns the line whose beginning was read before `piece`. Of one that is too long to be read, only its beginning. */
  const begun = (...piece: Buffer[]): Buffer => {
    if (heldBytes <= HELD) return Buffer.concat([...held, ...piece]);
    const rest = piece[0]?.length ?? 0;
    return readAt(disk, fd, start, heldBytes > LONGEST_LINE ? LONGEST_LINE : heldBytes + rest);
  };
  for (let at = reach.offset; at < size; ) {
    const chunk = readAt(disk, fd, at, Math.min(CHUNK, size - at));
    at += chunk.length;
    let from = 0;
    for (let feed = chunk.indexOf(0x0a); feed >= 0; feed = chunk.indexOf(0x0a, from)) {
      const piece = chunk.subarray(from, feed);
      line(heldBytes === 0 ? piece : begun(piece));
      held = [];
      start += heldBytes + piece.length + 1;
      heldBytes = 0;
      from = feed + 1;
    }
    if (from < chunk.length) {
      heldBytes += chunk.length - from;
      if (heldBytes <= HELD) held.push(chunk.subarray(from));
      else held = [];
    }
  }
  reach.offset = start;
  const rest = heldBytes === 0 || heldBytes > LONGEST_LINE ? undefined : begun();
  reach.isUnfinished = heldBytes > 0;
  if (!rest || !(isWholeObject(rest) || hasEnd?.(rest))) return;
  line(rest);
  reach.offset = start + rest.length;
  reach.isUnterminated = true;
  reach.isUnfinished = false;
}

function isWholeObject(bytes: Buffer): boolean {
  return bytes.at(-1) === 0x7d && tryParse(bytes) !== undefined;
}
