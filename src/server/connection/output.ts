/** Buffers outgoing frames, writes them in batches, and applies backpressure. */

import type { Writable } from "node:stream";
import { isSpooled, type Spooled } from "../../core/ports/spool.ts";
import { countBytes, type Envelope } from "./framing.ts";

/** Size of gathered output that is written without waiting for the end of the input chunk. */
const WRITE_AT = 1 << 16;
/** Bytes of a piece that is written by itself; smaller ones are gathered with their neighbours. */
const SMALL = 4096;
/** Size of unread output at which input and further output pause. */
const FULL_AT = 4 << 20;

/** A payload: pieces in memory, and spooled pieces, which wait in a file. */
export type OutgoingMessage = readonly (string | Uint8Array | Spooled)[];

export class Output {
  private readonly stream: Writable;
  private readonly onDrain: () => void;
  /** The gathered output: bytes of `block` from `begun` to `filled`, and after them `text`. */
  private block: Buffer | undefined;
  private begun = 0;
  private filled = 0;
  private text = "";
  private frame: Envelope | undefined;
  private waiting = false;
  private gone = false;
  /** True if a message was dropped because the reader had gone. */
  hasDropped = false;
  /** The rest of the large message that is being written, in its frame; `queue` has those that follow. */
  private flowing: Generator<string | Uint8Array> | undefined;
  private large: OutgoingMessage = [];
  private readonly queue: { message: OutgoingMessage; isLine: boolean }[] = [];
  private whenThrough: (() => void)[] = [];

  /** Creates an output. `onDrain` is called when the reader has caught up after {@link hasCapacity} was false. */
  constructor(stream: Writable, onDrain: () => void) {
    this.stream = stream;
    this.onDrain = onDrain;
    stream.once("close", () => {
      this.discard();
      onDrain();
    });
  }

  frameWith(frame: Envelope): void {
    this.frame = frame;
  }

  /** True if more may be sent. A closed stream has room: received calls still run, and their replies are dropped. */
  get hasCapacity(): boolean {
    return this.gone || (this.flowing === undefined && this.unread < FULL_AT);
  }

  /** True if the reader has gone, so that all output is lost. */
  get isGone(): boolean {
    return this.gone;
  }

  private get unread(): number {
    return this.stream.writableLength + this.text.length + this.filled - this.begun;
  }

  send(message: OutgoingMessage): void {
    const { frame } = this;
    if (!frame) throw new TypeError("nothing can be sent before the framing is known");
    if (this.gone) this.drop(message);
    else if (this.flowing) this.queue.push({ message, isLine: false });
    else if (isInMemory(message)) {
      if (frame.counts) this.put(frame.before(countBytes(message)));
      for (const piece of message) this.put(frame.piece(piece));
      this.put(frame.after);
    } else {
      this.large = message;
      this.flowing = framed(frame, message);
      this.flow();
    }
  }

  /** Sends a line of another program, which ends with a line feed, without changing any of its bytes. */
  sendLine(line: Buffer): void {
    const { frame } = this;
    if (!frame) throw new TypeError("nothing can be sent before the framing is known");
    if (this.gone) return;
    if (this.flowing) this.queue.push({ message: [line], isLine: true });
    else if (frame.counts) {
      const payload = line.subarray(0, -1);
      this.put(frame.before(payload.length));
      this.put(payload);
    } else this.put(line);
  }

  /** Writes a large message as far as there is room. */
  private flow(): void {
    try {
      while (this.flowing && this.unread < FULL_AT) {
        const { done, value } = this.flowing.next();
        if (done) this.through();
        else this.put(value);
      }
      this.flush();
    } catch (error) {
      // Half of the message is out, and only the end of the stream can show that to the reader.
      this.discard();
      this.stream.destroy(error as Error);
    }
  }

  private through(): void {
    this.flowing = undefined;
    const { queue } = this;
    for (let next = queue[0]; next && !this.flowing; next = queue[0]) {
      queue.shift();
      if (next.isLine) this.sendLine(next.message[0] as Buffer);
      else this.send(next.message);
    }
    if (!this.flowing) this.wake();
  }

  private drop(message: OutgoingMessage): void {
    this.hasDropped = true;
    releaseSpooled(message);
  }

  private write(bytes: string | Uint8Array): void {
    if (this.stream.destroyed) this.hasDropped = true;
    this.stream.write(bytes);
  }

  private wake(): void {
    const { whenThrough } = this;
    this.whenThrough = [];
    for (const wake of whenThrough) wake();
  }

