/** Sessions that are no file of their own: rows of a database, or many small files. */

import type { Translator } from "../../core/foreign/translator.ts";
import type { FileInfo } from "../fs/disk.ts";

/** A session whose records are gathered. It is read anew as a whole when something of it changed. */
export interface GatheredSession {
  readonly translator: Translator;
  /** Returns the stamp of all that it is gathered from; null when it is gone. Throws errno errors. */
  info(): FileInfo | null;
  /** Returns the records in order, and sentences about what could not be read. Throws errno errors. */
  read(): GatheredRecords;
}

export interface GatheredRecords {
  readonly records: readonly Uint8Array[];
  readonly warnings: Iterable<string>;
}

/** Returns the stamp of several files as if they were one, which begins with the first. */
export function joined(files: readonly FileInfo[]): FileInfo {
  const [first] = files;
  const latest = (time: (info: FileInfo) => number): number => Math.max(...files.map(time));
  return {
    ...first,
    size: files.reduce((sum, { size }) => sum + size, 0),
    modified: latest(({ modified }) => modified),
    changed: latest(({ changed, modified }) => changed ?? modified),
  };
}
