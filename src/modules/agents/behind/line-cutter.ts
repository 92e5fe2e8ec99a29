/** Cuts the output of an agent into lines, whose bytes stay unchanged, and identifies dropped ones. */

import { type Cut, LineDecoder } from "../../../server/connection/framing.ts";

/** The receiver of lines. */
export interface LineSink {
  /** Takes a line with its line feed. Its bytes are not reused. */
  line(bytes: Buffer): void;
  /** Takes the beginning of a line that was over the limit and is dropped. */
  tooLong(beginning: Buffer, size: number): void;
}

export class LineCutter {
  private readonly sink: LineSink;
  private readonly decoder: LineDecoder;

  constructor(sink: LineSink, limit: number) {
    this.sink = sink;
    this.decoder = new LineDecoder(limit, true);
  }

  push(chunk: Buffer): void {
    this.decoder.push(chunk);
    for (let cut = this.decoder.next(); cut; cut = this.decoder.next()) this.take(cut);
  }

  /** Passes on the bytes after the last line feed. */
  end(): void {
    const cut = this.decoder.end();
    if (cut) this.take(cut);
  }

  private take(cut: Cut): void {
    if (cut.kind === "payload") this.sink.line(cut.bytes);
    else if (cut.kind === "too_large") this.sink.tooLong(cut.bytes, cut.size ?? 0);
  }
}

/** The JSON-RPC message of a dropped line. */
interface DroppedMessage {
  /** JSON text of its id. */
  readonly idText: string;
  readonly isReply: boolean;
}

const OF_MESSAGE =
  /^\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?(\s*"method"\s*:\s*"[^"\\]*"\s*,)?\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*,\s*("method")?/;

/** Parses the beginning of a dropped line: the usual members in their usual order. */
export function parseDroppedMessage(beginning: Buffer): DroppedMessage | undefined {
  const found = OF_MESSAGE.exec(beginning.toString("utf8"));
  return found ? { idText: found[2], isReply: (found[1] ?? found[3]) === undefined } : undefined;
}
