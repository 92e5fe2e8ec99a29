/** Framing: cuts bytes into payloads and frames these, as lines or by Content-Length (protocol, section 2). */

export type FramingName = "lines" | "headers";

/** A decoded payload, or the reason why there is none. */
export type Cut =
  | { readonly kind: "payload"; readonly bytes: Buffer }
  /** A message over the limit; only its beginning was kept. */
  | { readonly kind: "too_large"; readonly bytes: Buffer; readonly size: number | undefined }
  /** A malformed header block, and how it begins; decoding resumes at the next valid one. */
  | { readonly kind: "bad_header"; readonly reason: string; readonly beginning: string };

export interface Decoder {
  readonly name: FramingName;
  /** Maximum bytes of a message. */
  limit: number;
  push(chunk: Buffer): void;
  /** Returns the next complete payload, or undefined when more input is needed. */
  next(): Cut | undefined;
  /** Returns the remaining payload at the end of the input, if any. */
  end(): Cut | undefined;
}

/** Bytes of an oversized message that are kept, for its id. */
const KEPT_OF_TOO_LARGE = 4096;

const LF = 0x0a;
const CR = 0x0d;

/** A queue of chunks that can be searched and cut without copying more than once. */
class ByteQueue {
  private chunks: Buffer[] = [];
  /** Bytes of the first chunk that were consumed. Cutting them off makes an object more for each message. */
  private consumed = 0;
  length = 0;
  /** Bytes from the front known not to contain the searched byte. */
  searched = 0;

  push(chunk: Buffer): void {
    if (chunk.length === 0) return;
    this.chunks.push(chunk);
    this.length += chunk.length;
  }

  /** Returns the index of a byte from the front, or -1. Bytes that were searched before are not searched again. */
  indexOf(byte: number): number {
    let before = -this.consumed;
    for (const chunk of this.chunks) {
      const from = Math.max(0, this.searched - before);
      if (from < chunk.length) {
        const found = chunk.indexOf(byte, from);
        if (found >= 0) return before + found;
      }
      before += chunk.length;
    }
    this.searched = this.length;
    return -1;
  }

  shift(count: number): Buffer {
    const parts: Buffer[] = [];
    for (let missing = count; missing > 0; ) {
      const { consumed: taken } = this;
      const chunk = this.chunks[0];
      const part = chunk.subarray(taken, taken + missing);
      parts.push(part);
      missing -= part.length;
      this.skip(part.length);
    }
    return parts.length === 1 ? parts[0] : Buffer.concat(parts, count);
  }

  /** Drops that many bytes at the front, which must be in one chunk. */
  skip(count: number): void {
    this.searched = 0;
    this.length -= count;
    this.consumed += count;
    if (this.consumed < this.chunks[0].length) return;
    this.chunks.shift();
    this.consumed = 0;
  }

  peek(count: number): Buffer {
    let missing = Math.min(count, this.length);
    let from = this.consumed;
    if (this.chunks[0]?.length - from >= missing) return this.chunks[0].subarray(from, from + missing);
    const parts: Buffer[] = [];
    for (const chunk of this.chunks) {
      if (missing === 0) break;
      const part = chunk.subarray(from, from + missing);
      parts.push(part);
      missing -= part.length;
      from = 0;
    }
    return Buffer.concat(parts);
  }
}

/**
 * Decoder of payloads that end with a line feed. Drops that and a carriage return before it, and blank lines. `isExact`:
 * every line keeps its bytes, and the last one gets the line feed that it lacks.
 */
export class LineDecoder implements Decoder {
  readonly name = "lines";
  private readonly queue = new ByteQueue();
  limit: number;
  private readonly isExact: boolean;
  private dropping: { kept: Buffer; size: number } | undefined;

  constructor(limit: number, isExact = false) {
    this.limit = limit;
    this.isExact = isExact;
  }

  push(chunk: Buffer): void {
    this.queue.push(chunk);
  }

  next(): Cut | undefined {
    for (;;) {
      const end = this.queue.indexOf(LF);
      if (this.dropping) {
        if (end < 0) {
          this.dropping.size += this.queue.length;
          this.queue.shift(this.queue.length);
          return undefined;
        }
        const { kept, size } = this.dropping;
        this.dropping = undefined;
        this.queue.shift(end + 1);
        return { kind: "too_large", bytes: kept, size: size + end };
      }
      if (end < 0) {
        if (this.queue.length > this.limit + 1) {
          this.dropping = { kept: this.queue.peek(KEPT_OF_TOO_LARGE), size: 0 };
          continue;
        }
        return undefined;
      }
      if (this.isExact && end <= this.limit) return { kind: "payload", bytes: this.queue.shift(end + 1) };
      const line = this.queue.shift(end);
      this.queue.skip(1);
      const cut = this.cut(line);
      if (cut) return cut;
    }
  }

  end(): Cut | undefined {
    if (this.dropping) return { kind: "too_large", bytes: this.dropping.kept, size: this.dropping.size };
    const rest = this.queue.shift(this.queue.length);
    if (this.isExact && rest.length > 0) return { kind: "payload", bytes: Buffer.concat([rest, Buffer.of(LF)]) };
    return this.cut(rest);
  }

