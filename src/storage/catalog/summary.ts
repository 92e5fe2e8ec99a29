/**
 * Summaries of session files for lists. They are gathered from the heads of the lines and a few bodies, so that after
 * an append only the appended lines are read. This file never writes to a session file.
 */

import { isUtf8 } from "node:buffer";
import { basename } from "node:path";
import { NO_DAMAGE } from "../../core/format/damage.ts";
import { CURRENT_VERSION } from "../../core/format/entry.ts";
import { getContentText } from "../../core/format/message.ts";
import { HEAD_BYTES, HeadReader } from "../../core/format/node-reader.ts";
import { isJson, skipSpace, tryParse } from "../../core/json/json.ts";
import type { Log } from "../../core/ports/store.ts";
import { parseTime } from "../../core/search/listing.ts";
import { KNOWN_TYPES, Nodes, ROLES, type Role } from "../../core/tree/nodes.ts";
import type { Disk } from "../fs/disk.ts";
import { readAt, useFile } from "../fs/files.ts";
import {
  findHeader,
  getMarkLength,
  hasEntriesNearby,
  isTitleSlot,
  parseHeaderLine,
  parseIdInName,
  SEARCHED_BYTES,
} from "../fs/header.ts";
import { CHUNK, type LineVisitor, scanLines } from "../log/lines.ts";
import { Links } from "./links.ts";

/** The summary of a file up to an offset. It consists of plain values, so that it can be stored and continued. */
export interface SessionSummary {
  /** Offset up to which all lines are included. */
  readonly reach: number;
  /** Hash of bytes before that offset, which distinguishes a file that was rewritten from one that has grown. */
  readonly mark: string;
  readonly id: string;
  readonly cwd: string | null;
  readonly parentSession: string | null;
  /** The timestamp in the header. */
  readonly timestamp: string | null;
  readonly name: string | null;
  readonly first: string | null;
  /** The labels of entries by the entries' ids; missing without any. */
  readonly labels?: Readonly<Record<string, string>>;
  readonly messages: number;
  readonly entries: number;
  /** Time of the last user or assistant message, in milliseconds. */
  readonly activity: number | null;
  /** True if every line is an entry of the usual form that continues the one before, so that all are on one path. */
  readonly plain: boolean;
  /** The packed id of the last entry; -1 before the first. */
  readonly last: number;
  /** True if the last entry may belong to an interrupted batch. */
  readonly batch: boolean;
  /** True if a damaged line was seen. */
  readonly damaged?: true;
  /** The agent whose own file it is. */
  readonly agent?: string;
  /** The names of the sessions within its file, if the agent's files have such. */
  readonly inner?: readonly string[];
}

/** Returns the time of the last message, or that of the beginning if it is later, as a fork's is. */
export function getModified({ activity, timestamp }: Pick<SessionSummary, "activity" | "timestamp">): number | null {
  const created = parseTime(timestamp);
  return activity === null || created === null ? (activity ?? created) : Math.max(activity, created);
}

/** A summary while it is gathered. */
type Gathered = { -readonly [K in keyof SessionSummary]: SessionSummary[K] };

/** The summary before the first byte. */
export const EMPTY: SessionSummary = {
  reach: 0,
  mark: "",
  id: "",
  cwd: null,
  parentSession: null,
  timestamp: null,
  name: null,
  first: null,
  messages: 0,
  entries: 0,
  activity: null,
  plain: true,
  last: -1,
  batch: false,
};

export interface Scan {
  /** The summary up to the last line feed. */
  readonly base: SessionSummary;
  /** The summary with the last line, if that has no line feed but is complete. */
  readonly now: SessionSummary;
  readonly size: number;
  /** True if it continues the known summary. */
  readonly grown: boolean;
}

/** Characters of a first message that are kept for lists. */
const FIRST_MESSAGE = 1000;
/** Characters of a label that are kept for lists. */
const LONGEST_LABEL = 200;
/** Labels of a session that a list knows: each further one would make their copies longer. */
const MOST_LABELS = 200;
/** Bytes beyond which a line is not read for a summary. */
const LONGEST_READ = 64 << 20;
/** Bytes at each end of the known part that are hashed for its mark. */
const MARKED = 512;

