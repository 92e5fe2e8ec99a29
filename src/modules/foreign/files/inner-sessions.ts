/** Sessions within the file of another one: some lines of it, such as Claude Code's side chains. */

import { dirname } from "node:path";
import { Column } from "../../../core/tree/nodes.ts";
import type { Disk, FileInfo } from "../../../storage/fs/disk.ts";
import { getInfo, readIfThere, useFile } from "../../../storage/fs/files.ts";
import { isSameStamp, isYoung, readDiskClock } from "../../../storage/fs/stamps.ts";
import { LineRepairer } from "../read/line-repair.ts";
import type { Translator } from "../read/translator.ts";
import { toTranslatorName } from "./derived.ts";
import { type GatheredRecord, type GatheredSession, getNativeId, makePathWithin, stampTogether } from "./gathered.ts";
import { type Reach, readLines, recogniseFile } from "./source.ts";

/** The lines of a session: for each its number, its offset and its length. */
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
  /** True if later writes are sure to change the stamp. */
  readonly isSure: boolean;
}

export class InnerSessions {
  private readonly disk: Disk;
  /** The last file that was looked through: lists and imports take all sessions of one file, one after the other. */
  private last: LineIndex | undefined;

  constructor(disk: Disk) {
    this.disk = disk;
  }

  /** Returns the session within another's file that a path names; undefined for any other path. Throws errno errors. */
  session(path: string): GatheredSession | undefined {
    const { disk } = this;
    const file = dirname(path);
    if (getInfo(disk, file)?.kind !== "file") return undefined;
    const translator = recogniseFile(disk, file);
    const name = getNativeId(path);
    // One session has one path.
    if (!translator?.inner || makePathWithin(file, name) !== path) return undefined;
    if (!this.indexOf(file, translator).sessions.has(name)) return undefined;
    return {
      translator,
      parent: file,
      info: () => stampTogether(disk, file),
      read: () => ({ records: this.records(file, translator, name), warnings: [] }),
    };
  }

  private *records(file: string, translator: Translator, name: string): Generator<GatheredRecord> {
    const { disk } = this;
    const places = this.indexOf(file, translator).sessions.get(name);
    if (!places) return;
    const fd = disk.openRead(file);
    try {
      for (const [number, offset, length] of places.all()) {
        const bytes = readIfThere(disk, fd, offset, length);
        // The file was written anew in between, which its stamp shows.
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
      // A change within this moment may keep the same stamp. Until that has passed, the file would have to be searched
      // for each session of it.
      if (last?.file === file && isSameStamp(last.info, info) && (last.isSure || isNow)) return last;
      const sessions = new Map<string, LinePlaces>();
      const nameOf = translator.inner?.(toTranslatorName(file));
      const mender = new LineRepairer(translator, {
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
        // Damaged lines belong to the session itself; so does a record in several lines, which has no single place.
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