  private cut(line: Buffer): Cut | undefined {
    const bytes = line.length > 0 && line[line.length - 1] === CR ? line.subarray(0, -1) : line;
    if (isBlank(bytes)) return undefined;
    if (bytes.length > this.limit)
      return { kind: "too_large", bytes: bytes.subarray(0, KEPT_OF_TOO_LARGE), size: bytes.length };
    return { kind: "payload", bytes };
  }
}

function isBlank(bytes: Buffer): boolean {
  for (const c of bytes) if (c !== 0x20 && c !== 0x09 && c !== CR) return false;
  return true;
}

/** Bytes beyond which a header block counts as malformed; a real one has a few dozen. */
const HEADER_LIMIT = 8192;
/** Bytes at which a Content-Length counts as malformed: skipping that much would be a hang. */
const PLAUSIBLE_LENGTH = 2 ** 32;
const USUAL_HEADER = /^content-length: (\d{1,9})\r\n\r\n/i;
/** Bytes of the longest usual header. */
const USUAL_LENGTH = 29;
const NEXT_HEADER = /content-length:[ \t]*\d+[ \t]*\r?\n/i;

class HeaderDecoder implements Decoder {
  readonly name = "headers";
  private readonly queue = new ByteQueue();
  limit: number;
  private awaited: number | undefined;
  private dropping: { kept: Buffer; left: number; size: number } | undefined;
  private lost = false;

  constructor(limit: number) {
    this.limit = limit;
  }

  push(chunk: Buffer): void {
    this.queue.push(chunk);
  }

  next(): Cut | undefined {
    for (;;) {
      if (this.dropping) {
        const { dropping, queue } = this;
        const dropped = Math.min(dropping.left, queue.length);
        const keep = Math.min(dropped, KEPT_OF_TOO_LARGE - dropping.kept.length);
        if (keep > 0) dropping.kept = Buffer.concat([dropping.kept, queue.peek(keep)]);
        queue.shift(dropped);
        dropping.left -= dropped;
        if (dropping.left > 0) return undefined;
        this.dropping = undefined;
        return { kind: "too_large", bytes: dropping.kept, size: dropping.size };
      }
      if (this.awaited !== undefined) {
        if (this.queue.length < this.awaited) return undefined;
        const bytes = this.queue.shift(this.awaited);
        this.awaited = undefined;
        return { kind: "payload", bytes };
      }
      if (this.lost && !this.findHeader()) return undefined;
      const cut = this.readHeader();
      if (cut !== "again") return cut;
    }
  }

  /** Drops the input before the next thing that looks like a header. Returns whether there is one. */
  private findHeader(): boolean {
    const text = this.queue.peek(this.queue.length).toString("latin1");
    const found = NEXT_HEADER.exec(text);
    if (!found) {
      // Keep what may be the beginning of a header that is still arriving.
      this.queue.shift(Math.max(0, this.queue.length - 64));
      return false;
    }
    this.queue.shift(found.index);
    this.lost = false;
    return true;
  }

  private readHeader(): Cut | undefined | "again" {
    // Nearly every message begins so; the general code below takes 20 times as long.
    const usual = USUAL_HEADER.exec(this.queue.peek(USUAL_LENGTH).toString("latin1"));
    if (usual) {
      this.queue.shift(usual[0].length);
      this.expect(Number(usual[1]));
      return "again";
    }
    const text = this.queue.peek(HEADER_LIMIT).toString("latin1");
    const start = /^[\r\n]*/.exec(text)?.[0].length ?? 0;
    const blank = /\r?\n\r?\n/.exec(text.slice(start));
    if (!blank) {
      // A first line that cannot belong to a header is malformed at once; the end of its block might never come.
      const firstLine = /^([^\n]*)\n/.exec(text.slice(start));
      if (firstLine && !/^[A-Za-z-]+:/.test(firstLine[1])) return this.bad("a line that is no header field");
      return this.queue.length >= HEADER_LIMIT ? this.bad("a header block without an end") : undefined;
    }
    const block = text.slice(start, start + blank.index);
    const fields = block.split(/\r?\n/);
    if (!fields.every((field) => /^[A-Za-z-]+:/.test(field))) return this.bad("a line that is no header field");
    const field = fields.find((line) => /^content-length:/i.test(line));
    if (!field) return this.bad("no Content-Length");
    const value = field.slice(field.indexOf(":") + 1).trim();
    const length = /^\d+$/.test(value) ? Number(value) : Number.NaN;
    if (!(length < PLAUSIBLE_LENGTH)) return this.bad(`Content-Length: ${value.slice(0, 40)}`);
    this.queue.shift(start + blank.index + blank[0].length);
    this.expect(length);
    return "again";
  }

  private expect(length: number): void {
    if (length > this.limit) this.dropping = { kept: Buffer.alloc(0), left: length, size: length };
    else this.awaited = length;
  }

