/** Documents: the texts of messages in session files, for the index and for searches without one. */

import { isUtf8 } from "node:buffer";
import { getContentText, toStored } from "../../core/format/message.ts";
import { HEAD_BYTES } from "../../core/format/node-reader.ts";
import { tryParse } from "../../core/json/json.ts";
import type { SearchPart } from "../../core/ports/catalog.ts";
import type { Log } from "../../core/ports/store.ts";
import { findToolUses } from "../../core/search/calls.ts";
import { ROLES } from "../../core/tree/nodes.ts";
import type { Disk } from "../fs/disk.ts";
import { readAt } from "../fs/files.ts";
import { type LineVisitor, scanLines } from "../log/lines.ts";
import { chunk, getActivity, getEntryMessage, heads } from "./summary.ts";
import type { TextKind, TextSpan } from "./text-table.ts";

/** Kinds of text by role. Messages of other roles are not searched. */
const KINDS_OF_ROLE: Readonly<Record<string, readonly TextKind[]>> = {
  user: ["talk"],
  assistant: ["talk", "calls"],
  toolResult: ["tools", "calls"],
  bashExecution: ["tools", "calls"],
};

/** Returns the kind of text that a part of a session is. */
export function getTextKind(part: SearchPart): TextKind {
  return part === "toolCall" ? "calls" : KINDS_OF_ROLE[part][0];
}

/** A text of one entry, with its other search keys. */
export interface IndexedText extends TextSpan {
  readonly kind: TextKind;
  readonly text: string;
  /** The tool that was called, or whose result it is. */
  readonly tool: string | undefined;
  /** Files that a call names. */
  readonly files: readonly string[];
  /** True for the output of a tool or a command that failed. */
  readonly isFailed: boolean;
}

/** The texts to read of a session: their kinds, and the base directory of its relative paths. */
interface TextChoice {
  readonly kinds: readonly TextKind[];
  readonly cwd: string | null;
}

/** The place of an entry and its texts. */
type EntryPlace = Pick<TextSpan, "start" | "length" | "entry">;

/** Returns the texts of an entry of the chosen kinds. */
export function getTexts(entry: unknown, role: string, { kinds, cwd }: TextChoice, place: EntryPlace): IndexedText[] {
  const message = getEntryMessage(entry);
  const texts: IndexedText[] = [];
  if (!message) return texts;
  const { start, length, entry: id } = place;
  const time = getActivity(entry);
  // Written out: copies of objects took a tenth of the time of the first search.
  const add = (kind: TextKind, nth: number, text: string, tool: string | undefined, files: readonly string[]): void => {
    const searched = text.length > LONGEST_TEXT ? text.slice(0, LONGEST_TEXT) : text;
    const isFailed = kind === "tools" && hasFailed(message);
    texts.push({ start, length, nth, role, time, entry: id, kind, text: searched, tool, files, isFailed });
  };
  for (const kind of KINDS_OF_ROLE[role] ?? []) {
    if (!kinds.includes(kind)) continue;
    if (kind === "calls")
      for (const [nth, { text, tool, files }] of findToolUses(message, cwd).entries())
        add(kind, nth, text, tool, files);
    else {
      const text = messageText(message);
      if (text !== "") add(kind, 0, text, toolOf(message), NO_FILES);
    }
  }
  return texts;
}

const NO_FILES: readonly string[] = [];

function messageText(message: Readonly<Record<string, unknown>>): string {
  if (message.role !== "bashExecution") return getContentText(message.content);
  return [message.command, message.output].filter((part) => typeof part === "string").join("\n");
}

/** Returns whether the tool or the command whose output a message is failed. */
function hasFailed({ isError, exitCode }: Readonly<Record<string, unknown>>): boolean {
  return isError === true || (typeof exitCode === "number" && exitCode !== 0);
}

/** Returns the tool whose output a message is. */
function toolOf({ role, toolName }: Readonly<Record<string, unknown>>): string | undefined {
  return role === "bashExecution" ? "bash" : role === "toolResult" ? toStored(toolName) : undefined;
}

/** Members without which a message of a role has no calls; every message of the user's commands has one. */
const SIGNS: Readonly<Record<string, readonly string[]>> = {
  assistant: ['"toolCall"'],
  toolResult: ['"details"', '"nestedCalls"'],
  bashExecution: [""],
};

