/** Finds the records that come later in a file than others that name them, in one pass over it, on demand. */

import { parse } from "../../../core/json/json.ts";
import type { Disk } from "../../../storage/fs/disk.ts";
import { readAt } from "../../../storage/fs/files.ts";
import { type Reach, readLines } from "./source.ts";

/** Bytes of an id that are looked for. */
const LONGEST_ID = 100;

export class LaterRecords {
  private readonly disk: Disk;
  private readonly fd: number;
  private readonly member: string;
  /** The lines that may be the records with these ids, by offset and length: the last of each. */
  private places: Map<string, readonly [offset: number, length: number]> | undefined;

  /** `member`: the name of the member that is the id of a record. */
  constructor(disk: Disk, fd: number, member: string) {
    this.disk = disk;
    this.fd = fd;
    this.member = member;
  }

  /** Returns whether a record with an id begins after an offset. */
  has(id: string, offset: number): boolean {
    this.places ??= this.find(offset);
    const [at, length] = this.places.get(id) ?? [-1, 0];
    if (at <= offset) return false;
    try {
      const record = parse(readAt(this.disk, this.fd, at, length)) as Readonly<Record<string, unknown>> | null;
      return record?.[this.member] === id;
    } catch {
      return false;
    }
  }

  private find(offset: number): Map<string, readonly [number, number]> {
    const places = new Map<string, readonly [number, number]>();
    const before = Buffer.from(`"${this.member}":"`);
    const reach: Reach = { offset, lines: 0, isUnterminated: false, isUnfinished: false };
    readLines(this.disk, this.fd, reach, (bytes, _, at) => {
      const line = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
      for (let found = line.indexOf(before); found >= 0; found = line.indexOf(before, found)) {
        found += before.length;
        const end = line.indexOf(0x22, found);
        if (end >= 0 && end - found <= LONGEST_ID) places.set(line.toString("latin1", found, end), [at, line.length]);
      }
    });
    return places;
  }
}
