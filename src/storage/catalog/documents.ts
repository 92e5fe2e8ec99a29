/** What is said in session files, for the index and for searching without one. */

import { isUtf8 } from "node:buffer";
import { HEAD_BYTES, HeadReader } from "../../core/format/head.ts";
import { contentText } from "../../core/format/message.ts";
import type { Log } from "../../core/ports/store.ts";
import { fold } from "../../core/search/query.ts";
import { Nodes, ROLES } from "../../core/tree/nodes.ts";
import { type Disk, readAll } from "../fs/disk.ts";
import { CHUNK, scanLines } from "../log/lines.ts";
import type { Kind, NewText, Place } from "./database.ts";
import { activityOf, messageOf, parsed } from "./summary.ts";

/** Roles whose texts are found, and on which request. */
export const KIND_OF_ROLE: Readonly<Record<string, Kind>> = {
  user: "talk",
  assistant: "talk",
  toolResult: "tools",
  bashExecution: "tools",
};

/** What one entry says. */
export interface Said extends Place {
  readonly text: string;
}

/** The text of a message's value. */
export function saidBy(entry: unknown): { role: string; text: string } {
  const message = messageOf(entry) ?? {};
  const role = typeof message.role === "string" ? message.role : "";
  if (role !== "bashExecution") return { role, text: contentText(message.content) };
  const { command, output } = message;
  return { role, text: [command, output].filter((part) => typeof part === "string").join("\n") };
}

/** A longer line is not searched. */
const LONGEST_LINE = 64 << 20;

/** One buffer serves all scans: they run one after the other, each without a pause. */
const chunk = Buffer.allocUnsafeSlow(CHUNK);
const heads = new HeadReader(new Nodes());

class Enough extends Error {}

/**
 * The texts of a plain file between two offsets, in file order. `want` decides by the role, and by the line where one
 * look at its bytes is enough. `say` answers false to stop.
 */
export function scanTexts(
  disk: Disk,
  file: string,
  from: number,
  past: number,
  want: (role: string, b: Uint8Array, at: number, end: number) => boolean,
  say: (said: Said, lineEnd: number) => boolean,
): void {
  const fd = disk.openRead(file);
  const take = (start: number, b: Uint8Array, at: number, end: number): void => {
    if (start >= past) throw new Enough();
    if (!heads.read(b, at, Math.min(end, at + HEAD_BYTES)) || heads.type !== 0) return;
    const role = ROLES[heads.role];
    if (!(role in KIND_OF_ROLE) || !want(role, b, at, end)) return;
    const entry = parsed(b.subarray(at, end));
    if (entry === undefined) return;
    const { text } = saidBy(entry);
    if (
      text !== "" &&
      !say({ start, length: end - at, role, time: activityOf(entry), entry: null, text }, start + end - at + 1)
    )
      throw new Enough();
  };
  const readLong = (start: number, length: number): void => {
    const line = Buffer.allocUnsafe(length);
    readAll(disk, fd, line, start);
    take(start, line, 0, length);
  };
  try {
    const { tail, size } = scanLines(
      disk,
      fd,
      from,
      HEAD_BYTES,
      {
        line: (_number, start, b, at, end) => take(start, b, at, end),
        long(_number, start, length, head) {
          if (length > LONGEST_LINE || !heads.read(head, 0, head.length) || heads.type !== 0) return;
          if (ROLES[heads.role] in KIND_OF_ROLE) readLong(start, length);
        },
      },
      chunk,
    );
    if (tail < Math.min(size, past) && size - tail <= LONGEST_LINE) readLong(tail, size - tail);
  } catch (error) {
    if (!(error instanceof Enough)) throw error;
  } finally {
    disk.close(fd);
  }
}

/** The texts of any session, through its log: entries have the ids they have when the session is open. */
export function* logTexts(log: Log, wants: (role: string) => boolean, from = 0): Generator<Said> {
  for (let position = from; position < log.nodes.count; position++) {
    if (!wants(log.nodes.role(position))) continue;
    const said = saidAt(log, position);
    if (said) yield said;
  }
}

/** What an entry of a log says, if it says anything. */
export function saidAt(log: Log, position: number): Said | undefined {
  const role = log.nodes.role(position);
  if (!(role in KIND_OF_ROLE) || log.length(position) > LONGEST_LINE) return undefined;
  const entry = parsed(log.read(position));
  const { text } = saidBy(entry);
  return text === ""
    ? undefined
    : { start: position, length: 0, role, time: activityOf(entry), entry: log.nodes.id(position), text };
}

/** What stands at a place of a file; undefined when that is not what was there. */
export function readSaid(disk: Disk, fd: number, { start, length }: Place): { id: string; text: string } | undefined {
  const line = Buffer.allocUnsafe(length);
  readAll(disk, fd, line, start);
  if (!isUtf8(line)) return undefined;
  const entry = parsed(line) as { id?: unknown } | undefined;
  return typeof entry?.id === "string" ? { id: entry.id, text: saidBy(entry).text } : undefined;
}

/** A text as the index takes it. */
export function textFrom({ text, ...place }: Said): NewText {
  return { ...place, folded: fold(text) };
}