const TYPE = {
  message: KNOWN_TYPES.indexOf("message"),
  name: KNOWN_TYPES.indexOf("session_info"),
  label: KNOWN_TYPES.indexOf("label"),
};
const FLAG_BATCH = 4;
const CLOSE_BRACE = 0x7d;

/** One buffer and one reader serve all scans of the catalog: they run one after the other, each without a pause. */
export const chunk = Buffer.allocUnsafeSlow(CHUNK);
const nodes = new Nodes();
export const heads = new HeadReader(nodes);
const SESSION_TYPE = nodes.typeCode("session");

class NotASession extends Error {}

/** Scans a file, continuing `known` if it still begins so. Returns null when it is no session. Throws errno errors. */
export function scanFile(disk: Disk, file: string, known?: SessionSummary): Scan | null {
  try {
    return useFile(disk, disk.openRead(file), (fd) => {
      const { kind, size } = disk.infoOf(fd);
      if (kind !== "file") return null;
      const read: Read = (start, length) => readAt(disk, fd, start, length);
      const grown = known !== undefined && size >= known.reach && markOf(read, known.reach) === known.mark;
      return new Scanner(disk, fd, file, grown ? known : undefined).run();
    });
  } catch (error) {
    if (error instanceof NotASession) return null;
    throw error;
  }
}

class Scanner {
  private readonly disk: Disk;
  private readonly fd: number;
  private readonly file: string;
  private readonly f: Gathered;
  private hasHeader: boolean;
  private headerMade = false;
  private isNewer = false;
  /** True if entries have ids of their own, as from version 2 on. */
  private needsIds = true;
  /** Ids and parents, if the file is read from its beginning. */
  private readonly links: Links | undefined;
  /** Lines of new messages of users and the model: their starts and lengths, alternating. */
  private readonly messageLines: number[] = [];
  /** The chunk with the last line that was visited, and the offset of its first byte; undefined: read the file. */
  private held: Uint8Array | undefined;
  private heldFrom = 0;

  constructor(disk: Disk, fd: number, file: string, known: SessionSummary | undefined) {
    this.disk = disk;
    this.fd = fd;
    this.file = file;
    this.hasHeader = known !== undefined;
    this.links = known ? undefined : new Links();
    this.f = { ...(known ?? EMPTY) };
  }

  run(): Scan {
    const grown = this.hasHeader;
    const visitor: LineVisitor = {
      line: (_number, start, b, at, end) => {
        this.held = b;
        this.heldFrom = start - at;
        this.addLine(start, b, at, end);
      },
      long: (_number, start, length, head, last) => {
        this.held = undefined;
        this.addLongLine(start, length, head, last);
      },
    };
    const { size, tail } = scanLines(this.disk, this.fd, this.f.reach, HEAD_BYTES, visitor, chunk);
    // A line that is not finished was moved to the beginning of the chunk.
    if (tail < size) this.held = undefined;
    this.f.reach = tail;
    this.updateActivity();
    if (this.links?.areBroken) this.noteDamage();
    // Every look decides again whether a file without a header is a session.
    const goesOn = this.hasHeader && !this.headerMade;
    const base = { ...this.f, mark: goesOn ? markOf(this.read, tail) : "" };
    // A last line without a line feed counts if it is complete. It is read again when the file has grown.
    if (tail < size && size - tail <= LONGEST_READ) {
      const line = this.read(tail, size - tail);
      if (isUtf8(line) && isJson(line)) this.addLine(tail, line, 0, line.length);
      else if (skipSpace(line, 0, line.length) < line.length) this.noteDamage();
    }
    if (!this.hasHeader) throw new NotASession();
    this.updateActivity();
    return { base, now: { ...this.f, reach: tail, mark: base.mark }, size, grown };
  }

  private addLine(start: number, b: Uint8Array, at: number, end: number): void {
    let past = end;
    if (past > at && b[past - 1] === 0x0d) past--;
    if (!this.hasHeader) return this.readHeader(start, b, at, past);
    if (past > at && b[past - 1] === CLOSE_BRACE && heads.readFast(b, at, past)) this.addEntry(start, past - at, true);
    else if (skipSpace(b, at, past) < past) {
      this.f.plain = false;
      const makeId = (): string => {
        if (this.needsIds) this.noteDamage();
        return `?${start}`;
      };
      const isEntry = (): boolean =>
        isUtf8(b.subarray(at, past)) && heads.readAny(b, at, past, makeId) === null && heads.type !== SESSION_TYPE;
      if ((b[past - 1] === CLOSE_BRACE && heads.readEnds(b, at, past, true)) || isEntry())
        this.addEntry(start, past - at, false);
      else this.noteDamage();
    }
  }

