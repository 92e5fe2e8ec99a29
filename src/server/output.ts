/** The way out: frames are gathered and written together, and a slow reader is noticed. */

import type { Writable } from "node:stream";
import type { Encoder } from "./framing.ts";

/** Gathered text that is written without waiting for the end of the input chunk. */
const WRITE_AT = 1 << 16;
/** Bytes that are gathered with their neighbours; more are written by themselves. */
const SMALL = 4096;
/** Unread output beyond which nothing more is produced and no input is taken. */
const FULL_AT = 4 << 20;

export class Output {
  private readonly stream: Writable;
  private readonly onRoom: () => void;
  private text = "";
  private encode: Encoder | undefined;
  private waiting = false;

  /** `onRoom` is called when the reader has caught up after {@link hasRoom} was false. */
  constructor(stream: Writable, onRoom: () => void) {
    this.stream = stream;
    this.onRoom = onRoom;
  }

  frameWith(encode: Encoder): void {
    this.encode = encode;
  }

  get hasRoom(): boolean {
    return this.stream.writableLength + this.text.length < FULL_AT;
  }

  send(pieces: (string | Uint8Array)[]): void {
    if (!this.encode) throw new TypeError("nothing can be sent before the framing is known");
    for (const piece of this.encode(pieces)) {
      if (typeof piece === "string") this.text += piece;
      // Pieces are cut between characters, so that each is text by itself.
      else if (piece.length < SMALL) this.text += Buffer.from(piece.buffer, piece.byteOffset, piece.length).toString();
      else {
        this.writeText();
        this.stream.write(piece);
      }
      if (this.text.length >= WRITE_AT) this.flush();
    }
  }

  /** Bytes of the frame that would be sent for these pieces. */
  sizeOf(pieces: (string | Uint8Array)[]): number {
    let bytes = 0;
    for (const piece of this.encode?.(pieces) ?? pieces)
      bytes += typeof piece === "string" ? Buffer.byteLength(piece) : piece.length;
    return bytes;
  }

  /** Hands everything to the stream. */
  flush(): void {
    this.writeText();
    if (this.waiting || this.stream.writableLength < FULL_AT) return;
    this.waiting = true;
    this.stream.once("drain", () => {
      this.waiting = false;
      this.onRoom();
    });
  }

  /** Resolves when the stream has taken everything, or is gone. */
  async drained(): Promise<void> {
    this.writeText();
    if (this.stream.destroyed || this.stream.writableLength === 0) return;
    await new Promise<void>((resolve) => {
      this.stream.write("", () => resolve());
      this.stream.once("close", () => resolve());
    });
  }

  private writeText(): void {
    if (this.text === "") return;
    const { text } = this;
    this.text = "";
    this.stream.write(text);
  }
}
