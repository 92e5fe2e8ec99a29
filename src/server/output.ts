/** The way out: frames are gathered and written together, and a slow reader is noticed. */

import type { Writable } from "node:stream";
import type { Pieces } from "./dialect.ts";
import { byteLength, type Frame } from "./framing.ts";

/** Gathered text that is written without waiting for the end of the input chunk. */
const WRITE_AT = 1 << 16;
/** Bytes that are gathered with their neighbours; more are written by themselves. */
const SMALL = 4096;
/** Unread output beyond which nothing more is produced and no input is taken. */
const FULL_AT = 4 << 20;

/** A payload that is too large to lie in memory whole: its pieces are made while it is read. */
export class Large {
  readonly bytes: number;
  readonly pieces: () => Iterable<string | Uint8Array>;

  constructor(bytes: number, pieces: () => Iterable<string | Uint8Array>) {
    this.bytes = bytes;
    this.pieces = pieces;
  }
}

export class Output {
  private readonly stream: Writable;
  private readonly onRoom: () => void;
  /** What is gathered: bytes, and behind them text. */
  private block: Buffer | undefined;
  private begun = 0;
  private filled = 0;
  private text = "";
  private frame: Frame | undefined;
  private waiting = false;
  /** The rest of the large payload that is on its way, and what is to follow it. */
  private flowing: Iterator<string | Uint8Array> | undefined;
  private readonly queue: (Pieces | Large)[] = [];
  private whenThrough: (() => void)[] = [];

  /** `onRoom` is called when the reader has caught up after {@link hasRoom} was false. */
  constructor(stream: Writable, onRoom: () => void) {
    this.stream = stream;
    this.onRoom = onRoom;
    stream.once("close", () => {
      this.queue.length = 0;
      this.through();
    });
  }

  frameWith(frame: Frame): void {
    this.frame = frame;
  }

  get hasRoom(): boolean {
    return this.flowing === undefined && this.unread < FULL_AT;
  }

  private get unread(): number {
    return this.stream.writableLength + this.text.length + this.filled - this.begun;
  }

  send(message: Pieces | Large): void {
    const { frame } = this;
    if (!frame) throw new TypeError("nothing can be sent before the framing is known");
    if (this.flowing) this.queue.push(message);
    else if (message instanceof Large) {
      this.put(frame.before(message.bytes));
      this.flowing = message.pieces()[Symbol.iterator]();
      this.flow();
    } else {
      if (frame.counts) this.put(frame.before(byteLength(message)));
      for (const piece of message) this.put(frame.piece(piece));
      this.put(frame.behind);
    }
  }

  /** Writes of a large payload as much as there is room for. */
  private flow(): void {
    const frame = this.frame as Frame;
    try {
      while (this.flowing && this.unread < FULL_AT) {
        const { done, value } = this.flowing.next();
        if (!done) this.put(frame.piece(value));
        else {
          this.put(frame.behind);
          this.through();
        }
      }
      this.flush();
    } catch (error) {
      // Half of the reply is out; an end of the stream is all that tells the reader.
      this.queue.length = 0;
      this.through();
      this.stream.destroy(error as Error);
    }
  }

  private through(): void {
    this.flowing = undefined;
    const { queue, whenThrough } = this;
    while (queue.length > 0 && !this.flowing) this.send(queue.shift() as Pieces | Large);
    if (this.flowing) return;
    this.whenThrough = [];
    for (const wake of whenThrough) wake();
  }

  /** Makes all of a large payload that is on its way: what its pieces come from is about to go. */
  hold(): void {
    if (!this.flowing) return;
    const rest: (string | Uint8Array)[] = [];
    for (let next = this.flowing.next(); !next.done; next = this.flowing.next()) rest.push(next.value);
    this.flowing = rest.values();
  }

  /** Bytes of the frame that would be sent for these pieces. */
  sizeOf(pieces: Iterable<string | Uint8Array>): number {
    const { frame } = this;
    if (!frame) return byteLength(pieces);
    let bytes = byteLength([frame.behind]);
    let plain = 0;
    for (const piece of pieces) {
      const put = frame.piece(piece);
      const size = typeof put === "string" ? Buffer.byteLength(put) : put.length;
      bytes += size;
      plain += size;
    }
    return bytes + byteLength([frame.before(plain)]);
  }

  private put(piece: string | Uint8Array): void {
    if (typeof piece === "string") this.text += piece;
    else if (piece.length < SMALL) {
      this.moveText();
      this.makeRoom(piece.length).set(piece, this.filled);
      this.filled += piece.length;
    } else {
      this.writeGathered();
      this.stream.write(piece);
    }
    if (this.text.length + this.filled - this.begun >= WRITE_AT) this.flush();
  }

  /** Text that bytes follow joins the bytes before it: texts alone are faster to join as what they are. */
  private moveText(): void {
    const { text } = this;
    if (text === "") return;
    this.text = "";
    const most = text.length * 3;
    if (most > WRITE_AT) {
      this.writeBlock();
      this.stream.write(text);
      return;
    }
    const block = this.makeRoom(most);
    this.filled += block.write(text, this.filled);
  }

  /** The block, with room for that many bytes behind what is in it. */
  private makeRoom(bytes: number): Buffer {
    if (this.block && this.filled + bytes <= this.block.length) return this.block;
    this.writeBlock();
    this.block = Buffer.allocUnsafe(2 * WRITE_AT);
    this.begun = 0;
    this.filled = 0;
    return this.block;
  }

  /** Hands everything to the stream. */
  flush(): void {
    this.writeGathered();
    if (this.waiting || this.stream.writableLength < FULL_AT) return;
    this.waiting = true;
    this.stream.once("drain", () => {
      this.waiting = false;
      if (this.flowing) this.flow();
      if (this.hasRoom) this.onRoom();
    });
  }

  /** Resolves when the stream has taken everything, or is gone. */
  async drained(): Promise<void> {
    this.writeGathered();
    while (this.flowing && !this.stream.destroyed) await new Promise<void>((resolve) => this.whenThrough.push(resolve));
    this.writeGathered();
    if (this.stream.destroyed || this.stream.writableLength === 0) return;
    await new Promise<void>((resolve) => {
      this.stream.write("", () => resolve());
      this.stream.once("close", () => resolve());
    });
  }

  private writeGathered(): void {
    this.writeBlock();
    if (this.text === "") return;
    const { text } = this;
    this.text = "";
    this.stream.write(text);
  }

  private writeBlock(): void {
    if (!this.block || this.filled === this.begun) return;
    // What is behind it in the block is used next.
    this.stream.write(this.block.subarray(this.begun, this.filled));
    this.begun = this.filled;
  }
}