  private addLongLine(start: number, length: number, head: Uint8Array, last: number): void {
    if (!this.hasHeader && length > SEARCHED_BYTES) throw new NotASession();
    if (!this.hasHeader) return this.addLine(start, this.read(start, length), 0, length);
    const ends = Buffer.concat([head, this.read(start + length - HEAD_BYTES, HEAD_BYTES)]);
    const usual = heads.readFast(ends, 0, ends.length);
    const isLegible = (): boolean => heads.readEnds(ends, 0, ends.length, true);
    this.f.plain &&= usual;
    if (last === CLOSE_BRACE && (usual || isLegible())) this.addEntry(start, length, usual);
    else if (length <= LONGEST_READ) this.addLine(start, this.read(start, length), 0, length);
    else this.f.plain = false;
  }

  /** An unknown line of a newer version is no damage. */
  private noteDamage(): void {
    if (!this.isNewer) this.f.damaged = true;
  }

  /** Adds the entry whose head was just read. */
  private addEntry(start: number, length: number, usual: boolean): void {
    const { f } = this;
    const { type, role, packedId, packedParent, flags } = heads;
    this.links?.add(heads);
    f.plain &&= usual && packedParent === f.last && packedId !== f.last;
    f.last = packedId;
    f.batch = (flags & FLAG_BATCH) !== 0;
    if (addFacts(f, type, ROLES[role], start, length, this.read)) this.messageLines.push(start, length);
  }

  private readHeader(start: number, b: Uint8Array, at: number, past: number): void {
    const bom = start === 0 ? getMarkLength(b, at) : 0;
    if (skipSpace(b, at + bom, past) === past || (start === 0 && isTitleSlot(b.subarray(at, past)))) return;
    const first = parseHeaderLine(b.subarray(at + bom, past));
    const late = first ? undefined : findHeader(this.disk, this.fd);
    const header = first ?? late?.header;
    const { f } = this;
    this.hasHeader = true;
    if (header) {
      Object.assign(f, getHeaderFacts(header), { id: header.id });
      this.isNewer = typeof header.version === "number" && header.version > CURRENT_VERSION;
      this.needsIds = typeof header.version === "number" && header.version > 1;
      f.plain = first?.version === CURRENT_VERSION && first.leafId === undefined;
    } else {
      // The session opens nevertheless, with the id at the end of its file name.
      if (!hasEntriesNearby(this.disk, this.fd)) throw new NotASession();
      this.headerMade = true;
      f.damaged = true;
      f.id = parseIdInName(this.file) ?? basename(this.file, ".jsonl");
      f.plain = false;
    }
    if (!first) this.addLine(start, b, at, past);
  }

  private updateActivity(): void {
    const lines = this.messageLines.splice(0);
    setActivity(this.f, lines.length / 2, (nth) => this.read(lines[2 * nth], lines[2 * nth + 1]));
  }

  /**
   * Returns bytes of the file, from the chunk if that has them: small files are read once. They are valid until the next
   * line is read.
   */
  private readonly read: Read = (start, length) =>
    this.held && start >= this.heldFrom
      ? this.held.subarray(start - this.heldFrom, start - this.heldFrom + length)
      : readAt(this.disk, this.fd, start, length);
}

type Read = (start: number, length: number) => Uint8Array;

/** Adds an entry, which `read` reads. Returns whether it is a message that may have the time of the last activity. */
function addFacts(f: Gathered, type: number, role: Role, start: number, length: number, read: Read): boolean {
  f.entries++;
  if (type === TYPE.name) f.name = nameIn(tryParse(read(start, length)), f.name);
  if (type === TYPE.label) f.labels = addLabel(f.labels, tryParse(read(start, length)));
  if (type !== TYPE.message) return false;
  f.messages++;
  if ((role !== "user" && role !== "assistant") || length > LONGEST_READ) return false;
  if (f.first === null && role === "user") {
    const text = getContentText(getEntryMessage(tryParse(read(start, length)))?.content).trim();
    f.first = text === "" ? null : text.slice(0, FIRST_MESSAGE);
  }
  return true;
}

