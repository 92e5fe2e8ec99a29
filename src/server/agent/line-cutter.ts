/** Cuts what an agent says into lines, whose bytes stay as they are, and tells what those are that are dropped. */

/** Bytes of a line over the limit that are kept: enough for its type and id. */
const KEPT = 4096;
const LF = 0x0a;

/** The receiver of lines. */
export interface LineSink {
  /** Takes a line with its line feed. It is valid as long as it is referred to. */
  line(bytes: Buffer): void;
  /** Takes the beginning of a line that was over the limit and is dropped. */
  tooLong(beginning: Buffer, size: number): void;
}

export class LineCutter {
  private readonly sink: LineSink;
  private readonly limit: number;
  /** Pieces of a line whose end has not come. */
  private held: Buffer[] = [];
  private heldBytes = 0;
  /** The line that is being dropped. */
  private dropped: { readonly beginning: Buffer; size: number } | undefined;

  constructor(sink: LineSink, limit: number) {
    this.sink = sink;
    this.limit = limit;
  }

  push(chunk: Buffer): void {
    let from = 0;
    while (from < chunk.length) {
      const end = chunk.indexOf(LF, from);
      if (end < 0) return this.hold(chunk.subarray(from));
      this.take(chunk.subarray(from, end + 1));
      from = end + 1;
    }
  }

  /** Gives out what came after the last line feed. */
  end(): void {
    if (this.heldBytes > 0 || this.dropped) this.take(Buffer.from("\n"));
  }

  private take(rest: Buffer): void {
    const { dropped } = this;
    if (dropped) {
      this.dropped = undefined;
      this.sink.tooLong(dropped.beginning, dropped.size + rest.length - 1);
      return;
    }
    if (this.heldBytes === 0) return this.sink.line(rest);
    const line = Buffer.concat([...this.held, rest]);
    this.held = [];
    this.heldBytes = 0;
    this.sink.line(line);
  }

  private hold(piece: Buffer): void {
    if (this.dropped) {
      this.dropped.size += piece.length;
      return;
    }
    this.held.push(piece);
    this.heldBytes += piece.length;
    if (this.heldBytes <= this.limit) return;
    const beginning = Buffer.from(Buffer.concat(this.held, this.heldBytes).subarray(0, KEPT));
    this.dropped = { beginning, size: this.heldBytes };
    this.held = [];
    this.heldBytes = 0;
  }
}

/** The message of JSON-RPC that a dropped line was. */
interface DroppedMessage {
  /** JSON text of its id. */
  readonly idText: string;
  readonly isReply: boolean;
}

const OF_MESSAGE =
  /^\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?(\s*"method"\s*:\s*"[^"\\]*"\s*,)?\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)\s*,\s*("method")?/;

/** Returns what a line was, as far as its beginning tells: the usual members in their usual order. */
export function droppedMessage(beginning: Buffer): DroppedMessage | undefined {
  const found = OF_MESSAGE.exec(beginning.toString("utf8"));
  return found ? { idText: found[2], isReply: (found[1] ?? found[3]) === undefined } : undefined;
}
