/** JSON-RPC messages as lines over a pair of streams. */

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

/** A connection. It ends when the server's output does; what had come until then is handed on before. */
export class MessageStream {
  private readonly output: Writable;
  private handler: (message: RpcMessage) => void = () => {};
  private pieces: Buffer[] = [];
  private hasEnded = false;
  /** Resolves when no message can come any more. */
  readonly ended: Promise<void>;

  constructor(input: Readable, output: Writable) {
    this.output = output;
    // Writing to a server that has died fails; that it died is told by its output.
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

  /** Sets what is called for each message. */
  onMessage(handler: (message: RpcMessage) => void): void {
    this.handler = handler;
  }

  /** Whether the server is behind with reading. */
  get isFull(): boolean {
    return this.output.writableNeedDrain;
  }

  /** Calls back when the server has caught up. */
  onDrain(callback: () => void): void {
    this.output.on("drain", callback);
  }

  send(message: RpcMessage): void {
    if (!this.hasEnded && this.output.writable)
      this.output.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
  }

  end(): void {
    this.output.end();
  }

  private take(chunk: Buffer): void {
    let start = 0;
    for (let end = chunk.indexOf(LF); end >= 0; end = chunk.indexOf(LF, start)) {
      this.pieces.push(chunk.subarray(start, end));
      const line = Buffer.concat(this.pieces).toString("utf8");
      this.pieces = [];
      start = end + 1;
      this.receive(line);
    }
    if (start < chunk.length) this.pieces.push(chunk.subarray(start));
  }

  private receive(line: string): void {
    let message: unknown;
    try {
      message = JSON.parse(line);
    } catch {
      // Not from a server of this protocol, for example a line that a wrapper printed.
      return;
    }
    if (typeof message === "object" && message !== null) this.handler(message as RpcMessage);
  }
}
