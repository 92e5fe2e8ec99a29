/**
 * Rows: the facts of session files. A list has many and needs little of each: that is parsed, and the rest stays the
 * text of the catalog's file, so that a new process need not parse it.
 */

import { crc32 } from "node:zlib";
import type { Listed } from "../../core/ports/catalog.ts";
import { parseTime } from "../../core/search/listing.ts";
import { isContainerName } from "../fs/container-paths.ts";
import type { FoundStamp } from "../fs/stamps.ts";
import { getModified, type SessionSummary } from "./summary.ts";
import type { SessionUsage } from "./usage-record.ts";

/** A session file as it was read. */
export interface SessionFacts {
  readonly stamp: FoundStamp;
  /** Time of the last change of the session, in milliseconds. */
  readonly time: number;
  readonly base: SessionSummary;
  readonly now: SessionSummary;
  readonly size: number;
  /** An id that changes when the file is rewritten, which invalidates its index. */
  readonly life: string;
  /** True if the file cannot have changed since without a change of its stamp. */
  readonly sure: boolean;
}

/** The parsed values except the path, in the order of the catalog's file. */
type RowHead = readonly [
  session: string,
  cwd: string | null,
  timestamp: string | null,
  messages: number,
  time: number,
  size: number,
  name: string | null,
  parentSession: string | null,
  modified: number | null,
  flags: number,
  agent: string | null,
  state: string,
  mark: string,
  device: number,
  inode: number,
  stampSize: number,
  stampModified: number,
  stampChanged: number,
];
const VALUES = 18;

/** A row as texts: its path, the parsed values, and all facts of the file. */
export interface RowTexts {
  readonly path: string;
  readonly head: string;
  readonly record: string;
}

const FLAG = { headerOnly: 1, plain: 2, batch: 4, oddTexts: 8, inner: 16, damaged: 32, labels: 64 };
/** The change time of a stamp that never matches. */
const NEVER = -1;

/** Returns the checksum of a row, which detects bytes that changed without SQLite. */
export function computeChecksum({ path, head, record }: RowTexts): number {
  return crc32(record, crc32(head, crc32(path)));
}

export class SessionRow implements Listed {
  readonly path: string;
  readonly id: string;
  readonly cwd: string | null;
  readonly timestamp: string | null;
  readonly messageCount: number;
  /** As in the facts, in whole milliseconds: pi_agent_rust compares it with the time of the file. */
  readonly time: number;
  readonly sizeBytes: number;
  readonly name: string | null;
  readonly parentSession: string | null;
  readonly modified: number | null;
  private readonly flags: number;
  readonly agent: string | undefined;
  /** The index state of the session when all its texts are indexed. */
  readonly state: string;
  /** The mark of its base. */
  readonly mark: string;
  readonly stamp: FoundStamp;
  readonly sure: boolean;
  readonly record: string;
  readonly archived: boolean;
  /** Checksum of its row in the catalog. */
  readonly sum: number;
  /** Its usage, once that is counted. */
  readonly usage: SessionUsage | undefined;
  private made: Listed | undefined;

  /** Returns the row of a file as it was read. */
  static of(path: string, archived: boolean, facts: SessionFacts, usage?: SessionUsage): SessionRow {
    const { stamp, time, base, now, size, life, sure } = facts;
    const texts = storableTexts(now);
    const isOdd = TEXTS.some((name) => texts[name] !== now[name]);
    const flags =
      (now.entries === 0 ? FLAG.headerOnly : 0) |
      (now.plain ? FLAG.plain : 0) |
      (now.batch ? FLAG.batch : 0) |
      (isOdd ? FLAG.oddTexts : 0) |
      (base.inner ? FLAG.inner : 0) |
      (now.damaged ? FLAG.damaged : 0) |
      (now.labels ? FLAG.labels : 0);
    const state = `${life} ${now.plain ? "p" : "l"} ${base.reach} ${size}`;
    const { id, cwd, timestamp, name } = texts;
    const { messages, parentSession, agent = null } = now;
    const record = recordOf(base, now, isOdd);
    const { device, inode, size: stampSize, modified, changed } = stamp;
    const head: RowHead = [
      ...([id, cwd, timestamp, messages, Math.floor(time), size, name, parentSession, getModified(now)] as const),
      ...([flags, agent, state, base.mark, device, inode, stampSize, modified, sure ? changed : NEVER] as const),
    ];
    const sum = computeChecksum({ path, head: JSON.stringify(head), record });
    return new SessionRow(path, head, record, archived, sum, sure ? undefined : stamp, usage);
  }

  /** Returns a row that was stored; undefined when it is not valid. */
  static stored({ path, head, record }: RowTexts, archived: boolean, sum: number): SessionRow | undefined {
    try {
      const values = JSON.parse(head) as RowHead;
      return values.length === VALUES ? new SessionRow(path, values, record, archived, sum) : undefined;
    } catch {
      return undefined;
    }
  }

  private constructor(
    path: string,
    head: RowHead,
    record: string,
    archived: boolean,
    sum: number,
    unsure?: FoundStamp,
    usage?: SessionUsage,
  ) {
    const [id, cwd, timestamp, messages, time, sizeBytes, name, parentSession, modified] = head;
    this.path = path;
    this.id = id;
    this.cwd = cwd;
    this.timestamp = timestamp;
    this.messageCount = messages;
    this.time = time;
    this.sizeBytes = sizeBytes;
    this.name = name;
    this.parentSession = parentSession;
    this.modified = modified;
    this.flags = head[9];
    this.agent = head[10] ?? undefined;
    this.state = head[11];
    this.mark = head[12];
    this.stamp = unsure ?? {
      device: head[13],
      inode: head[14],
      size: head[15],
      modified: head[16],
      changed: head[17],
    };
    this.sure = unsure === undefined;
    this.record = record;
    this.archived = archived;
    this.sum = sum;
    this.usage = usage;
    this.made = undefined;
    // A text that SQLite would not return unchanged is in the record.
    if (this.flags & FLAG.oddTexts) {
      const { now } = this.facts;
      this.id = now.id;
      this.cwd = now.cwd;
      this.timestamp = now.timestamp;
      this.name = now.name;
    }
  }

