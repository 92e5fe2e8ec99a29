/**
 * Sessions that are no file of their own: rows of a database, many small files, or some lines of another's file. The
 * path of one that shares its file with others is that of the file with the agent's own id of it after it: nothing else
 * can have it, because a file has no names below it.
 */

import { basename, join } from "node:path";
import type { Disk, FileInfo } from "../../../storage/fs/disk.ts";
import { getInfo } from "../../../storage/fs/files.ts";
import type { Translator } from "../read/translator.ts";

/** A session whose records are gathered. It is read anew as a whole when something of it changed. */
export interface GatheredSession {
  readonly translator: Translator;
  /** The file of the session that began it, if that is known before its records are read. */
  readonly parent?: string;
  /** Returns the stamp of all that it is gathered from; null when it is gone. Throws errno errors. */
  info(): FileInfo | null;
  /** Returns the records in order. Throws errno errors. */
  read(): GatheredRecords;
}

export interface GatheredRecord {
  readonly bytes: Uint8Array;
  /** The number in reports, from 1 on; never less than that of the one before. */
  readonly number: number;
}

export interface GatheredRecords {
  readonly records: Iterable<GatheredRecord>;
  readonly warnings: Iterable<string>;
  /** Sentences about unreadable parts, which are damage. */
  readonly lost?: Iterable<string>;
}

/** Numbers records in their order. */
export function numberRecords(records: readonly Uint8Array[]): GatheredRecord[] {
  return records.map((bytes, index) => ({ bytes, number: index + 1 }));
}

export function makePathWithin(file: string, id: string): string {
  return join(file, /^[A-Za-z0-9_-][A-Za-z0-9._-]*$/.test(id) ? id : `%${Buffer.from(id).toString("hex")}`);
}

/** Returns the agent's own id of the session that a path within a file names. */
export function getNativeId(path: string): string {
  const name = basename(path);
  return name.startsWith("%") ? Buffer.from(name.slice(1), "hex").toString() : name;
}

/** Returns the stamp of a file and of those others that exist, as if they were one file; null without the first. */
export function stampTogether(disk: Disk, file: string, others: readonly string[] = []): FileInfo | null {
  const own = getInfo(disk, file);
  if (own?.kind !== "file") return null;
  const files = [own, ...others.map((path) => getInfo(disk, path)).filter((info) => info !== null)];
  const latest = (time: (info: FileInfo) => number): number => Math.max(...files.map(time));
  return {
    ...own,
    size: files.reduce((sum, { size }) => sum + size, 0),
    modified: latest(({ modified }) => modified),
    changed: latest(({ changed, modified }) => changed ?? modified),
  };
}
