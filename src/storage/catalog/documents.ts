/** Documents: the texts of messages in session files, for the index and for searches without one. */

import { isUtf8 } from "node:buffer";
import { HEAD_BYTES } from "../../core/format/head.ts";
import { contentText } from "../../core/format/message.ts";
import type { Log } from "../../core/ports/store.ts";
import { ROLES } from "../../core/tree/nodes.ts";
import type { Disk } from "../fs/disk.ts";
import { readAt } from "../fs/files.ts";
import { type LineVisitor, scanLines } from "../log/lines.ts";
import type { TextKind, TextSpan } from "./database.ts";
import { activityOf, chunk, heads, messageOf, parsed } from "./summary.ts";

/** Kinds of text by role. Texts of other roles are not searched. */
export const KIND_OF_ROLE: Readonly<Record<string, TextKind>> = {
  user: "talk",
  assistant: "talk",
  toolResult: "tools",
  bashExecution: "tools",
};

/** The text of one entry. */
export interface IndexedText extends TextSpan {
  readonly text: string;
}

function messageText(entry: unknown): string {
  const message = messageOf(entry);
  if (message?.role !== "bashExecution") return contentText(message?.content);
  return [message.command, message.output].filter((part) => typeof part === "string").join("\n");
}

/** Bytes beyond which a line is not searched. */
const LONGEST_LINE = 64 << 20;

class Enough extends Error {}

/**
 * Passes the texts of a plain file between two offsets to `onText`, in order, each with the end of its line, its entry
 * and the line, until it returns false. `accepts` chooses by the role, and by the bytes of the line if they are enough.
 */
export function scanTexts(
  disk: Disk,
  file: string,
  from: number,
  past: number,
  accepts: (role: string, b: Uint8Array, at: number, end: number) => boolean,
  onText: (text: IndexedText, past: number, entry: unknown, line: Uint8Array) => boolean,
): void {
  const fd = disk.openRead(file);
  const addLine = (start: number, b: Uint8Array, at: number, end: number): void => {
    if (start >= past) throw new Enough();
    if (!heads.readFast(b, at, Math.min(end, at + HEAD_BYTES)) || heads.type !== 0) return;
    const role = ROLES[heads.role];
    if (!(role in KIND_OF_ROLE) || !accepts(role, b, at, end)) return;
    const line = b.subarray(at, end);
    const entry = parsed(line);
    const text = messageText(entry);
    if (text === "") return;
    const found = { start, length: end - at, role, time: activityOf(entry), entry: null, text };
    if (!onText(found, start + end - at + 1, entry, line)) throw new Enough();
  };
  const readLong = (start: number, length: number): void => addLine(start, readAt(disk, fd, start, length), 0, length);
  const visitor: LineVisitor = {
    line: (_number, start, b, at, end) => addLine(start, b, at, end),
    long(_number, start, length, head) {
      if (length > LONGEST_LINE || !heads.readFast(head, 0, head.length) || heads.type !== 0) return;
      if (ROLES[heads.role] in KIND_OF_ROLE) readLong(start, length);
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

/** Yields the texts of any session through its log: entries have the same ids as in the open session. */
export function* logTexts(log: Log, accepts: (role: string) => boolean, from = 0): Generator<IndexedText> {
  for (let position = from; position < log.nodes.count; position++) {
    if (!accepts(log.nodes.role(position))) continue;
    const text = textAt(log, position);
    if (text) yield text;
  }
}

export function textAt(log: Log, position: number): IndexedText | undefined {
  const role = log.nodes.role(position);
  if (!(role in KIND_OF_ROLE) || log.length(position) > LONGEST_LINE) return undefined;
  const entry = parsed(log.read(position));
  const text = messageText(entry);
  if (text === "") return undefined;
  return { start: position, length: 0, role, time: activityOf(entry), entry: log.nodes.id(position), text };
}

/** Reads the text at a place in a file, with the id of its entry; undefined when no entry with an id is there. */
export function readText(
  disk: Disk,
  fd: number,
  { start, length }: TextSpan,
): { id: string; text: string } | undefined {
  const line = readAt(disk, fd, start, length);
  const entry = parsed(line);
  const id = idIn(entry, line);
  return id === null ? undefined : { id, text: messageText(entry) };
}

/** Returns the id of a line's entry; null when it has none, or the line is damaged. */
export function idIn(entry: unknown, line: Uint8Array): string | null {
  const { id } = (entry ?? {}) as { id?: unknown };
  return typeof id === "string" && isUtf8(line) ? id : null;
}