  /** Everything that was read of the file. It is parsed each time. */
  get facts(): SessionFacts {
    const [first, rest, ofBase] = this.record.split("\n").map((line) => JSON.parse(line));
    const { id, cwd, timestamp, messageCount: messages, name, parentSession, plain, batch, agent, mark } = this;
    const atHand = { id, cwd, timestamp, messages, name, parentSession, plain, batch, agent, mark, first };
    const now: SessionSummary = { ...atHand, ...rest, ...(this.isDamaged ? { damaged: true } : {}) };
    const { stamp, time, sizeBytes: size, life, sure } = this;
    return { stamp, time, base: ofBase ?? now, now, size, life, sure };
  }

  private get values(): RowHead {
    const { id, cwd, timestamp, name } = this.flags & FLAG.oddTexts ? storableTexts(this) : this;
    const { messageCount, time, sizeBytes, parentSession, modified } = this;
    const { flags, agent = null, state, mark, stamp, sure } = this;
    const { device, inode, size, modified: stampModified, changed } = stamp;
    return [
      ...([id, cwd, timestamp, messageCount, time, sizeBytes, name, parentSession, modified] as const),
      ...([flags, agent, state, mark, device, inode, size, stampModified, sure ? changed : NEVER] as const),
    ];
  }

  /** As the catalog's file has it. */
  get head(): string {
    return JSON.stringify(this.values);
  }

  get life(): string {
    return this.state.slice(0, this.state.indexOf(" "));
  }

  get isDamaged(): true | undefined {
    return (this.flags & FLAG.damaged) !== 0 || undefined;
  }

  /** True if all entries are on one path, as in {@link SessionSummary.plain}. */
  get plain(): boolean {
    return (this.flags & FLAG.plain) !== 0;
  }

  /** As in the summary. */
  get batch(): boolean {
    return (this.flags & FLAG.batch) !== 0;
  }

  /** As in the summary. */
  get inner(): readonly string[] | undefined {
    return this.flags & FLAG.inner ? this.facts.base.inner : undefined;
  }

  get labels(): readonly string[] | undefined {
    return this.flags & FLAG.labels ? Object.values(this.facts.now.labels ?? {}) : undefined;
  }

  get created(): number | null {
    return parseTime(this.timestamp);
  }

  get firstMessage(): string | null {
    return JSON.parse(this.record.slice(0, this.record.indexOf("\n")));
  }

  get headerOnly(): boolean {
    return (this.flags & FLAG.headerOnly) !== 0;
  }

  get store(): Listed["store"] {
    return this.agent !== undefined ? "foreign" : isContainerName(this.path) ? "v2" : "jsonl";
  }

  get cost(): number | undefined {
    return this.usage?.cost;
  }

  /** The session for a list, without the rest. It is made once: pages are asked for again. */
  get listed(): Listed {
    this.made ??= this.toListed();
    return this.made;
  }

  private toListed(): Listed {
    const { path, id, cwd, name, parentSession, created, modified, messageCount, firstMessage, sizeBytes } = this;
    const { headerOnly, archived, store, agent, cost, labels } = this;
    const known = { path, id, cwd, name, parentSession, created, modified, messageCount, firstMessage, sizeBytes };
    return {
      ...known,
      headerOnly,
      archived,
      store,
      agent,
      cost,
      ...(this.isDamaged ? { isDamaged: true as const } : {}),
      ...(labels ? { labels } : {}),
    };
  }

  withUsage(usage: SessionUsage): SessionRow {
    const { path, values, record, archived, sum, sure, stamp } = this;
    return new SessionRow(path, values, record, archived, sum, sure ? undefined : stamp, usage);
  }

  /** Returns the row of the same file under another path. */
  movedTo(path: string, archived: boolean, stamp: FoundStamp): SessionRow {
    return SessionRow.of(path, archived, { ...this.facts, stamp }, this.usage);
  }
}

/**
 * Returns two summaries as lines of JSON: the first message, which lists need; the other facts except the parsed
 * values; and the base if it differs, else null.
 */
function recordOf(base: SessionSummary, now: SessionSummary, isOdd: boolean): string {
  const { first, reach, entries, activity, last, inner, labels, id, cwd, timestamp, name } = now;
  const rest = { reach, entries, activity, last, inner, labels, ...(isOdd ? { id, cwd, timestamp, name } : {}) };
  const ofBase = base === now ? "null" : JSON.stringify(base);
  return [JSON.stringify(first), JSON.stringify(rest), ofBase === JSON.stringify(now) ? "null" : ofBase].join("\n");
}

/** Names of the texts that scripts read in the catalog's file. */
const TEXTS = ["id", "cwd", "timestamp", "name"] as const;
type Texts = Readonly<Pick<SessionSummary, (typeof TEXTS)[number]>>;

function storableTexts({ id, cwd, timestamp, name }: Texts): Texts {
  return { id: toStorable(id), cwd: toStorable(cwd), timestamp: toStorable(timestamp), name: toStorable(name) };
}

/** Returns a text as SQLite would return it; the record has the original. */
export function toStorable<T extends string | null>(text: T): T {
  return (text === null ? null : Buffer.from(text).toString().replaceAll("\0", " ")) as T;
}
