/**
 * Repairs damaged lines of other agents' files: finds records next to other bytes, and joins those that line feeds cut.
 * The bytes between them are damage.
 */

import { isObject } from "../../../core/foreign/messages.ts";
import { type LinePiece, splitDamagedLine } from "../../../core/format/salvage.ts";
import { concat, isJson, toBytes, tryParse } from "../../../core/json/json.ts";
import type { Translator } from "./translator.ts";

/** Bytes of lines that are held because they may be one record. */
const MOST_HELD = 1 << 24;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const LINE_FEED = toBytes("\n");
/** A line feed as it is within a string. */
const ESCAPED = toBytes("\\n");

/** A line, or a piece of one. */
export interface SourceLine {
  readonly bytes: Uint8Array;
  readonly number: number;
  readonly offset: number;
}

/** Receives the records and the bytes that a mender finds. */
interface RecordReceiver {
  /** Takes a line; returns false, and does nothing, if it is no JSON. */
  take(line: SourceLine): boolean;
  /** Takes a record that spans several lines; `record` names the first. */
  join(record: SourceLine, lines: number): void;
  /** Takes bytes that are no record. */
  lose(line: SourceLine): void;
}

/** Lines that may be one record. */
interface OpenLines {
  readonly lines: SourceLine[];
  /** Their bytes, with the line feeds between them. */
  readonly parts: Uint8Array[];
  bytes: number;
  depth: number;
  isInString: boolean;
}

export class LineRepairer {
  private readonly isByLine: boolean;
  private readonly isRecord: (bytes: Uint8Array) => boolean;
  private readonly to: RecordReceiver;
  private held: OpenLines | null = null;

  constructor({ isRecord }: Translator, to: RecordReceiver) {
    this.isRecord = (bytes) => isRecord !== undefined && holdsRecord(bytes, isRecord);
    this.isByLine = isRecord !== undefined;
    this.to = to;
  }

  line(line: SourceLine): void {
    const { held, to } = this;
    if (held && !this.isRecord(line.bytes)) return this.goOn(held, line);
    this.end();
    if (to.take(line)) return;
    const begun: OpenLines = { lines: [], parts: [], bytes: 0, depth: 0, isInString: false };
    if (this.isByLine && line.bytes[0] === OPEN_BRACE && addLine(begun, line)) this.held = begun;
    else this.takePieces(line);
  }

  /** Takes the held lines one by one: together they are not one record. */
  end(): void {
    const { held, to } = this;
    this.held = null;
    for (const line of held?.lines ?? []) if (!to.take(line)) this.takePieces(line);
  }

  /** Returns whether bytes after the last line feed, which are no object, have the end of a record. */
  hasEnd(bytes: Uint8Array): boolean {
    const { held } = this;
    if (held && isJson(joined(held, bytes))) return true;
    return this.piecesOf(bytes).findLast(({ start, end }) => !isZeros(bytes, start, end))?.isRecord === true;
  }

  /** Takes a line that is no record, after others that may be the beginning of one. */
  private goOn(held: OpenLines, line: SourceLine): void {
    if (addLine(held, line)) {
      if (held.bytes > MOST_HELD) this.end();
      return;
    }
    const bytes = concat(held.parts);
    if (!isJson(bytes)) return this.end();
    this.held = null;
    this.to.join({ ...held.lines[0], bytes }, held.lines.length);
  }

  private piecesOf(bytes: Uint8Array): LinePiece[] {
    const isAlone = (start: number, end: number): boolean => isZeros(bytes, 0, start) && isZeros(bytes, end);
    return [...splitDamagedLine(bytes, (piece, start) => isAlone(start, start + piece.length) || this.isRecord(piece))];
  }

  private takePieces({ bytes, number, offset }: SourceLine): void {
    const { to } = this;
    for (const { start, end, isRecord } of this.piecesOf(bytes)) {
      const piece = { bytes: bytes.subarray(start, end), number, offset: offset + start };
      if (!isRecord || !to.take(piece)) to.lose(piece);
    }
  }
}

function holdsRecord(bytes: Uint8Array, isRecord: NonNullable<Translator["isRecord"]>): boolean {
  if (bytes[0] !== OPEN_BRACE || bytes.at(-1) !== CLOSE_BRACE) return false;
  const value = tryParse(bytes);
  return isObject(value) && isRecord(value);
}

/** Adds a line. Returns whether a string or an object is open at its end. */
function addLine(held: OpenLines, line: SourceLine): boolean {
  const bytes = Uint8Array.from(line.bytes);
  if (held.lines.length > 0) held.parts.push(held.isInString ? ESCAPED : LINE_FEED);
  held.lines.push({ ...line, bytes });
  held.parts.push(bytes);
  held.bytes += bytes.length;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i];
    if (byte === QUOTE) held.isInString = !held.isInString;
    else if (held.isInString) i += byte === BACKSLASH ? 1 : 0;
    else if (byte === OPEN_BRACE) held.depth++;
    else if (byte === CLOSE_BRACE) held.depth--;
  }
  return held.isInString || held.depth > 0;
}

function joined({ parts, isInString }: OpenLines, bytes: Uint8Array): Uint8Array {
  return concat([...parts, isInString ? ESCAPED : LINE_FEED, bytes]);
}

function isZeros(bytes: Uint8Array, start: number, end = bytes.length): boolean {
  for (let i = start; i < end; i++) if (bytes[i] !== 0) return false;
  return true;
}