/** Returns the roles whose messages may have texts of some kinds, each with a text that their lines must have. */
function signsFor(kinds: readonly TextKind[]): Map<string, readonly string[]> {
  const signs = new Map<string, readonly string[]>();
  for (const [role, all] of Object.entries(KINDS_OF_ROLE)) {
    const wanted = all.filter((kind) => kinds.includes(kind));
    if (wanted.length > 0) signs.set(role, wanted.every((kind) => kind === "calls") ? SIGNS[role] : [""]);
  }
  return signs;
}

function hasOne(signs: readonly string[], line: Uint8Array): boolean {
  const bytes = Buffer.from(line.buffer, line.byteOffset, line.byteLength);
  return signs.some((sign) => sign === "" || bytes.includes(sign));
}

/** Bytes beyond which a line is not searched. */
const LONGEST_LINE = 64 << 20;
/** Characters of a text that are searched: other requests wait while those of one text are put into the index. */
const LONGEST_TEXT = 1 << 20;

class Enough extends Error {}

/**
 * Passes the texts of a plain file between two offsets to `onTexts`, an entry's at once and in order, each time with the
 * end of its line, the entry and the line, until it returns false. `accepts` chooses by the bytes of a line.
 */
export function scanTexts(
  disk: Disk,
  file: string,
  from: number,
  past: number,
  wanted: TextChoice,
  accepts: (line: Uint8Array) => boolean,
  onTexts: (texts: IndexedText[], past: number, entry: unknown, line: Uint8Array) => boolean,
): void {
  const signs = signsFor(wanted.kinds);
  const fd = disk.openRead(file);
  const addLine = (start: number, b: Uint8Array, at: number, end: number): void => {
    if (start >= past) throw new Enough();
    if (!heads.readFast(b, at, end) || heads.type !== 0) return;
    const role = ROLES[heads.role];
    const needed = signs.get(role);
    if (!needed) return;
    const line = b.subarray(at, end);
    if (!hasOne(needed, line) || !accepts(line)) return;
    const entry = tryParse(line);
    const texts = getTexts(entry, role, wanted, { start, length: end - at, entry: null });
    if (texts.length > 0 && !onTexts(texts, start + end - at + 1, entry, line)) throw new Enough();
  };
  const readLong = (start: number, length: number): void => addLine(start, readAt(disk, fd, start, length), 0, length);
  const visitor: LineVisitor = {
    line: (_number, start, b, at, end) => addLine(start, b, at, end),
    long(_number, start, length, head) {
      if (length > LONGEST_LINE || !heads.readFast(head, 0, head.length, false) || heads.type !== 0) return;
      if (signs.has(ROLES[heads.role])) readLong(start, length);
    },
  };
  try {
    const { tail, size } = scanLines(disk, fd, from, HEAD_BYTES, visitor, chunk);
    if (tail < Math.min(size, past) && size - tail <= LONGEST_LINE) readLong(tail, size - tail);
  } catch (error) {
    if (!(error instanceof Enough)) throw error;
  } finally {
    disk.close(fd);
  }
}

/** Yields the texts of any session through its log, an entry's at once: entries have the ids of the open session. */
export function* readLogTexts(log: Log, wanted: TextChoice, from = 0): Generator<IndexedText[]> {
  for (let position = from; position < log.nodes.count; position++) {
    const texts = readTextsAt(log, position, wanted);
    if (texts.length > 0) yield texts;
  }
}

export function readTextsAt(log: Log, position: number, wanted: TextChoice): IndexedText[] {
  const role = log.nodes.role(position);
  const isWanted = KINDS_OF_ROLE[role]?.some((kind) => wanted.kinds.includes(kind)) ?? false;
  if (!isWanted || log.length(position) > LONGEST_LINE) return [];
  const entry = log.nodes.id(position);
  return getTexts(tryParse(log.read(position)), role, wanted, { start: position, length: 0, entry });
}

/** Reads the texts at a place in a file, with the id of their entry; undefined when no entry with an id is there. */
export function readTexts(
  disk: Disk,
  fd: number,
  { start, length, role }: TextSpan,
  wanted: TextChoice,
): { id: string; texts: IndexedText[] } | undefined {
  const line = readAt(disk, fd, start, length);
  const entry = tryParse(line);
  const id = getLineId(entry, line);
  return id === null ? undefined : { id, texts: getTexts(entry, role, wanted, { start, length, entry: null }) };
}

/** Returns the id of a line's entry; null when it has none, or the line is damaged. */
export function getLineId(entry: unknown, line: Uint8Array): string | null {
  const { id } = (entry ?? {}) as { id?: unknown };
  return typeof id === "string" && isUtf8(line) ? id : null;
}