/** Sets `activity` from the last of `count` messages that has a time. */
function setActivity(f: Gathered, count: number, messageAt: (nth: number) => Uint8Array): void {
  for (let nth = count - 1; nth >= 0; nth--) {
    const activity = getActivity(tryParse(messageAt(nth)));
    if (activity === null) continue;
    f.activity = activity;
    return;
  }
}

/** Returns the members of a header that a summary has, as far as they are texts. */
export function getHeaderFacts(header: object): Pick<SessionSummary, "cwd" | "timestamp" | "parentSession"> {
  const { cwd, timestamp, parentSession, branchedFrom } = header as Readonly<Record<string, unknown>>;
  const text = (value: unknown): string | null => (typeof value === "string" ? value : null);
  return { cwd: text(cwd), timestamp: text(timestamp), parentSession: text(parentSession) ?? text(branchedFrom) };
}

/** Returns the summary of a log up to a position, continuing `known`: for sessions that are not plain files of lines. */
export function summariseLog(log: Log, known = EMPTY, past = log.nodes.count): SessionSummary {
  const { header, nodes } = log;
  const f: Gathered = { ...known, ...getHeaderFacts(header), id: header.id, plain: false };
  const read: Read = (position) => log.read(position);
  const messages: number[] = [];
  for (let position = f.entries; position < past; position++)
    if (addFacts(f, nodes.code(position), nodes.role(position), position, log.length(position), read))
      messages.push(position);
  setActivity(f, messages.length, (nth) => log.read(messages[nth]));
  if (log.damage.some(({ kind }) => !NO_DAMAGE.has(kind))) f.damaged = true;
  return f;
}

/** Returns the name in a session_info entry; `before` when the entry is damaged. */
function nameIn(entry: unknown, before: string | null): string | null {
  if (entry === undefined) return before;
  const { name } = entry as { name?: unknown };
  return typeof name === "string" && name.trim() !== "" ? name.trim() : null;
}

/** Returns labels with that of a label entry, which takes one away if it names none. */
function addLabel(before: SessionSummary["labels"], entry: unknown): SessionSummary["labels"] {
  const { targetId, label } = (entry ?? {}) as { targetId?: unknown; label?: unknown };
  if (typeof targetId !== "string") return before;
  const { [targetId]: _old, ...others } = before ?? {};
  const count = Object.keys(others).length;
  if (typeof label !== "string" || label.trim() === "") return count === 0 ? undefined : others;
  return count < MOST_LABELS ? { ...others, [targetId]: label.slice(0, LONGEST_LABEL) } : before;
}

export function getEntryMessage(entry: unknown): Readonly<Record<string, unknown>> | undefined {
  const message = (entry as { message?: Record<string, unknown> } | null | undefined)?.message;
  return typeof message === "object" && message !== null ? message : undefined;
}

/** Returns the time of an entry's message in milliseconds: that of the message, or else that of the entry. */
export function getActivity(entry: unknown): number | null {
  const own = getEntryMessage(entry)?.timestamp;
  if (typeof own === "number" && Number.isFinite(own)) return own;
  return parseTime((entry as { timestamp?: unknown } | null | undefined)?.timestamp);
}

function markOf(read: Read, reach: number): string {
  const half = Math.min(reach, MARKED);
  const rest = Math.min(reach - half, MARKED);
  const bytes = Buffer.concat([read(0, half), read(reach - rest, rest)]);
  return hash(bytes.toString("latin1"));
}

/** Returns a 53-bit hash (cyrb53), which protects against accidents but not against malice. */
export function hash(text: string): string {
  let a = 0xdeadbeef;
  let b = 0x41c6ce57;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    a = Math.imul(a ^ c, 2654435761);
    b = Math.imul(b ^ c, 1597334677);
  }
  a = Math.imul(a ^ (a >>> 16), 2246822507) ^ Math.imul(b ^ (b >>> 13), 3266489909);
  b = Math.imul(b ^ (b >>> 16), 2246822507) ^ Math.imul(a ^ (a >>> 13), 3266489909);
  return (4294967296 * (2097151 & b) + (a >>> 0)).toString(36);
}
