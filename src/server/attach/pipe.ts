/** Messages between a holder and those who joined it: JSON objects over a stream, framed by Content-Length. */

import type { Duplex } from "node:stream";
import { memberOf, members, parseText } from "../../core/json/json.ts";
import { AutoDecoder, byteLength, type Decoder, frames } from "../connection/framing.ts";

/** Bytes of a message from the other end at most; an append of the largest allowed size fits. */
const MAX_MESSAGE = 1 << 30;
/** Bytes that the other end has not read at which events are no longer sent. */
const FULL_AT = 4 << 20;

/** A message as it came: its value, and its bytes for what is passed on unchanged. */
export interface PipeMessage {
  readonly value: Readonly<Record<string, unknown>>;
  /** Returns the JSON text of a member; undefined when there is none. */
  text(name: string): Uint8Array | undefined;
}

export class Pipe {
  private readonly stream: Duplex;
  private readonly decoder: Decoder = new AutoDecoder(MAX_MESSAGE).decide("headers");
  private isClosed = false;

  /**
   * `received` gets each message, and `taken` is called when those that came together were received; `closed` is called
   * once, when the other end is gone or sent what is no message.
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
          received(messageOf(cut.bytes));
        }
      } catch {
        // The other end is not one of us, or broken.
        end();
      }
      taken();
    });
    for (const event of ["end", "error", "close"]) stream.on(event, end);
  }

  get isFull(): boolean {
    return this.stream.writableLength > FULL_AT;
  }

  /** Calls back once the other end has read everything. */
  whenRead(read: () => void): void {
    this.stream.once("drain", read);
  }

  /** Sends a message that is given as pieces of its JSON text. */
  send(...pieces: (string | Uint8Array)[]): void {
    if (this.isClosed) return;
    const { stream } = this;
    stream.cork();
    stream.write(frames.headers.before(byteLength(pieces)));
    for (const piece of pieces) stream.write(piece);
    process.nextTick(() => stream.uncork());
  }

  pause(): void {
    this.stream.pause();
  }

  resume(): void {
    this.stream.resume();
  }

  /** Closes once what was sent is on its way. The other end need not close its own. */
  close(): void {
    this.isClosed = true;
    this.stream.end(() => this.stream.destroy());
  }

  /** Closes without waiting for the other end, which may be stopped: connections would add up. */
  drop(): void {
    this.isClosed = true;
    this.stream.destroy();
  }
}

/** Returns the message that bytes hold. Throws SyntaxError when they are no JSON object. */
function messageOf(bytes: Buffer): PipeMessage {
  const value = parseText(bytes.toString("utf8"));
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new SyntaxError("no message");
  return {
    value: value as PipeMessage["value"],
    text(name) {
      const found = memberOf(members(bytes) ?? [], name);
      return found && bytes.subarray(found.start, found.end);
    },
  };
}
