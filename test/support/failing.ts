/** The real disk, struck at one or several of its operations: an errno, a file cut short, a file that goes away. */

import { truncateSync, unlinkSync } from "node:fs";
import { basename } from "node:path";
import { type Disk, realDisk } from "../../src/storage/fs/disk.ts";
import { wrapped } from "./disturbed.ts";

/** The fault of an operation: an errno, or a file of the session that another program cut or removed just before. */
export type Stroke = "EIO" | "ENOENT" | "EMFILE" | "ENOSPC" | "cut" | "gone";

export const STROKES: readonly Stroke[] = ["EIO", "ENOENT", "EMFILE", "ENOSPC", "cut", "gone"];

/** Operations that take a path first, and those that take a descriptor. */
const BY_PATH = new Set(["openRead", "openAppend", "create", "info", "link", "rename", "remove", "names", "realPath"]);
const OPENING = new Set(["openRead", "openAppend", "create"]);
/** Operations that never fail. */
const NEVER = new Set(["close", "watch"]);

export interface FailingDisk {
  readonly disk: Disk;
  /** Operations so far. */
  readonly count: () => number;
  /** Operations of a name so far. */
  readonly countOf: (operation: string) => number;
  /** Descriptors that are open. */
  readonly open: () => number;
  /** Returns the operation of the last stroke, for messages. */
  readonly met: () => string;
}

/** Returns whether replies wait in a file: half of one may be out when it cannot be read, so that the stream ends then. */
function isReply(path: unknown): boolean {
  return typeof path === "string" && basename(path).startsWith(".reply.");
}

/**
 * Wraps the real disk. `strike` is asked at each operation, with its number; `files` are the files that a cut or a
 * removal strikes. Reads of a file with waiting replies succeed unless `readsReplies`.
 */
export function failingDisk(
  strike: (count: number, operation: string) => Stroke | undefined,
  { files = [], readsReplies = false }: { files?: readonly string[]; readsReplies?: boolean } = {},
): FailingDisk {
  let count = 0;
  let met = "";
  const counts = new Map<string, number>();
  /** The paths of descriptors. */
  const open = new Map<unknown, unknown>();
  const before = (operation: string, subject: unknown): void => {
    counts.set(operation, (counts.get(operation) ?? 0) + 1);
    const stroke = strike(++count, operation);
    if (stroke === undefined) return;
    met = `${stroke} at ${count} ${operation} ${BY_PATH.has(operation) ? String(subject) : ""}`;
    if (stroke === "cut" || stroke === "gone") {
      for (const file of files)
        try {
          if (stroke === "gone") unlinkSync(file);
          else truncateSync(file, Math.floor(realDisk.info(file).size * 0.6));
        } catch {
          // It is gone already.
        }
      return;
    }
    throw Object.assign(new Error(`${stroke}: ${operation}`), { code: stroke, syscall: operation });
  };
  const disk: Disk = wrapped(realDisk, (act, operation, [subject, use]) => {
    if (operation === "close") open.delete(subject);
    if (NEVER.has(operation)) return act();
    if (operation === "sync" || operation === "syncFolder")
      return (async () => {
        before(operation, subject);
        return act();
      })();
    if (readsReplies || operation !== "read" || !isReply(open.get(subject))) before(operation, subject);
    if (operation === "inFolder")
      return realDisk.inFolder?.(subject as never, (path) => (use as (path: unknown, on: Disk) => never)(path, disk));
    const result = act();
    if (OPENING.has(operation)) open.set(result, subject);
    return result;
  });
  return {
    disk,
    count: () => count,
    countOf: (operation) => counts.get(operation) ?? 0,
    open: () => open.size,
    met: () => met,
  };
}
