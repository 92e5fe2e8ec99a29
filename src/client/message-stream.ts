/** JSON-RPC messages as lines over a pair of streams. */

import { constants } from "node:buffer";
import type { Readable, Writable } from "node:stream";

/** A JSON-RPC message. */
export interface RpcMessage {
  readonly id?: number | string | null;
  readonly method?: string;
  readonly params?: unknown;
  readonly result?: unknown;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: Record<string, unknown> };
}

const LF = 0x0a;

/** Bytes of a message that is too long that are kept, for its id. */
const BEGINNING = 200;

/** A connection. It ends when the server's output does, after handing on all messages that arrived. */
export class MessageStream {
  private readonly output: Writable;
  private readonly mostBytes: number;
  private handler: (message: RpcMessage) => void = () => {};
  private pieces: Buffer[] = [];
  /** Bytes of the message that has begun. */
  private length = 0;
  private hasEnded = false;
  /** Resolves when no message can come any more. */
  readonly ended: Promise<void>;

  /** `mostBytes`: of one message; a longer one does not fit into a string. */
  constructor(input: Readable, output: Writable, mostBytes = constants.MAX_STRING_LENGTH) {
    this.output = output;
    this.mostBytes = mostBytes;
    // Writing to a dead server fails; the end of its output reports the death.
    output.on("error", () => {});
    input.on("data", (chunk: Buffer) => this.take(chunk));
    this.ended = new Promise((resolve) => {
      const end = (): void => {
        this.hasEnded = true;
        resolve();
      };
      input.once("end", end);
      input.once("error", end);
      input.once("close", end);
    });
  }

  /** Sets the handler of messages. */
  onMessage(handler: (message: RpcMessage) => void): void {
    this.handler = handler;
  }

  /** True while the server is behind with reading. */
  get isFull(): boolean {
    return this.output.writableNeedDrain;
  }

  /** Calls back when the server has caught up. */
  onDrain(callback: () => void): void {
    this.output.on("drain", callback);
  }

  send(message: RpcMessage): void {
    this.sendText(JSON.stringify({ jsonrpc: "2.0", ...message }));
  }

  /** Sends a message that is JSON text already. */
  sendText(text: string): void {
    const { output } = this;
    if (this.hasEnded || !output.writable) return;
    // The messages of one turn of the event loop are written in one piece: a write of its own takes 20 us.
    if (output.writableCorked === 0) {
      output.cork();
      process.nextTick(() => output.uncork());
    }
    output.write(`${text}\n`);
  }

  end(): void {
    this.output.end();
  }

  private take(chunk: Buffer): void {
    let start = 0;
    for (let end = chunk.indexOf(LF); end >= 0; end = chunk.indexOf(LF, start)) {
      this.keep(chunk.subarray(start, end));
      const line = Buffer.concat(this.pieces).toString("utf8");
      const isWhole = this.length <= this.mostBytes;
      this.pieces = [];
      this.length = 0;
      start = end + 1;
      if (isWhole) this.receive(line);
      else this.refuse(line);
    }
    if (start < chunk.length) this.keep(chunk.subarray(start));
  }

  private keep(piece: Buffer): void {
    this.length += piece.length;
    if (this.length <= this.mostBytes) this.pieces.push(piece);
    else this.pieces = [Buffer.from((this.pieces[0] ?? piece).subarray(0, BEGINNING))];
  }

  private receive(line: string): void {
    let message: unknown;
    try {
      message = JSON.parse(line);
    } catch {
      // Not from a server of this protocol, for example a line that a wrapper printed.
      return;
    }
    // A wrapper may print JSON, too.
    if ((message as { jsonrpc?: unknown } | null)?.jsonrpc === "2.0") this.handler(message as RpcMessage);
  }

  /** Hands on a failure for a reply that is too large to hold. */
  private refuse(beginning: string): void {
    const [, id] = /^\{"jsonrpc":"2\.0","id":(\d+),/.exec(beginning) ?? [];
    if (id === undefined) return;
    const message = "The reply is too long for this process. Ask for less of it, or for pages with limit.";
    const data = { name: "message_too_large", retryable: false };
    this.handler({ id: Number(id), error: { code: -32803, message, data } });
  }
}
