/**
 * Frames as a host writes and reads them. This is other code than the server's, so that a fault in one does not hide the
 * same fault in the other.
 */

import type { Combination } from "./combination.ts";

/** A piece of the server's output: a frame with its payload, or bytes that belong to no frame. */
interface OutputPiece {
  readonly kind: "frame" | "garbage";
  readonly bytes: Buffer;
}

export function frameMessage(framing: Combination["framing"], message: string | Uint8Array): Buffer {
  const payload = Buffer.from(message as string);
  if (framing === "lines") return Buffer.concat([payload, LINE_FEED]);
  return Buffer.concat([Buffer.from(`Content-Length: ${payload.length}\r\n\r\n`), payload]);
}

const LINE_FEED = Buffer.from("\n");

/** A block of header fields and the blank line behind it. */
const HEADER = /^((?:[A-Za-z-]+:[^\r\n]*\r\n)+)\r\n/;
/** Bytes beyond which a block of header fields is not waited for. */
const HEADER_LIMIT = 4096;
/** The beginning of a frame behind bytes that belong to none. */
const NEXT_HEADER = "Content-Length:";

/** Cuts the output of a server into pieces. What does not end yet is kept. */
export class FrameCutter {
  private readonly framing: Combination["framing"];
  private chunks: Buffer[] = [];
  /** Bytes that are kept. */
  private held = 0;
  /** Bytes without which no piece can end; saves joining the chunks of a large frame again and again. */
  private needed = 1;

  constructor(framing: Combination["framing"]) {
    this.framing = framing;
  }

  /** Returns the number of bytes that are kept because no frame of theirs has ended. */
  get pending(): number {
    return this.held;
  }

  /** Takes more output and yields the pieces that end in it. */
  *push(chunk: Buffer): Generator<OutputPiece> {
    this.chunks.push(chunk);
    this.held += chunk.length;
    if (this.framing === "lines" ? !chunk.includes(LINE_FEED) : this.held < this.needed) return;
    let rest = Buffer.concat(this.chunks);
    for (;;) {
      const piece = this.framing === "lines" ? lineOf(rest) : this.frameOf(rest);
      if (piece === undefined) break;
      rest = rest.subarray(piece.end);
      yield { kind: piece.kind, bytes: piece.bytes };
    }
    this.chunks = [rest];
    this.held = rest.length;
  }

  /** Returns what the output ended within. */
  rest(): Buffer {
    return Buffer.concat(this.chunks);
  }

  private frameOf(bytes: Buffer): (OutputPiece & { end: number }) | undefined {
    this.needed = bytes.length + 1;
    const text = bytes.toString("latin1", 0, HEADER_LIMIT);
    const header = HEADER.exec(text);
    const length = Number(/^content-length:\s*(\d+)\s*$/im.exec(header?.[1] ?? "")?.[1] ?? Number.NaN);
    if (header && !Number.isNaN(length)) {
      const end = header[0].length + length;
      if (bytes.length >= end) return { kind: "frame", bytes: bytes.subarray(header[0].length, end), end };
      this.needed = end;
      return undefined;
    }
    const mayBegin = header === null && bytes.length < HEADER_LIMIT && /^(?:[A-Za-z-]+(?:$|:))/.test(text);
    const next = bytes.indexOf(NEXT_HEADER, 1);
    if (next < 0) {
      if (mayBegin || bytes.length === 0) return undefined;
      // Keeps the possible beginning of a frame that is still arriving.
      const end = Math.max(0, bytes.length - NEXT_HEADER.length);
      return end === 0 ? undefined : { kind: "garbage", bytes: bytes.subarray(0, end), end };
    }
    if (mayBegin && text.startsWith(NEXT_HEADER)) return undefined;
    return { kind: "garbage", bytes: bytes.subarray(0, next), end: next };
  }
}

function lineOf(bytes: Buffer): (OutputPiece & { end: number }) | undefined {
  const end = bytes.indexOf(LINE_FEED);
  return end < 0 ? undefined : { kind: "frame", bytes: bytes.subarray(0, end), end: end + 1 };
}