  private bad(reason: string): Cut {
    this.lost = true;
    const beginning = this.queue.peek(64).toString("latin1");
    // The first byte is dropped, so that the same position is not found malformed again.
    this.queue.shift(1);
    return { kind: "bad_header", reason, beginning };
  }

  end(): Cut | undefined {
    if (this.dropping) return { kind: "too_large", bytes: this.dropping.kept, size: this.dropping.size };
    const isOver = this.queue.length === 0 || /^\s*$/.test(this.queue.peek(64).toString("latin1"));
    if (this.awaited !== undefined || (!isOver && !this.lost))
      return { kind: "bad_header", reason: "the input ended inside a frame", beginning: "" };
    return undefined;
  }
}

const HEADERS_BEGIN = "content-";

/** Decoder of a stream's beginning: drops a byte order mark; where no framing is given, `Content-` begins headers. */
export class AutoDecoder {
  private input: Buffer = Buffer.alloc(0);
  private begun = false;
  private readonly limit: number;
  private readonly given: FramingName | undefined;

  constructor(limit: number, given?: FramingName) {
    this.limit = limit;
    this.given = given;
  }

  /** Returns the decoder for the stream, with the input so far, or undefined when deciding takes more input. */
  push(chunk: Buffer): Decoder | undefined {
    this.input = Buffer.concat([this.input, chunk]);
    if (!this.begun) {
      const start = withoutBom(this.input);
      if (start === undefined) return undefined;
      this.begun = start.length > 0;
      this.input = start;
      if (this.given && this.begun) return this.decide(this.given);
    }
    let blank = 0;
    while (blank < this.input.length && [0x20, 0x09, 0x0a, 0x0d].includes(this.input[blank])) blank++;
    this.input = this.input.subarray(blank);
    const text = this.input.toString("latin1", 0, HEADERS_BEGIN.length).toLowerCase();
    if (text.length < HEADERS_BEGIN.length && HEADERS_BEGIN.startsWith(text)) return undefined;
    return this.decide(text === HEADERS_BEGIN ? "headers" : "lines");
  }

  decide(name: FramingName): Decoder {
    const decoder = name === "lines" ? new LineDecoder(this.limit) : new HeaderDecoder(this.limit);
    decoder.push(this.input);
    return decoder;
  }
}

const BOM = Buffer.from("\ufeff");

/** Returns the input without a byte order mark, or undefined when one may still be arriving. */
function withoutBom(bytes: Buffer): Buffer | undefined {
  const begun = bytes.subarray(0, BOM.length);
  if (bytes.length === 0 || !begun.equals(BOM.subarray(0, begun.length))) return bytes;
  return begun.length < BOM.length ? undefined : bytes.subarray(BOM.length);
}

/** The text around a payload, and the form of its pieces. `before` gets the payload's length in bytes. */
export interface Envelope {
  before(bytes: number): string;
  piece(piece: string | Uint8Array): string | Uint8Array;
  readonly after: string;
  readonly counts: boolean;
}

export const frames: Record<FramingName, Envelope> = {
  lines: { before: () => "", piece: escaped, after: "\n", counts: false },
  headers: { before: (bytes) => `Content-Length: ${bytes}\r\n\r\n`, piece: (piece) => piece, after: "", counts: true },
};

export function countBytes(pieces: Iterable<string | Uint8Array>): number {
  let length = 0;
  for (const piece of pieces) length += typeof piece === "string" ? Buffer.byteLength(piece) : piece.length;
  return length;
}

/** Escapes U+2028 and U+2029, because they end a line for some readers of lines (reliability case F3). */
function escaped(piece: string | Uint8Array): string | Uint8Array {
  if (typeof piece === "string")
    // In a text whose characters all fit in a byte a search costs nothing, while a pattern looks at every character.
    return piece.includes("\u2028") || piece.includes("\u2029")
      ? piece.replace(/[\u2028\u2029]/g, (c) => (c === "\u2028" ? "\\u2028" : "\\u2029"))
      : piece;
  const bytes = Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength);
  let at = bytes.indexOf(SEPARATOR_LEAD);
  // Dashes, typographic quotes and the ellipsis of each preview begin in the same way.
  if (at < 0 || (bytes.indexOf(SEPARATORS[0], at) < 0 && bytes.indexOf(SEPARATORS[1], at) < 0)) return piece;
  const parts: Buffer[] = [];
  let copied = 0;
  for (; at >= 0; at = bytes.indexOf(SEPARATOR_LEAD, at + 2)) {
    const last = bytes[at + 2];
    if (last !== 0xa8 && last !== 0xa9) continue;
    parts.push(bytes.subarray(copied, at), Buffer.from(last === 0xa8 ? "\\u2028" : "\\u2029"));
    copied = at + 3;
  }
  parts.push(bytes.subarray(copied));
  return Buffer.concat(parts);
}

const SEPARATOR_LEAD = Buffer.from([0xe2, 0x80]);
const SEPARATORS = [Buffer.from("\u2028"), Buffer.from("\u2029")];