  /** Drops all output, because it has no reader any more. */
  private discard(): void {
    this.gone = true;
    if (this.flowing || this.unread > 0) this.hasDropped = true;
    this.flowing = undefined;
    this.text = "";
    this.begun = this.filled;
    for (const message of [this.large, ...this.queue.splice(0).map((queued) => queued.message)])
      releaseSpooled(message);
    this.wake();
  }

  /** Returns the bytes of the frame that would be sent for these pieces. */
  sizeOf(pieces: Iterable<string | Uint8Array | Spooled>): number {
    const { frame } = this;
    let plain = 0;
    for (const piece of pieces)
      plain += isSpooled(piece) ? piece.bytes : countBytes([frame ? frame.piece(piece) : piece]);
    return frame ? plain + countBytes([frame.after, frame.before(plain)]) : plain;
  }

  /** Yields the pieces as they are between the ends of a frame. */
  *inFrame(pieces: Iterable<string | Uint8Array>): Generator<string | Uint8Array> {
    const { frame } = this;
    if (!frame) throw new TypeError("nothing can be made ready before the framing is known");
    for (const piece of pieces) yield frame.piece(piece);
  }

  private put(piece: string | Uint8Array): void {
    if (this.gone) return;
    if (typeof piece === "string") this.text += piece;
    else if (piece.length < SMALL) {
      this.moveText();
      this.reserve(piece.length).set(piece, this.filled);
      this.filled += piece.length;
    } else {
      this.writeGathered();
      this.write(piece);
    }
    if (this.text.length + this.filled - this.begun >= WRITE_AT) this.flush();
  }

  /** Moves text to the bytes before it, because bytes follow. Texts alone are faster to join as strings. */
  private moveText(): void {
    const { text } = this;
    if (text === "") return;
    this.text = "";
    const most = text.length * 3;
    if (most > WRITE_AT) {
      this.writeBlock();
      this.write(text);
      return;
    }
    const block = this.reserve(most);
    this.filled += block.write(text, this.filled);
  }

  private reserve(bytes: number): Buffer {
    if (this.block && this.filled + bytes <= this.block.length) return this.block;
    this.writeBlock();
    this.block = Buffer.allocUnsafe(2 * WRITE_AT);
    this.begun = 0;
    this.filled = 0;
    return this.block;
  }

  flush(): void {
    this.writeGathered();
    if (this.waiting || this.stream.writableLength < FULL_AT) return;
    this.waiting = true;
    this.stream.once("drain", () => {
      this.waiting = false;
      if (this.flowing) this.flow();
      if (this.hasCapacity) this.onDrain();
    });
  }

  /** Resolves when the stream has accepted everything, or is closed. */
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
    this.write(text);
  }

  private writeBlock(): void {
    if (!this.block || this.filled === this.begun) return;
    // The rest of the block is used next.
    this.write(this.block.subarray(this.begun, this.filled));
    this.begun = this.filled;
  }
}

function isInMemory(message: OutgoingMessage): message is readonly (string | Uint8Array)[] {
  for (const piece of message) if (isSpooled(piece)) return false;
  return true;
}

/** Yields the bytes of a message in its frame. Spooled pieces were stored in the form that the frame needs. */
function* framed(frame: Envelope, message: OutgoingMessage): Generator<string | Uint8Array> {
  const pieces = message.map((piece) => (isSpooled(piece) ? piece : frame.piece(piece)));
  let bytes = 0;
  for (const piece of pieces) bytes += isSpooled(piece) ? piece.bytes : countBytes([piece]);
  yield frame.before(bytes);
  for (const piece of pieces)
    if (isSpooled(piece)) yield* piece.blocks();
    else yield piece;
  yield frame.after;
}

export function releaseSpooled(message: OutgoingMessage): void {
  for (const piece of message) if (isSpooled(piece)) piece.release();
}

/** Returns messages as one that is an array of them. */
export function joinAsArray(parts: readonly OutgoingMessage[]): OutgoingMessage {
  const pieces: OutgoingMessage[number][] = [];
  for (const part of parts) {
    pieces.push(pieces.length === 0 ? "[" : ",", ...part);
  }
  pieces.push("]");
  return pieces;
}

/** Yields the values taken from an iterator, and then the rest of it. Empties `taken` to free its memory. */
export function* chain<T>(taken: T[], rest: Iterator<T>): Generator<T> {
  for (const one of taken) yield one;
  taken.length = 0;
  for (let next = rest.next(); !next.done; next = rest.next()) yield next.value;
}
