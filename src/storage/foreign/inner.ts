/** Sessions within the file of another one: some lines of it, such as Claude Code's side chains. */

import { dirname } from "node:path";
import { LineMender } from "../../core/foreign/mending.ts";
import type { Translator } from "../../core/foreign/translator.ts";
import { Column } from "../../core/tree/nodes.ts";
import type { Disk, FileInfo } from "../fs/disk.ts";
import { getInfo, readIfThere, useFile } from "../fs/files.ts";
import { isSameStamp, isYoung, readDiskClock } from "../fs/stamps.ts";
import { nameOfFile } from "./derived.ts";
import { type GatheredRecord, type GatheredSession, idInPath, pathWithin } from "./gathered.ts";
import { type Reach, readLines, recognised } from "./source.ts";

/** Where the lines of a session are: for each its number, its offset and its length. */
class LinePlaces {
  private readonly column = new Column(new Float64Array(12));
  private size = 0;

  add(...place: readonly [number: number, offset: number, length: number]): void {
    for (const value of place) this.column.set(this.size++, value);
  }

  *all(): Generator<readonly [number: number, offset: number, length: number]> {
    const { values } = this.column;
    for (let i = 0; i < this.size; i += 3) yield [values[i], values[i + 1], values[i + 2]];
  }
}

interface LineIndex {
  readonly file: string;
  readonly info: FileInfo;
  readonly sessions: ReadonlyMap<string, LinePlaces>;
  /** Whether what is written later is sure to have another stamp. */
  readonly isSure: boolean;
}

export class InnerSessions {
  private readonly disk: Disk;
  /** The last file that was looked through: lists and imports take all sessions of one file, one after the other. */
  private last: LineIndex | undefined;

  constructor(disk: Disk) {
    this.disk = disk;
  }

  /** Returns the session within another's file that a path names; undefined where it names none. Throws errno errors. */
  session(path: string): GatheredSession | undefined {
    const { disk } = this;
    const file = dirname(path);
    if (getInfo(disk, file)?.kind !== "file") return undefined;
    const translator = recognised(disk, file);
    const name = idInPath(path);
    // One session has one path.
    if (!translator?.inner || pathWithin(file, name) !== path) return undefined;
    if (!this.indexOf(file, translator).sessions.has(name)) return undefined;
    return {
      translator,
      parent: file,
      info: () => {
        const info = getInfo(disk, file);
        return info?.kind === "file" ? info : null;
      },
      read: () => ({ records: this.records(file, translator, name), warnings: [] }),
    };
  }

  /** Yields the lines of a session. */
  private *records(file: string, translator: Translator, name: string): Generator<GatheredRecord> {
    const { disk } = this;
    const places = this.indexOf(file, translator).sessions.get(name);
    if (!places) return;
    const fd = disk.openRead(file);
    try {
      for (const [number, offset, length] of places.all()) {
        const bytes = readIfThere(disk, fd, offset, length);
        // The file was written anew meanwhile, which its stamp shows.
        if (!bytes) return;
        yield { bytes, number };
      }
    } finally {
      disk.close(fd);
    }
  }

  private indexOf(file: string, translator: Translator): LineIndex {
    const { disk, last } = this;
    return useFile(disk, disk.openRead(file), (fd) => {
      const info = disk.infoOf(fd);
      const isNow = isYoung(info, readDiskClock(disk));
      // What was written in this moment may be written again under the same stamp. Until that has passed, it would have to
      // be looked through for each session of it.
      if (last?.file === file && isSameStamp(last.info, info) && (last.isSure || isNow)) return last;
      const sessions = new Map<string, LinePlaces>();
      const nameOf = translator.inner?.(nameOfFile(file));
      const mender = new LineMender(translator, {
        take({ bytes, number, offset }) {
          try {
            const name = nameOf?.(bytes, number);
            if (name === undefined) return true;
            const places = sessions.get(name) ?? new LinePlaces();
            sessions.set(name, places);
            places.add(number, offset, bytes.length);
            return true;
          } catch {
            return false;
          }
        },
        // What is damaged belongs to the session itself; so does a record in several lines, which have no one place.
        lose() {},
        join() {},
      });
      const reach: Reach = { offset: 0, lines: 0, isUnterminated: false, isUnfinished: false };
      readLines(disk, fd, reach, (bytes, number, offset) => mender.line({ bytes, number, offset }));
      mender.end();
      this.last = { file, info, sessions, isSure: !isNow };
      return this.last;
    });
  }
}
