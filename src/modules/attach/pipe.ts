/** Messages between a holder and its guests: JSON objects over a stream, framed by Content-Length. */

import type { Duplex } from "node:stream";
import { isObject } from "../../core/format/loose.ts";
import { findKnownValueEnd, findMember, getMembers, parseText } from "../../core/json/json.ts";
import { AutoDecoder, countBytes, type Decoder, frames } from "../../server/connection/framing.ts";

/** Maximum bytes of a message; an append of the largest allowed size fits. */
const MAX_MESSAGE = 1 << 30;
/** Maximum bytes of the first message, a token or the clients of a session. Before it, the sender is unknown. */
const MAX_FIRST_MESSAGE = 1 << 18;
/** Unread bytes at which no more events are sent. */
const FULL_AT = 4 << 20;

/** Maximum length of a piece that is copied into one write with others. */
const COPIED_AT_MOST = 16_384;

/** A received message: its value, and its bytes for parts that are passed on unchanged. */
export interface PipeMessage {
  readonly value: Readonly<Record<string, unknown>>;
  /** Returns the JSON text of a member; undefined if it is missing. */
  text(name: string): Uint8Array | undefined;
}

export class Pipe {
  private readonly stream: Duplex;
  private readonly decoder: Decoder = new AutoDecoder(MAX_FIRST_MESSAGE).decide("headers");
  private isClosed = false;
  /** Pieces of the messages of this turn. */
  private waiting: (string | Uint8Array)[] = [];
  private waitingBytes = 0;

  /**
   * `received` gets each message; `taken` follows the messages that came together; `closed` is called once, when the
   * other end is gone or sent something invalid.
   */
  constructor(
    stream: Duplex,
    received: (message: PipeMessage) => void,
    closed: () => void,
    taken: () => void = () => {},
  ) {
    this.stream = stream;
    const end = (): void => {
      if (this.isClosed) return;
      this.close();
      closed();
    };
    stream.on("data", (chunk: Buffer) => {
      if (this.isClosed) return;
      this.decoder.push(chunk);
      try {
        for (let cut = this.decoder.next(); cut && !this.isClosed; cut = this.decoder.next()) {
          if (cut.kind !== "payload") return end();
          received(parseMessage(cut.bytes));
        }
      } catch {
        // The other end is faulty, or not a server of this kind.
        end();
      }
      taken();
    });
    for (const event of ["end", "error", "close"]) stream.on(event, end);
  }

  /** Accepts large messages from now on, because the other end is authenticated. */
  trust(): void {
    this.decoder.limit = MAX_MESSAGE;
  }

  get isFull(): boolean {
    return this.stream.writableLength + this.waitingBytes > FULL_AT;
  }

  /** Calls back once the other end has read everything. */
  whenRead(read: () => void): void {
    this.stream.once("drain", read);
  }

  /** Sends a message given as pieces of its JSON text. The messages of one turn leave together. */
  send(...pieces: (string | Uint8Array)[]): void {
    if (this.isClosed) return;
    const { waiting } = this;
    if (waiting.length === 0) process.nextTick(() => this.flush());
    const length = countBytes(pieces);
    waiting.push(frames.headers.before(length), ...pieces);
    this.waitingBytes += length;
  }

  private flush(): void {
    const { stream, waiting } = this;
    this.waiting = [];
    this.waitingBytes = 0;
    if (this.isClosed || waiting.length === 0) return;
    if (waiting.every(isLittle)) {
      stream.write(joinPieces(waiting));
      return;
    }
    // Small pieces are copied together: a write costs more than copying 10 KB.
    let few: (string | Uint8Array)[] = [];
    stream.cork();
    for (const piece of waiting) {
      if (isLittle(piece)) few.push(piece);
      else {
        if (few.length > 0) stream.write(joinPieces(few));
        few = [];
        stream.write(piece);
      }
    }
    if (few.length > 0) stream.write(joinPieces(few));
    stream.uncork();
  }

  pause(): void {
    this.stream.pause();
  }

  resume(): void {
    this.stream.resume();
  }

  /** Closes after sending. The other end need not close its own. */
  close(): void {
    this.flush();
    this.isClosed = true;
    this.stream.end(() => this.stream.destroy());
  }

  /** Closes without waiting for the other end, which may be stopped: connections would add up. */
  drop(): void {
    this.isClosed = true;
    this.stream.destroy();
  }
}

function isLittle(piece: string | Uint8Array): boolean {
  return piece.length <= COPIED_AT_MOST;
}

/** Returns pieces of text as one. Adjacent strings are joined before they become bytes. */
function joinPieces(pieces: (string | Uint8Array)[]): string | Uint8Array {
  const parts: Uint8Array[] = [];
  let text = "";
  for (const piece of pieces) {
    if (typeof piece === "string") text += piece;
    else {
      if (text !== "") parts.push(Buffer.from(text));
      text = "";
      parts.push(piece);
    }
  }
  if (parts.length === 0) return text;
  if (text !== "") parts.push(Buffer.from(text));
  return Buffer.concat(parts);
}

/** Parses a message. Throws SyntaxError if it is not a JSON object. */
function parseMessage(bytes: Buffer): PipeMessage {
  const value = parseText(bytes.toString("utf8"));
  if (!isObject(value)) throw new SyntaxError("no message");
  return {
    value,
    text(name) {
      const found = findMember(getMembers(bytes, 0, bytes.length, findKnownValueEnd) ?? [], name);
      return found && bytes.subarray(found.start, found.end);
    },
  };
}
