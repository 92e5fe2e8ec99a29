/** The backend that keeps sessions in memory only: for `--no-session` and for unit tests. */

import { Failure } from "../core/failure.ts";
import type { Damage } from "../core/format/damage.ts";
import type { SessionHeader } from "../core/format/entry.ts";
import { addHead, HeadReader } from "../core/format/node-reader.ts";
import { readLine } from "../core/json/fast-path.ts";
import { concat, getMembers, splitLines } from "../core/json/json.ts";
import { NO_LOCK } from "../core/ports/lock.ts";
import { type Beginning, type Change, type Content, type Log, readContent, type Store } from "../core/ports/store.ts";
import { type Head, Nodes } from "../core/tree/nodes.ts";
import { LF } from "./log/lines.ts";

const NO_LINE = new Uint8Array(0);

class MemoryLog implements Log {
  readonly store = "memory";
  readonly file = null;
  readonly header: SessionHeader;
  readonly headerLine: Uint8Array;
  readonly version = 3;
  readonly nodes = new Nodes();
  readonly damage: readonly Damage[] = [];
  readonly readOnly = null;
  readonly persisted = false;
  readonly stamp = null;
  readonly isCommitDue = false;
  readonly isPlain = false;
  readonly replica = null;
  readonly container = null;
  readonly foreign = null;
  readonly lock = NO_LOCK;
  private readonly lines: Uint8Array[] = [];
  private readonly heads = new HeadReader(this.nodes);
  private closed = false;

  constructor(beginning: Beginning) {
    this.header = beginning.header;
    this.headerLine = beginning.headerLine;
  }

  get durableCount(): number {
    return this.nodes.count;
  }

  length(position: number): number {
    return this.lines[position].length;
  }

  read(position: number): Uint8Array {
    this.requireOpen();
    return this.lines[position];
  }

  *readMany(positions: ArrayLike<number>): Iterable<Uint8Array> {
    for (let i = 0; i < positions.length; i++) yield this.read(positions[i]);
  }

  *copy(positions: ArrayLike<number>): Iterable<Uint8Array> {
    for (let i = 0; i < positions.length; i++) yield concat([this.read(positions[i]), LF]);
  }

  private requireOpen(): void {
    if (this.closed) throw new Failure("storage_failed", "The session is closed. Open it again.");
  }

  append(lines: readonly Uint8Array[], { heads }: { heads?: readonly (Head | undefined)[] } = {}): void {
    this.requireOpen();
    for (const [i, line] of lines.entries()) {
      addHead(this.heads, this.nodes, line, heads?.[i]);
      this.lines.push(line);
    }
  }

  /** Releases the lines so far, which may not be read from now on; their nodes stay. */
  forget(): void {
    this.lines.fill(NO_LINE);
  }

  async commit(): Promise<void> {}

  rollBack(): void {}

  readonly mayHideEntries = false;

  refresh(): Change {
    return { kind: "none" };
  }

  reopen(): Log {
    return this;
  }

  attachment(): null {
    return null;
  }

  readonly repairable = [];

  repair(): null {
    return null;
  }

  outcome(): "certain" {
    return "certain";
  }

  takeFirstUncertain(): undefined {}

  settle(): void {}

  close(): void {
    this.closed = true;
  }

  discard(): void {
    this.close();
  }
}

export function makeMemoryStore(): { create(beginning: Beginning): MemoryLog } & Store {
  const publishNow = (beginning: Beginning, content: Content): Log => {
    const log = new MemoryLog(beginning);
    log.append(parseWholeLines(concat([...readContent(content)])));
    return log;
  };
  return {
    name: "memory",
    create: (beginning) => new MemoryLog(beginning),
    async publish(beginning, content) {
      if (!(Symbol.asyncIterator in content)) return publishNow(beginning, content);
      const pieces: Uint8Array[] = [];
      for await (const piece of content) pieces.push(Uint8Array.from(piece));
      return publishNow(beginning, pieces);
    },
    publishNow,
    open(file) {
      throw new Failure("session_not_found", `Sessions in memory have no file: ${file}`, { sessionPath: file });
    },
  };
}

/** Returns the lines that end with a line feed and are JSON objects. */
export function parseWholeLines(bytes: Uint8Array): Uint8Array[] {
  return [...splitLines(bytes.subarray(0, bytes.lastIndexOf(0x0a) + 1))].filter(isObject);
}

/** Returns whether a line is a JSON object. Usual ones are validated in a tenth of the time that finding members takes. */
function isObject(line: Uint8Array): boolean {
  return (line[0] === 0x7b && readLine(line) >= 0) || getMembers(line) !== null;
}
